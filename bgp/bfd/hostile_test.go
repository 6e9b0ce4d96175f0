package bfd_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/bgp/bfd"
)

// sender sends arbitrary packets from a host.
type sender struct {
	t    testing.TB
	host *host
	c    *net.UDPConn
}

func (h *host) sender(dst string, ttl int) *sender {
	h.T.Helper()
	s := &sender{t: h.T, host: h}
	h.Must(h.do(func() (err error) {
		s.c, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(dst)))
		return err
	}))
	h.T.Cleanup(func() { s.c.Close() })
	h.Must(ipv4.NewConn(s.c).SetTTL(ttl))
	return s
}

// send sends a packet, unless the kernel has no buffer for it.
func (s *sender) send(p bfd.Packet) {
	var b [24]byte
	p.Encode(&b)
	_, _ = s.c.Write(b[:])
}

// Spoofed packets with the peer's source address are counted and change nothing.
func TestSpoofedPackets(t *testing.T) {
	t.Parallel()
	sa, sb := joined(t, "10.0.0.2")
	near, far := sb.sender("10.0.0.1:3784", 255), sb.sender("10.0.0.1:3784", 254)
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
	if st := sa.status("10.0.0.2"); st.State != bfd.Up || st.Downs != 0 || time.Duration(st.DetectionTime) != detectionTime {
		t.Errorf("after the spoofs: %+v", st)
	}
}

// Packets with a low TTL, from a sender too far away, have a reason of their own.
func TestLowTTL(t *testing.T) {
	t.Parallel()
	a, b := wire(t)
	sa := a.speaker()
	sa.keep(dst("10.0.0.2"))
	far := b.sender("10.0.0.1:3784", 64)
	sa.becomes("10.0.0.2", "the reason", func(st bfd.Status) bool {
		far.send(bfd.Packet{State: bfd.Down, Multiplier: 3, MyDiscriminator: 7})
		return st.State == bfd.Down && strings.Contains(st.Reason, "arrive with a TTL of 64, but at least 255 is required")
	})
}

// fake is a peer at 10.0.0.2 of a speaker at 10.0.0.1. The test sends and receives its packets.
type fake struct {
	*sender
	speaker *speaker
	// packet is a packet of the session with the speaker, in the state Up.
	packet   bfd.Packet
	listener *net.UDPConn
}

func newFake(t *testing.T) *fake {
	a, b := wire(t)
	f := &fake{sender: b.sender("10.0.0.1:3784", 255), speaker: a.speaker()}
	must(t, b.do(func() (err error) { f.listener, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 3784}); return err }))
	t.Cleanup(func() { f.listener.Close() })
	must(t, f.listener.SetReadDeadline(time.Now().Add(patience)))
	multihop := dst("10.7.0.1") // no such host: it only opens the other port
	multihop.Multihop, multihop.Local = true, netip.MustParseAddr("10.0.0.1")
	f.speaker.keep(dst("10.0.0.2"), multihop)
	f.packet = bfd.Packet{
		State: bfd.Up, Multiplier: multiplier, MyDiscriminator: 7, YourDiscriminator: f.receive().MyDiscriminator,
		DesiredMinTx: interval, RequiredMinRx: interval,
	}
	return f
}

// receive returns the next packet of the speaker.
func (f *fake) receive() (p bfd.Packet) {
	buffer := make([]byte, 64)
	n, err := f.listener.Read(buffer)
	must(f.t, err)
	must(f.t, p.Decode(buffer[:n]))
	return p
}

// say sends a packet of the session in this state.
func (f *fake) say(s bfd.State) {
	p := f.packet
	p.State = s
	f.send(p)
}

// A packet that names the session but arrives at the wrong port is discarded.
func TestOtherPort(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	other := f.host.sender("10.0.0.1:4784", 255)
	f.speaker.becomes("10.0.0.2", "discarded", func(st bfd.Status) bool {
		hello := f.packet
		hello.State = bfd.Init
		other.send(hello)
		return st.Discarded > 3
	})
	if st := f.speaker.status("10.0.0.2"); st.State != bfd.Down || st.In != 0 {
		t.Errorf("after packets to the other port: %+v", st)
	}
}

// A removed session announces its shutdown three times, as a packet may be lost.
func TestGoodbyes(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.say(bfd.Init)
	f.speaker.becomes("10.0.0.2", "up", func(st bfd.Status) bool { return st.State == bfd.Up })
	f.speaker.keep()
	for goodbyes := 0; goodbyes < 3; {
		if p := f.receive(); p.State == bfd.AdminDown && p.Diagnostic == bfd.AdministrativelyDown && p.YourDiscriminator == 7 {
			goodbyes++
		}
	}
}

// A process that was not scheduled for longer than the detection time reads the queued packets before it declares
// the peer dead.
func TestStallDoesNotExpireSessions(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	sa := f.speaker
	f.say(bfd.Init)
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
				f.say(bfd.Up)
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
	sa.becomes("10.0.0.2", "down after the last packet of the peer", func(st bfd.Status) bool { return st.State == bfd.Down && st.Failed })
}

// During a flood the server still serves its other sessions, and notices that the flooded session is dead.
func TestFlood(t *testing.T) {
	sa, sb := joined(t, "10.0.0.2", "fd00::2")
	flood := sb.sender("10.0.0.1:3784", 255)
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
	sb.keep(dst("fd00::1")) // its goodbye may be lost in the flood
	sa.becomes("10.0.0.2", "down", func(st bfd.Status) bool { return st.State != bfd.Up })
	sa.becomes("fd00::2", "up", func(st bfd.Status) bool { return st.State == bfd.Up })
}

// Packets follow RFC 5881 section 4: their source port is in the range and belongs to one session, and their TTL is
// 255. They are marked as network control, so that a busy router drops others first.
func TestOnTheWire(t *testing.T) {
	t.Parallel()
	a, b := wire(t)
	var listener *net.UDPConn
	must(t, b.do(func() (err error) {
		listener, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 3784})
		if err != nil {
			return err
		}
		raw, err := listener.SyscallConn()
		if err != nil {
			return err
		}
		return errors.Join(raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1), unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTTL, 1))
		}), err)
	}))
	defer listener.Close()
	b.Add("eth0", "10.0.0.22/24")
	sa := a.speaker()
	sa.keep(dst("10.0.0.2"), dst("10.0.0.22"))
	ports := make(map[int]bool)
	must(t, listener.SetReadDeadline(time.Now().Add(patience)))
	for len(ports) < 2 {
		payload, control := make([]byte, 100), make([]byte, 100)
		n, oob, _, from, err := listener.ReadMsgUDP(payload, control)
		must(t, err)
		var p bfd.Packet
		must(t, p.Decode(payload[:n]))
		if n != 24 || from.Port < 49152 || p.MyDiscriminator == 0 {
			t.Errorf("%d octets from port %d: %+v", n, from.Port, p)
		}
		messages, err := unix.ParseSocketControlMessage(control[:oob])
		must(t, err)
		got := make(map[int32]byte)
		for _, m := range messages {
			got[m.Header.Type] = m.Data[0] // the TTL's lowest of four octets, and the only octet of the TOS
		}
		if got[unix.IP_TTL] != 255 || got[unix.IP_TOS] != 0xc0 {
			t.Errorf("TTL %d, TOS %#x", got[unix.IP_TTL], got[unix.IP_TOS])
		}
		ports[from.Port] = true
	}
}
