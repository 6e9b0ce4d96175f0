package bgp

import (
	"context"
	"net"
	"reflect"
	"time"

	gobgp "github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/internal/wake"
)

// GoBGP waits for one and a half to two seconds before each connection attempt, even the first one, which would
// dominate the time of a restart. So Herald connects at once in parallel, and passes the connection to GoBGP as if
// GoBGP's listener had accepted it. GoBGP resolves the collision if its own attempt succeeds too.

const (
	// connectEvery is the first pause after a failed attempt.
	connectEvery = 250 * time.Millisecond
	// connectTimeout limits one attempt.
	connectTimeout = 2 * time.Second
	// handEvery is the least time between two connections passed to GoBGP for one peer. It bounds the
	// attempts with a peer that rejects the session.
	handEvery = 2 * time.Second
)

// acceptedBy returns the channel of connections that GoBGP's listeners accept, or nil if this version has none.
// GoBGP accepts any connection from the address of a peer, and offers no other way to pass one in.
func acceptedBy(s *gobgp.BgpServer) *chan net.Conn {
	field := reflect.ValueOf(s).Elem().FieldByName("acceptCh")
	if !field.IsValid() || field.Type() != reflect.TypeFor[chan net.Conn]() {
		return nil
	}
	return (*chan net.Conn)(field.Addr().UnsafePointer())
}

// connect passes GoBGP a connection to p, which must be waiting for one.
func (s *Server) connect(p *peer) {
	if s.accepted == nil || *s.accepted == nil || s.closing || time.Since(p.handed) < handEvery {
		return
	}
	epoch, config, conf, addr := p.epoch, s.config, p.Peer, p.addr
	retry := encodePeer(config, conf, addr).Timers.Config.ConnectRetry
	s.wg.Go(func() {
		pauses := wake.Backoff{Min: connectEvery, Max: time.Duration(retry) * time.Second}
		for n := 1; ; n++ {
			ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
			conn, err := dial(ctx, config, conf, addr)
			cancel()
			if s.hand(p, epoch, conn, err) || !wake.Pause(s.ctx, pauses.After(n)) {
				return
			}
		}
	})
}

// hand passes the connection, if there is one, to GoBGP. It reports whether the attempts are over: GoBGP has
// it, or no longer waits for one.
func (s *Server) hand(p *peer, epoch uint64, conn net.Conn, err error) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.epoch != epoch || s.closing {
		if conn != nil {
			conn.Close()
		}
		return true
	}
	if err != nil {
		return false
	}
	select {
	case *s.accepted <- conn:
		p.handed, p.trial = time.Now(), true
	default:
		conn.Close()
	}
	return true
}
