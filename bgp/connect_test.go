package bgp_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/wait"
)

// A session comes up over Herald's own connection, with and without a listener of GoBGP.
func TestConnectsByItself(t *testing.T) {
	for i, port := range []uint16{0, 11799} {
		t.Run(fmt.Sprintf("listening on port %d", port), func(t *testing.T) {
			r := startRouter(t, fmt.Sprintf("127.0.7.%d", i+1), 64500, 64512)
			s := newServer(t)
			with, without := config(r.peer(64500)), config()
			with.ListenPort, without.ListenPort = port, port
			must(t, s.Apply(t.Context(), with))
			wait.Until(t, "the session is up over a connection that GoBGP was handed", func() bool {
				if session(s, r.addr.String()).State != bgp.Established {
					return false
				}
				if handed, _ := s.Handed(r.addr.String()); !handed.IsZero() {
					return true
				}
				// GoBGP's own connection was faster, on a machine under load.
				must(t, s.Apply(t.Context(), without))
				must(t, s.Apply(t.Context(), with))
				return false
			})
		})
	}
}

// After a router accepts the connection and closes it, as during its start, the speaker retries without GoBGP's idle
// time.
func TestTriesAgainAfterAHangUp(t *testing.T) {
	const address = "127.0.7.3"
	listener, err := net.Listen("tcp", address+":11790")
	must(t, err)
	defer listener.Close()
	hungUp := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = conn.Read(make([]byte, 19)) // the header of the OPEN
			conn.Close()
		}
		listener.Close() // later connections are refused
		hungUp <- err
	}()
	s := newServer(t)
	peer := (&router{addr: netip.MustParseAddr(address), port: 11790}).peer(64500)
	must(t, s.Apply(t.Context(), config(peer)))
	must(t, <-hungUp)
	wait.Until(t, "the peer is added to GoBGP again", func() bool {
		handed, added := s.Handed(address)
		if handed.IsZero() {
			t.Fatal("GoBGP was handed no connection")
		}
		if added.Sub(handed) >= bgp.StuckAfter {
			t.Fatal("the peer was retried only after the limit for stuck attempts")
		}
		return added.After(handed)
	})
}
