package transport

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// listen opens sockets at own that admit other.
func listen(t *testing.T, own, other netip.AddrPort) (*sockets, *Admission) {
	t.Helper()
	a := NewAdmission(slog.New(slog.DiscardHandler), false)
	a.Replace(map[string]netip.AddrPort{"m1": own, "m2": other}, "m1")
	s, err := Listen(own, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return s.(*sockets), a
}

func TestSocketsCarryPackets(t *testing.T) {
	at := nettest.Loopback(3)
	local, admission := listen(t, at[0], at[1])
	two, _ := listen(t, at[1], at[0])
	unknown, _ := listen(t, at[2], at[0])
	for _, from := range []*sockets{unknown, two} {
		if _, err := from.WriteTo([]byte("from "+from.local.String()), at[0].String()); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the packet is counted or there", func() bool { return from == two || admission.Unknown.Load() == 1 })
	}
	p := <-local.PacketCh()
	if string(p.Buf) != "from "+at[1].String() || p.From.String() != at[1].String() || p.Timestamp.IsZero() {
		t.Fatalf("got %q from %v", p.Buf, p.From)
	}
	if n := admission.Unknown.Load(); n != 1 {
		t.Fatalf("counted %d unknown sources", n)
	}
}

func TestSocketsCarryConnections(t *testing.T) {
	at := nettest.Loopback(3)
	local, admission := listen(t, at[0], at[1])
	two, _ := listen(t, at[1], at[0])
	unknown, _ := listen(t, at[2], at[0])

	out, err := unknown.DialTimeout(at[0].String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err == nil {
		t.Fatal("a message without an address is answered")
	}
	if n := admission.Unknown.Load(); n != 1 {
		t.Fatalf("counted %d unknown sources", n)
	}

	out, err = two.DialTimeout(at[0].String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	in := <-local.StreamCh()
	if host := in.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); host != at[1].Addr() {
		t.Fatalf("the connection comes from %v", host)
	}
	go func() {
		_, _ = out.Write(make([]byte, maxStream+1))
		_ = out.Close()
	}()
	if n, err := io.Copy(io.Discard, in); n != maxStream || err != io.ErrUnexpectedEOF {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	must.Do(t, in.Close())
}

func TestSocketsBoundConnections(t *testing.T) {
	at := nettest.Loopback(2)
	local, _ := listen(t, at[0], at[1])
	config := net.Dialer{LocalAddr: &net.TCPAddr{IP: at[1].Addr().AsSlice()}}
	for range maxStreams {
		conn, err := config.Dial("tcp", at[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		<-local.StreamCh()
	}
	conn, err := config.Dial("tcp", at[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("a connection beyond the limit is not closed")
	}
	must.Do(t, local.Shutdown())
	if n := len(local.open); n != 0 {
		t.Fatalf("%d connections outlive their transport", n)
	}
}

func TestSocketsNeedNotHaveTheirAddressYet(t *testing.T) {
	s, _ := listen(t, ap("192.0.2.1:7946"), ap("192.0.2.2:7946"))
	if ip, port, err := s.FinalAdvertiseAddr("", 0); err != nil || port != 7946 || ip.String() != "192.0.2.1" {
		t.Fatal(ip, port, err)
	}
}

func TestSocketsShareNoAddress(t *testing.T) {
	at := nettest.Loopback(1)
	listen(t, at[0], ap("192.0.2.2:7946"))
	if _, err := Listen(at[0], NewAdmission(slog.New(slog.DiscardHandler), false)); err == nil {
		t.Fatal("two listen at one address")
	}
}
