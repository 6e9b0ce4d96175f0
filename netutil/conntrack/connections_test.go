package conntrack_test

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"github.com/herald-vip/herald/netutil/conntrack"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/testenv/nettest"
)

// translation directs connections to the first two addresses to a server. Connections to the third get no
// answer.
const translation = `table inet t {
	chain output { type nat hook output priority -100;
		ip daddr 127.0.0.9 tcp dport 1000 dnat ip to 127.0.0.2:2000
		ip6 daddr fd00::9 tcp dport 1000 dnat ip6 to [fd00::2]:2000
		ip daddr 127.0.0.8 tcp dport 1000 dnat ip to 127.0.0.3:2000
	}
	chain input { type filter hook input priority 0; ip daddr 127.0.0.3 drop; }
}`

// Translated finds connections with a translated destination among others. End ends both of their ends at once,
// and the entries of half-open ones.
func TestEndConnections(t *testing.T) {
	h := nettest.NewHost(t)
	h.Add("lo", "fd00::2/128")
	h.Add("lo", "fd00::9/128")
	h.In(func() {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(translation)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("nft: %v: %s", err, out)
		}
		for dst, server := range map[string]string{"127.0.0.9:1000": "127.0.0.2:2000", "[fd00::9]:1000": "[fd00::2]:2000"} {
			dst, server := netip.MustParseAddrPort(dst), netip.MustParseAddrPort(server)
			l, err := net.Listen("tcp", server.String())
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			meet := func(at netip.AddrPort) (client, server net.Conn) {
				t.Helper()
				client, err := net.Dial("tcp", at.String())
				if err == nil {
					server, err = l.Accept()
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
				return client, server
			}
			client, served := meet(dst)
			direct, _ := meet(server)
			for _, at := range []netip.AddrPort{dst, netip.AddrPortFrom(dst.Addr(), 0)} {
				found, err := conntrack.Translated(at)
				if err != nil || len(found) != 1 {
					t.Fatalf("Translated(%s): %v, error %v; want one connection", at, found, err)
				}
				c := found[0]
				if c.To != dst || c.Server != server || c.Client.String() != client.LocalAddr().String() || c.Phase != conntrack.Established {
					t.Errorf("found %+v, want %s to %s at %s", c, client.LocalAddr(), dst, server)
				}
			}
			for _, other := range []netip.AddrPort{netip.AddrPortFrom(dst.Addr(), 1001), server} {
				if found, err := conntrack.Translated(other); err != nil || len(found) != 0 {
					t.Errorf("Translated(%s): %v, error %v; want none", other, found, err)
				}
			}
			read := make(chan error)
			go func() { _, err := client.Read(make([]byte, 1)); read <- err }()
			found, err := conntrack.Translated(dst)
			if err == nil {
				err = conntrack.End(found)
			}
			if err == nil {
				err = conntrack.End(found) // again: ended connections are no error
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := <-read; !errors.Is(err, syscall.ECONNABORTED) {
				t.Errorf("client read: error %v, want ECONNABORTED", err)
			}
			_ = served.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := served.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("server read: error %v, want ECONNRESET", err)
			}
			if found, err := conntrack.Translated(dst); err != nil || len(found) != 0 {
				t.Errorf("left after End: %v, error %v", found, err)
			}
			if _, err := io.WriteString(direct, "hello"); err != nil {
				t.Errorf("write on another connection: %v", err)
			}
		}
		opening := netip.MustParseAddrPort("127.0.0.8:1000")
		if _, err := net.DialTimeout("tcp", opening.String(), 100*time.Millisecond); err == nil {
			t.Error("connected to an address that does not answer")
		}
		found, err := conntrack.Translated(opening)
		if err != nil || len(found) != 1 || found[0].Phase != conntrack.Opening {
			t.Errorf("half-open connection: %+v, error %v", found, err)
		}
		if err := conntrack.End(found); err != nil {
			t.Error(err)
		}
	})
}

// Held counts connections of remote clients with sockets of either family, by address. It ignores clients on the host itself.
func TestHeld(t *testing.T) {
	h, elsewhere := nettest.NewHost(t), nettest.NewHost(t)
	h.Must(h.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(elsewhere.NS)}))
	h.SetUp("eth0")
	elsewhere.SetUp("eth0")
	h.Add("eth0", "10.0.0.1/24")
	elsewhere.Add("eth0", "10.0.0.2/24")
	h.Add("eth0", "fd00::1/64")
	elsewhere.Add("eth0", "fd00::2/64")
	h.Add("lo", "10.0.0.9/32")
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	want := map[netip.Addr]int{v4: 0, v6: 0}
	expect := func(after string) {
		t.Helper()
		h.In(func() {
			if held, err := conntrack.Held(v4, v6); err != nil || !maps.Equal(held, want) {
				t.Errorf("after %s: held %v, error %v; want %v", after, held, err, want)
			}
		})
	}
	for i, at := range []string{"10.0.0.1:3000", "[::]:3001", "[fd00::1]:3002", "10.0.0.9:3003"} {
		var l net.Listener
		h.In(func() {
			var err error
			l, err = net.Listen("tcp", at)
			h.Must(err)
		})
		defer l.Close()
		meet := func(from *nettest.Host, source net.Addr, dst netip.Addr) {
			from.In(func() {
				client, err := (&net.Dialer{LocalAddr: source}).Dial("tcp", netip.AddrPortFrom(dst, uint16(3000+i)).String())
				from.Must(err)
				t.Cleanup(func() { _ = client.Close() })
			})
			served, err := l.Accept()
			h.Must(err)
			t.Cleanup(func() { _ = served.Close() })
		}
		expect("listening at " + at)
		switch at {
		case "10.0.0.1:3000", "[::]:3001":
			meet(elsewhere, nil, v4)
			want[v4]++
			expect("an IPv4 client of " + at)
			meet(h, nil, v4)
			meet(h, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9)}, v4)
		case "[fd00::1]:3002":
			meet(elsewhere, nil, v6)
			want[v6]++
			expect("an IPv6 client of " + at)
			meet(h, nil, v6)
		default:
			meet(elsewhere, nil, netip.MustParseAddr("10.0.0.9"))
		}
		expect("clients on the host of " + at)
	}
}

func TestLinkTo(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "eth1")
	h.Add("eth0", "10.8.0.1/24")
	h.Add("eth0", "fd00:8::1/64")
	h.In(func() {
		for addr, want := range map[string]string{"10.8.0.2": "eth0", "fd00:8::2": "eth0", "fe80::1%eth1": "eth1", "10.8.0.1": "lo", "127.0.0.1": "lo"} {
			if got, err := link.To(netip.MustParseAddr(addr)); err != nil || got != want {
				t.Errorf("link.To(%s): %q, error %v; want %s", addr, got, err, want)
			}
		}
		if _, err := link.To(netip.MustParseAddr("10.9.0.1")); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("link.To without a route: error %v, want ENETUNREACH", err)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
