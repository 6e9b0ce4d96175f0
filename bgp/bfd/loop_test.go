package bfd

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"
)

// A session that is up allocates nothing: garbage collection would delay packets.
func TestNoGarbage(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		now := time.Now()
		c := Config{Peer: netip.MustParseAddr(address), Interval: time.Minute, Multiplier: 3, Multihop: true, Local: netip.MustParseAddr(address)}
		l := newLoop(-1, newReporter(slog.New(slog.DiscardHandler), nil), func(f func() error) error { return f() })
		s := newSession(c, mine, now)
		l.sessions[c.Peer] = s
		socket, err := listen(endpoint{v6: c.Peer.Is6()}) // on any port
		if err != nil {
			t.Fatal(err)
		}
		defer socket.close()
		defer s.close()
		l.sockets[c.endpoint()] = socket
		at, err := portOf(socket)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.Peer, at)))
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()

		var b [packetLen]byte
		send := func(p *Packet) {
			p.Encode(&b)
			if _, err := peer.Write(b[:]); err != nil {
				t.Fatal(err)
			}
			l.drain(socket)
			l.act(time.Now())
		}
		send(fromPeer(Init))
		if s.state != Up || s.out == 0 {
			t.Fatalf("%s: %+v", address, s.status())
		}
		before := s.in
		polling := fromPeer(Up, poll) // the session answers it
		if n := testing.AllocsPerRun(100, func() { send(polling) }); n != 0 {
			t.Errorf("%s: a packet and its answer cost %v allocations", address, n)
		}
		if s.in != before+101 {
			t.Errorf("%s: %d of 101 packets taken", address, s.in-before)
		}
	}
}
