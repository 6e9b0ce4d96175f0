package netutil_test

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	namespace "github.com/herald-vip/herald/testenv/netns"
)

// host is a fresh network namespace and an administrator in it, who works with
// another netlink library than the package under test.
type host struct {
	t  testing.TB
	ns netns.NsHandle
	nl *netlink.Handle
}

// newHost makes a namespace with lo up.
func newHost(t testing.TB) *host {
	t.Helper()
	ns, nl := namespace.New(t)
	return &host{t: t, ns: ns, nl: nl}
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// in runs f on a thread inside the namespace.
func (h *host) in(f func()) {
	h.t.Helper()
	h.must(namespace.In(h.ns, func() error { f(); return nil }))
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.nl.LinkByName(name)
	h.must(err)
	return l
}

func (h *host) setUp(name string)   { h.t.Helper(); h.must(h.nl.LinkSetUp(h.link(name))) }
func (h *host) setDown(name string) { h.t.Helper(); h.must(h.nl.LinkSetDown(h.link(name))) }

// addVeth makes a pair of links that are up.
func (h *host) addVeth(name, peer string) {
	h.t.Helper()
	h.must(h.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}))
	h.setUp(name)
	h.setUp(peer)
}

func parse(t testing.TB, cidr string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		t.Fatal(err)
	}
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD // usable at once
	}
	return a
}

func (h *host) add(link, cidr string) {
	h.t.Helper()
	h.must(h.nl.AddrAdd(h.link(link), parse(h.t, cidr)))
}
func (h *host) remove(link, cidr string) {
	h.t.Helper()
	h.must(h.nl.AddrDel(h.link(link), parse(h.t, cidr)))
}

// route adds a route, directly on the link if via is empty.
func (h *host) route(dst, link, via string) {
	h.t.Helper()
	to, err := netlink.ParseIPNet(dst)
	h.must(err)
	h.must(h.nl.RouteAdd(&netlink.Route{LinkIndex: h.link(link).Attrs().Index, Dst: to, Gw: net.ParseIP(via)}))
}

// find returns the link's entry of addr, or nil. No link has none.
func (h *host) find(link string, addr netip.Addr) *netlink.Addr {
	h.t.Helper()
	l, err := h.nl.LinkByName(link)
	if err != nil {
		return nil
	}
	addrs, err := h.nl.AddrList(l, netlink.FAMILY_ALL)
	h.must(err)
	for _, a := range addrs {
		if ip, _ := netip.AddrFromSlice(a.IP); ip.Unmap() == addr {
			return &a
		}
	}
	return nil
}

// patience is how long a test waits for what is to come at once, or as soon as an address expires.
const patience = 15 * time.Second

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case v, ok := <-from:
		if ok {
			return v
		}
		t.Fatal("closed")
	case <-deadline.C:
		t.Fatal("nothing comes")
	}
	panic("unreachable")
}

// eventually waits for a condition that something else brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("in vain waited for: %s", what)
		case <-poll.C:
		}
	}
}

// lockedBuffer may be written and read by different goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
