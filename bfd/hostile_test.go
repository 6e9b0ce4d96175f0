package bfd_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/herald-vip/herald/bfd"
)

// sender is a program in a host that sends packets of its own making.
type sender struct {
	t *testing.T
	c *net.UDPConn
}

func (h *host) sender(to string, ttl int) *sender {
	h.t.Helper()
	s := &sender{t: h.t}
	must(h.t, h.do(func() (err error) {
		s.c, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(to), Port: 3784})
		return err
	}))
	h.t.Cleanup(func() { s.c.Close() })
	must(h.t, ipv4.NewConn(s.c).SetTTL(ttl))
	return s
}

// send sends a packet, unless the kernel has no buffer for it.
func (s *sender) send(p bfd.Packet) {
	var b [24]byte
	p.Encode(&b)
	_, _ = s.c.Write(b[:])
}

// Packets from the peer's address that are not the peer's are counted and change nothing.
func TestSpoofedPackets(t *testing.T) {
	t.Parallel()
	a, b := wire(t)
	sa, sb := a.speaker(), b.speaker()
	sa.keep(to("10.0.0.2"))
	sb.keep(to("10.0.0.1"))
	sa.up("10.0.0.2")
	near, far := b.sender("10.0.0.1", 255), b.sender("10.0.0.1", 254)
	spoof := bfd.Packet{State: bfd.Down, Multiplier: 3, MyDiscriminator: 7, DesiredMinTx: time.Second, RequiredMinRx: time.Second}
	named := spoof
	named.YourDiscriminator = 7
	for _, send := range []func(){
		func() { far.send(spoof) },
		func() { near.send(spoof) },
		func() { near.send(named) },
		func() { _, _ = near.c.Write([]byte("not a packet")) },
		func() { _, _ = near.c.Write(nil) },
	} {
		before := sa.status("10.0.0.2").Discarded
		sa.becomes("10.0.0.2", "discarded", func(st bfd.Status) bool {
			if st.Discarded > before {
				return true
			}
			send()
			return false
		})
	}
	if st := sa.status("10.0.0.2"); st.State != bfd.Up || st.Downs != 0 || st.DetectionTime != detectionTime {
		t.Errorf("after the spoofs: %+v", st)
	}
}

// Packets that do not come from where they should are told apart from silence.
func TestLowTTL(t *testing.T) {
	t.Parallel()
	a, b := wire(t)
	sa := a.speaker()
	sa.keep(to("10.0.0.2"))
	far := b.sender("10.0.0.1", 64)
	sa.becomes("10.0.0.2", "the reason", func(st bfd.Status) bool {
		far.send(bfd.Packet{State: bfd.Down, Multiplier: 3, MyDiscriminator: 7})
		return st.State == bfd.Down && strings.Contains(st.Reason, "arrive with a TTL of 64 where at least 255 is required")
	})
}

// fake is a peer of a's speaker that the test plays, at 10.0.0.2.
func fake(t *testing.T) (*speaker, *sender, bfd.Packet) {
	a, b := wire(t)
	sa := a.speaker()
	sa.keep(to("10.0.0.2"))
	var listener *net.UDPConn
	must(t, b.do(func() (err error) { listener, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 3784}); return err }))
	t.Cleanup(func() { listener.Close() })
	must(t, listener.SetReadDeadline(time.Now().Add(patience)))
	var first bfd.Packet
	buffer := make([]byte, 64)
	n, err := listener.Read(buffer)
	must(t, err)
	must(t, first.Decode(buffer[:n]))
	return sa, b.sender("10.0.0.1", 255), bfd.Packet{
		State: bfd.Up, Multiplier: multiplier, MyDiscriminator: 7, YourDiscriminator: first.MyDiscriminator,
		DesiredMinTx: interval, RequiredMinRx: interval,
	}
}

// A process that was not run for longer than the detection time reads what has
// arrived meanwhile before it takes the peer for dead.
func TestStallIsNoSilence(t *testing.T) {
	t.Parallel()
	sa, peer, packet := fake(t)
	hello := packet
	hello.State = bfd.Init
	peer.send(hello)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				peer.send(packet)
			}
		}
	}()
	sa.becomes("10.0.0.2", "up", func(st bfd.Status) bool { return st.State == bfd.Up })
	for range 3 {
		began := time.Now()
		must(t, sa.Stall(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for time.Since(began) < 2*detectionTime {
				<-tick.C
			}
		}))
		if st := sa.status("10.0.0.2"); st.State != bfd.Up || st.Downs != 0 {
			t.Fatalf("after a stall: %+v", st)
		}
	}
	close(stop)
	<-stopped
	sa.becomes("10.0.0.2", "down, when the peer is silent", func(st bfd.Status) bool { return st.State == bfd.Down && st.Failed })
}

// A flood does not keep the server from its other sessions, nor from noticing
// that the flooded session is dead.
func TestFlood(t *testing.T) {
	a, b := wire(t)
	sa, sb := a.speaker(), b.speaker()
	sa.keep(to("10.0.0.2"), to("fd00::2"))
	sb.keep(to("10.0.0.1"), to("fd00::1"))
	sa.up("10.0.0.2")
	sa.up("fd00::2")
	flood := b.sender("10.0.0.1", 255)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				flood.send(bfd.Packet{State: bfd.Down, Poll: true, Multiplier: 1, MyDiscriminator: 9})
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	sa.becomes("10.0.0.2", "flooded", func(st bfd.Status) bool { return st.Discarded > 10_000 })
	sb.keep(to("fd00::1")) // which says goodbye, if that gets through
	sa.becomes("10.0.0.2", "down", func(st bfd.Status) bool { return st.State != bfd.Up })
	sa.becomes("fd00::2", "up", func(st bfd.Status) bool { return st.State == bfd.Up })
}
