package bgp

import (
	"context"
	"net"
	"reflect"
	"time"

	gobgp "github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/internal/wake"
)

// GoBGP waits for one and a half to two seconds before it connects to a peer, the first time
// included, which would be most of what a restart costs. So Herald connects, too, at once, and
// hands the connection to GoBGP as one that its listener accepted. What comes of it is GoBGP's:
// it goes on trying by itself, and knows what to do with two connections.

const (
	// connectEvery is how soon a connection that was refused is tried again, at first; each
	// further time twice as late.
	connectEvery = 250 * time.Millisecond
	// connectTimeout is how long one may take.
	connectTimeout = 2 * time.Second
	// handEvery is the least time between two connections that are handed over for one
	// peer. It bounds the rate at which a peer is tried that does not let a session come up.
	handEvery = 2 * time.Second
)

// acceptedBy is where GoBGP's listeners leave the connections that they accept, or nil if
// this version has no such place. GoBGP takes whatever has the address of a peer, and
// offers no other way to give it a connection.
func acceptedBy(s *gobgp.BgpServer) *chan net.Conn {
	field := reflect.ValueOf(s).Elem().FieldByName("acceptCh")
	if !field.IsValid() || field.Type() != reflect.TypeFor[chan net.Conn]() {
		return nil
	}
	return (*chan net.Conn)(field.Addr().UnsafePointer())
}

// connect hands GoBGP, which is waiting for one, a connection to p.
func (s *Server) connect(p *peer) {
	if s.accepted == nil || *s.accepted == nil || s.closing || time.Since(p.handed) < handEvery {
		return
	}
	epoch, config, conf, addr := p.epoch, s.config, p.Peer, p.addr
	s.wg.Go(func() {
		for pause := connectEvery; ; pause = min(2*pause, config.ConnectRetry) {
			ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
			conn, err := dial(ctx, config, conf, addr)
			cancel()
			if s.hand(p, epoch, conn, err) || !wake.Pause(s.ctx, pause) {
				return
			}
		}
	})
}

// hand gives GoBGP the connection, if there is one. It reports whether there is nothing more
// to do: it has it, or does not wait for one any more.
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
