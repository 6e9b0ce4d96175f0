// Package nettest is a host for tests of code that uses the kernel.
package nettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	namespace "github.com/herald-vip/herald/testenv/netns"
)

// Host is a fresh network namespace with a netlink handle in it, of another library
// than package rtnetlink's.
type Host struct {
	T  testing.TB
	NS netns.NsHandle
	NL *netlink.Handle
}

// NewHost makes a namespace with lo up.
func NewHost(t testing.TB) *Host {
	t.Helper()
	ns, nl := namespace.New(t)
	return &Host{T: t, NS: ns, NL: nl}
}

// Must ends the test on an error.
func (h *Host) Must(err error) {
	h.T.Helper()
	if err != nil {
		h.T.Fatal(err)
	}
}

// In runs f on a thread inside the namespace.
func (h *Host) In(f func()) {
	h.T.Helper()
	h.Must(namespace.In(h.NS, func() error { f(); return nil }))
}

// Link finds a link.
func (h *Host) Link(name string) netlink.Link {
	h.T.Helper()
	l, err := h.NL.LinkByName(name)
	h.Must(err)
	return l
}

// SetUp sets a link up.
func (h *Host) SetUp(name string) { h.T.Helper(); h.Must(h.NL.LinkSetUp(h.Link(name))) }

// SetDown sets a link down.
func (h *Host) SetDown(name string) { h.T.Helper(); h.Must(h.NL.LinkSetDown(h.Link(name))) }

// AddVeth makes a pair of links that are up.
func (h *Host) AddVeth(name, peer string) {
	h.T.Helper()
	h.Must(h.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}))
	h.SetUp(name)
	h.SetUp(peer)
}

// Connect makes a pair of links that are up, and gives the peer to another host.
func (h *Host) Connect(name string, to *Host, peer string) {
	h.T.Helper()
	h.Must(h.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer, PeerNamespace: netlink.NsFd(int(to.NS))}))
	h.SetUp(name)
	to.SetUp(peer)
}

// Run runs a program inside the namespace and returns its output.
func (h *Host) Run(stdin, name string, args ...string) string {
	h.T.Helper()
	var out []byte
	h.Must(namespace.In(h.NS, func() (err error) {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return err
	}))
	return string(out)
}

// NFT runs commands of nft.
func (h *Host) NFT(commands string) string { h.T.Helper(); return h.Run(commands, "nft", "-f", "-") }

// Reload saves all tables with nft and loads them again, in one transaction. It fails if nft lists them differently then.
func (h *Host) Reload() {
	h.T.Helper()
	rules := func() string { return h.Run("", "nft", "--stateless", "list", "ruleset") }
	before := rules()
	h.NFT("flush ruleset\n" + h.Run("", "nft", "list", "ruleset"))
	if after := rules(); after != before {
		h.T.Errorf("nft saved these tables:\n%s\nand loaded these:\n%s", before, after)
	}
}

// Sysctl sets a value below /proc/sys/net.
func (h *Host) Sysctl(path, value string) {
	h.T.Helper()
	h.Must(namespace.In(h.NS, func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) }))
}

// Parse reads an address in CIDR notation.
func Parse(t testing.TB, cidr string) *netlink.Addr {
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

// Add adds an address.
func (h *Host) Add(link, cidr string) {
	h.T.Helper()
	h.Must(h.NL.AddrAdd(h.Link(link), Parse(h.T, cidr)))
}

// Remove removes an address.
func (h *Host) Remove(link, cidr string) {
	h.T.Helper()
	h.Must(h.NL.AddrDel(h.Link(link), Parse(h.T, cidr)))
}

// Route adds a route, directly on the link if via is empty.
func (h *Host) Route(dst, link, via string) {
	h.T.Helper()
	network, err := netlink.ParseIPNet(dst)
	h.Must(err)
	h.Must(h.NL.RouteAdd(&netlink.Route{LinkIndex: h.Link(link).Attrs().Index, Dst: network, Gw: net.ParseIP(via)}))
}

// Find returns the link's entry of addr, or nil. A missing link has none.
func (h *Host) Find(link string, addr netip.Addr) *netlink.Addr {
	h.T.Helper()
	l, err := h.NL.LinkByName(link)
	if err != nil {
		return nil
	}
	addrs, err := h.NL.AddrList(l, netlink.FAMILY_ALL)
	h.Must(err)
	for _, a := range addrs {
		if ip, _ := netip.AddrFromSlice(a.IP); ip.Unmap() == addr {
			return &a
		}
	}
	return nil
}

// Patience bounds a test's wait for immediate effects, or for the expiry of an address.
const Patience = 15 * time.Second

// Loopback returns n addresses that are random, so that no other test listens there.
func Loopback(n int) []netip.AddrPort {
	a, b := byte(1+rand.IntN(254)), byte(rand.IntN(256))
	var all []netip.AddrPort
	for i := range n {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, a, b, byte(1 + i)}), 7946))
	}
	return all
}

// Receive returns the next value.
func Receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	deadline := time.NewTimer(Patience)
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
