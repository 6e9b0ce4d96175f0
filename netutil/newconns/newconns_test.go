package newconns

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	vip4 = netip.MustParseAddr("10.99.0.10")
	vip6 = netip.MustParseAddr("fd00:99::10")
)

// site is a node with VIPs and a client on another host.
type site struct{ node, client *nettest.Host }

func newSite(t *testing.T) site {
	s := site{nettest.NewHost(t), nettest.NewHost(t)}
	s.node.Connect("eth0", s.client, "away")
	for _, a := range []string{vip4.String() + "/32", vip6.String() + "/128"} {
		s.node.Add("lo", a)
	}
	for _, hosts := range []struct{ node, client, vip string }{
		{"10.0.0.1/24", "10.0.0.2/24", vip4.String() + "/32"}, {"fd00::1/64", "fd00::2/64", vip6.String() + "/128"},
	} {
		s.node.Add("eth0", hosts.node)
		s.client.Add("away", hosts.client)
		via, _, _ := strings.Cut(hosts.node, "/")
		s.client.Route(hosts.vip, "away", via)
	}
	return s
}

// connect opens n connections from a host to an address.
func (s site) connect(t *testing.T, from *nettest.Host, dst netip.Addr, n int) {
	t.Helper()
	var server net.Listener
	s.node.In(func() {
		var err error
		if server, err = net.Listen("tcp", netip.AddrPortFrom(dst, 0).String()); err != nil {
			t.Error(err)
		}
	})
	defer server.Close()
	from.In(func() {
		for range n {
			c, err := net.Dial("tcp", server.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
		}
	})
}

// Count counts remote connections per VIP, and continues after other programs change the table.
func TestCount(t *testing.T) {
	s := newSite(t)
	c := New(slog.New(slog.DiscardHandler), int(s.node.NS))
	defer c.socket.Close()
	expect := func(when string, want4, want6 uint64) {
		t.Helper()
		if err := c.look(time.Now()); err != nil {
			t.Fatal(err)
		}
		for addr, want := range map[netip.Addr]uint64{vip4: want4, vip6: want6} {
			if n, known := c.Count(addr); !known || n.Arrived != want || n.Last.IsZero() != (want == 0) {
				t.Errorf("%s: count of %s is %+v, known %v, want %d", when, addr, n, known, want)
			}
		}
	}
	if _, known := c.Count(vip4); known {
		t.Error("Count knows an address before Set")
	}
	c.Set([]netip.Addr{vip4, vip6})
	expect("before any connection", 0, 0)
	s.connect(t, s.client, vip4, 3)
	expect("after three connections", 3, 0)
	s.connect(t, s.client, vip6, 2)
	s.connect(t, s.node, vip4, 5) // local: not counted
	s.connect(t, s.client, netip.MustParseAddr("10.0.0.1"), 1)
	expect("after two more by IPv6", 3, 2)
	s.node.NFT("flush ruleset")
	expect("table flushed", 3, 2)
	s.connect(t, s.client, vip4, 1)
	expect("table restored", 4, 2)
	began, _ := c.Count(vip4)
	s.node.NFT("add table inet herald_arrivals { flags dormant; }")
	s.connect(t, s.client, vip4, 1) // not counted while the table is dormant
	expect("table dormant", 4, 2)
	if n, _ := c.Count(vip4); !n.Since.After(began.Since) {
		t.Errorf("Since is %v, as before the gap", n.Since)
	}
	other := netip.MustParseAddr("10.99.0.11")
	c.Set([]netip.Addr{vip6, vip4, other})
	expect("after adding an address", 4, 2)
	s.connect(t, s.client, vip6, 1)
	expect("after one more connection", 4, 3)
	s.node.NFT("add rule inet herald_arrivals arrivals ip daddr 10.99.0.10 counter packets 1000 bytes 0 comment \"10.99.0.10\"")
	expect("foreign counting rule", 4, 3)
	s.node.Remove("lo", vip4.String()+"/32")
	s.client.In(func() { // forwarded packets are not counted
		if c, err := net.DialTimeout("tcp", vip4.String()+":80", 300*time.Millisecond); err == nil {
			_ = c.Close()
		}
	})
	expect("address removed from the node", 4, 3)
	c.Set([]netip.Addr{vip4})
	if _, known := c.Count(vip6); known {
		t.Error("Count still knows an address after its removal")
	}
}

// A count continues after another program resets the kernel's counter, as `nft reset rules` does.
func TestCounterReset(t *testing.T) {
	c := New(slog.New(slog.DiscardHandler), 0)
	c.Set([]netip.Addr{vip4})
	c.count(time.Unix(1, 0))
	for _, packets := range []uint64{7, 7, 2, 3} {
		c.note([]ruleset.Rule{{Chain: prerouting, Comment: "SYN from another host"}, {Chain: arrivals, Comment: vip4.String(), Packets: packets}}, time.Unix(int64(packets), 0))
	}
	if n, _ := c.Count(vip4); n != (Count{Arrived: 10, Since: time.Unix(1, 0), Last: time.Unix(3, 0)}) {
		t.Errorf("%+v", n)
	}
}

// Counts are unknown while nftables fails, and continue afterwards.
func TestFailing(t *testing.T) {
	s := newSite(t)
	c := New(slog.New(slog.DiscardHandler), int(s.node.NS))
	c.Set([]netip.Addr{vip4})
	c.counts[vip4] = Count{Arrived: 7, Since: time.Unix(1, 0), Last: time.Unix(5, 0)}
	c.socket.Timeout = -time.Second // makes every call fail
	if err := c.round(false); err == nil {
		t.Error("no error")
	}
	if _, known := c.Count(vip4); known {
		t.Error("count known while nftables fails")
	}
	c.socket.Timeout = 0
	defer c.socket.Close()
	if err := c.look(time.Unix(10, 0)); err != nil {
		t.Fatal(err)
	}
	if n, known := c.Count(vip4); !known || n != (Count{Arrived: 7, Since: time.Unix(10, 0), Last: time.Unix(5, 0)}) {
		t.Errorf("after the failure: %+v, known %v", n, known)
	}
}

// Run makes the table and removes it at the end.
func TestRun(t *testing.T) {
	s := newSite(t)
	c := New(slog.New(slog.DiscardHandler), int(s.node.NS))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	c.Set([]netip.Addr{vip4})
	wait.Until(t, "the table exists", func() bool { return strings.Contains(s.node.NFT("list ruleset"), "herald_arrivals") })
	stop()
	running.Wait()
	if out := s.node.NFT("list ruleset"); out != "" {
		t.Errorf("tables left behind:\n%s", out)
	}
}

// Other programs may save the table and load it again.
func TestReload(t *testing.T) {
	s := newSite(t)
	c := New(slog.New(slog.DiscardHandler), int(s.node.NS))
	defer c.socket.Close()
	addrs := []netip.Addr{vip4, vip6}
	s.node.Must(c.socket.Make(wanted(addrs)))
	s.node.Reload()
	if _, ok, err := c.socket.Intact(wanted(addrs)); !ok || err != nil {
		t.Errorf("intact %t, error %v", ok, err)
	}
}
