package fence

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/ruleset"
	namespace "github.com/herald-vip/herald/testenv/netns"
)

func TestMain(m *testing.M) {
	if end, ok := helpers[os.Getenv(helperEnv)]; ok {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("rapid.checks", "3000"); err != nil { // the command line may say otherwise
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// host is a fresh network namespace.
type host struct {
	t  testing.TB
	ns netns.NsHandle
	nl *netlink.Handle
}

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

// run runs a program inside the namespace and returns what it prints.
func (h *host) run(stdin, name string, args ...string) string {
	h.t.Helper()
	var out []byte
	var err error
	h.in(func() {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err = cmd.CombinedOutput()
	})
	if err != nil {
		h.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// sysctl sets a value below /proc/sys/net.
func (h *host) sysctl(path, value string) {
	h.t.Helper()
	var err error
	h.in(func() { err = os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) })
	h.must(err)
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.nl.LinkByName(name)
	h.must(err)
	return l
}

func (h *host) mac(name string) net.HardwareAddr { return h.link(name).Attrs().HardwareAddr }

// addVeth makes a link to another host. Its name is the same there.
func (h *host) addVeth(name string, to *host) {
	h.t.Helper()
	h.must(h.nl.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(int(to.ns)),
	}))
	h.must(h.nl.LinkSetUp(h.link(name)))
	to.must(to.nl.LinkSetUp(to.link(name)))
}

func (h *host) add(link string, prefix netip.Prefix) {
	h.t.Helper()
	h.must(h.nl.AddrAdd(h.link(link), h.address(prefix)))
}

func (h *host) remove(link string, prefix netip.Prefix) {
	h.t.Helper()
	h.must(h.nl.AddrDel(h.link(link), h.address(prefix)))
}

func (h *host) address(prefix netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}}
	if prefix.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // usable at once
	}
	return a
}

// fence makes the host's fence, to be removed at the end of the test.
func (h *host) fence() *Fence {
	h.t.Helper()
	return h.fenceWith(Options{})
}

func (h *host) fenceWith(o Options) *Fence {
	h.t.Helper()
	f, err := newFence(slog.New(slog.DiscardHandler), &nft{Socket: ruleset.Socket{NetNS: int(h.ns)}, opts: o}, o)
	h.must(err)
	h.t.Cleanup(func() {
		if err := f.Remove(); err != nil {
			h.t.Error(err)
		}
	})
	return f
}

// opening is Open or Accept of a fence.
type opening func(until time.Time, addrs ...netip.Addr) error

// open opens for longer than any test lives.
func (h *host) open(open opening, addrs ...netip.Addr) {
	h.t.Helper()
	h.openFor(time.Hour, open, addrs...)
}

// openFor opens for so long, and tells until when. On a busy machine it may be late at first.
func (h *host) openFor(long time.Duration, open opening, addrs ...netip.Addr) (until time.Time) {
	h.t.Helper()
	eventually(h.t, "opened in time", func() bool {
		until = time.Now().Add(long)
		err := open(until, addrs...)
		if !errors.Is(err, ErrLate) {
			h.must(err)
		}
		return err == nil
	})
	return until
}

// patience is how long a test waits for what is to come at once.
const patience = 15 * time.Second

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
