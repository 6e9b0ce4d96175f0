package health

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
)

func ping(ctx context.Context, addr string, dial dialFunc) outcome {
	p, _ := (&ICMP{Address: netip.MustParseAddr(addr)}).prober(&Monitor{dial: dial}, time.Second)
	return p.probe(ctx)
}

func TestICMP(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if out := ping(ctx, addr, new(net.Dialer).DialContext); out.kind != passed || !strings.HasPrefix(out.reason, "ping "+addr+": reply in ") {
			t.Errorf("%v %q", out.kind, out.reason)
		}
	}
	refuse := func(err error) dialFunc {
		return func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", err)}
		}
	}
	for _, tt := range []struct {
		err    error
		own    bool
		reason string
	}{
		{syscall.EPERM, true, "ping 192.0.2.1: check's own: no raw socket: give the process CAP_NET_RAW"},
		{syscall.ENETUNREACH, false, "ping 192.0.2.1: network is unreachable"},
		{syscall.EMFILE, true, "ping 192.0.2.1: check's own: too many open files"},
		{context.DeadlineExceeded, false, "ping 192.0.2.1: no reply within 1s"},
	} {
		if out := ping(t.Context(), "192.0.2.1", refuse(tt.err)); out.kind != failed || out.own != tt.own || out.reason != tt.reason {
			t.Errorf("%v: %v %q, want %q", tt.err, out.own, out.reason, tt.reason)
		}
	}
}

// A silent host fails at the deadline. The request, which this host receives as well, is not taken for a reply.
func TestICMPSilence(t *testing.T) {
	ns, _ := netns.New(t)
	must.Do(t, netns.In(ns, func() error {
		for _, ignore := range []string{"ipv4/icmp_echo_ignore_all", "ipv6/icmp/echo_ignore_all"} {
			if err := os.WriteFile("/proc/sys/net/"+ignore, []byte("1"), 0); err != nil {
				return err
			}
		}
		for _, addr := range []string{"127.0.0.1", "::1"} {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			want := "ping " + addr + ": no reply within 1s"
			if out := ping(ctx, addr, new(net.Dialer).DialContext); out.kind != failed || out.own || !out.slow || out.reason != want {
				t.Errorf("%v %q, want %q", out.kind, out.reason, want)
			}
		}
		return nil
	}))
}

// Of all packets that a raw socket receives, only the reply to the request counts.
func FuzzEchoReply(f *testing.F) {
	echo := &icmp.Echo{ID: 0x1234, Seq: 7, Data: []byte("0123456789abcdef")}
	reply := func(kind icmp.Type, e icmp.Echo) []byte {
		return must.Get[[]byte](f)((&icmp.Message{Type: kind, Body: &e}).Marshal(nil))
	}
	four, six := reply(ipv4.ICMPTypeEchoReply, *echo), reply(ipv6.ICMPTypeEchoReply, *echo)
	if !isReply(four, false, echo) || !isReply(six, true, echo) || isReply(four, true, echo) || isReply(six, false, echo) {
		f.Error("the reply is not known")
	}
	for _, other := range [][]byte{
		reply(ipv4.ICMPTypeEcho, *echo),
		reply(ipv4.ICMPTypeEchoReply, icmp.Echo{ID: 0x1235, Seq: 7, Data: echo.Data}),
		reply(ipv4.ICMPTypeEchoReply, icmp.Echo{ID: 0x1234, Seq: 6, Data: echo.Data}),
		reply(ipv4.ICMPTypeEchoReply, icmp.Echo{ID: 0x1234, Seq: 7, Data: []byte("0123456789abcdeF")}),
		four[:len(four)-1], four[:7], nil,
		must.Get[[]byte](f)((&icmp.Message{Type: ipv4.ICMPTypeDestinationUnreachable, Body: &icmp.DstUnreach{Data: four}}).Marshal(nil)),
	} {
		if isReply(other, false, echo) {
			f.Errorf("%x was taken for the reply", other)
		}
		f.Add(other, false)
		f.Add(other, true)
	}
	f.Add(four, false)
	f.Add(six, true)
	f.Fuzz(func(t *testing.T, packet []byte, six bool) {
		if !isReply(packet, six, echo) {
			return
		}
		protocol := unix.IPPROTO_ICMP
		if six {
			protocol = unix.IPPROTO_ICMPV6
		}
		if m, err := icmp.ParseMessage(protocol, packet); err != nil || len(packet) != len(four) || m.Code > 255 {
			t.Errorf("%x was taken for the reply", packet)
		}
	})
}
