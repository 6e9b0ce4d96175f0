package flat

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// fakeSpeaker does nothing.
type fakeSpeaker struct{}

func (fakeSpeaker) Observe(health.Verdict) {}
func (fakeSpeaker) LeasesChanged()         {}
func (fakeSpeaker) FenceClosed()           {}

// newFlat returns the Flat of a node with the subnets 10.4.0.0/16 and 10.5.0.0/16.
func newFlat(t *testing.T, node string) *Flat {
	t.Helper()
	f, _ := New(Options{Log: slog.New(slog.DiscardHandler), Node: node}, func(speaker.FlatParts, *election.Election) fakeSpeaker { return fakeSpeaker{} })
	f.links = make(map[string]link.Link)
	for name, prefix := range map[string]string{"nolink0": "10.4.0.0/16", "nolink1": "10.5.0.0/16"} {
		f.links[name] = link.Link{Name: name, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}
	}
	return f
}

// tables is a kernel that only counts removals.
type tables struct {
	fence.Kernel
	removed int
}

func (*tables) Filtered() ([]netip.Addr, error) { return nil, nil }
func (*tables) Rebuild(_, _ []netip.Addr) error { return nil }
func (k *tables) Remove() error                 { k.removed++; return nil }

// A stop that withdraws everything leaves the election and removes the fence. Otherwise both stay: an address may still be open.
func TestClose(t *testing.T) {
	for _, clean := range []bool{true, false} {
		kernel := &tables{}
		guard := must.Get[*fence.Fence](t)(fence.NewOver(slog.New(slog.DiscardHandler), kernel, fence.Options{}))
		f, _ := New(Options{Log: slog.New(slog.DiscardHandler), Node: "n1", Fence: guard}, func(speaker.FlatParts, *election.Election) fakeSpeaker { return fakeSpeaker{} })
		c := &election.Config{Self: "n1", Settings: electorate.Settings{
			Members: map[string]netip.AddrPort{"n1": nettest.Loopback(1)[0]}, Keys: [][]byte{make([]byte, 16)}, Lease: 600 * time.Millisecond,
		}}
		must.Do(t, f.election.Apply(c))
		t.Cleanup(func() { _ = f.election.Close() })
		f.election.Campaign(lease.Candidacy{Lease: "flat"})
		wait.Until(t, "n1 has the lease", func() bool { return f.election.Lease("flat").Holder == "n1" })
		f.Close(clean)
		if running := f.election.Status().Running; running == clean || kernel.removed > 0 != clean || !clean && f.election.Lease("flat").Holder != "n1" {
			t.Errorf("clean %t: the election runs: %t, the fence was removed %d times", clean, running, kernel.removed)
		}
	}
}

// After onConflict becomes yield, the verdict of the address is known at once, from findings made
// before.
func TestYieldFromNowOn(t *testing.T) {
	f := newFlat(t, "n1")
	f.membersKnown = true
	c := Config{VIPs: []speaker.VIP{{
		Name: "flat", Interface: "nolink0", Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.10")}, Flat: &speaker.Flat{},
	}}}
	for _, yields := range []bool{false, true} {
		c.Yield = map[string]bool{"flat": yields}
		f.Apply(c)
		if v, ok := f.verdicts["address 10.4.0.10"]; ok != yields || ok && v.State != health.Healthy {
			t.Errorf("yields %v: verdict present %v, %+v", yields, ok, v)
		}
	}
}

// The speaker learns a verdict once, and again after a change. Moved is called when places change.
func TestReportsChangesOnce(t *testing.T) {
	f := newFlat(t, "n1")
	f.Apply(Config{VIPs: []speaker.VIP{{Name: "flat", Interface: "nolink0", Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.10")}, Flat: &speaker.Flat{}}}})
	expect := func(what string, untold int, moved bool) {
		t.Helper()
		if len(f.untold) != untold || f.moved != moved {
			t.Errorf("%s: untold verdicts %v, moved %v", what, f.untold, f.moved)
		}
		clear(f.untold)
		f.moved = false
	}
	expect("applied", 1, false)
	f.takeLinks(f.links)
	expect("links unchanged", 0, false)
	since := f.verdicts["link nolink0"].Since
	f.takeLinks(map[string]link.Link{"nolink0": {Name: "nolink0"}})
	expect("link down", 1, false)
	if v := f.verdicts["link nolink0"]; v.State != health.Unhealthy || !v.Since.After(since) {
		t.Errorf("verdict of the link: %+v", v)
	}
	f.chosen = []Address{{Addr: netip.MustParseAddr("10.4.0.11")}}
	f.decide()
	expect("a Service's address", 1, true)
}

// arp_announce is set even where /proc/sys is read-only, as in a pod. A missing capability is logged once.
func TestAsksAsNode(t *testing.T) {
	ns, _ := netns.New(t)
	var log bytes.Buffer
	f := &Flat{Options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, places: []place{
		{addr: netip.MustParseAddr("10.4.0.10"), link: "lo"}, {addr: netip.MustParseAddr("10.4.0.11"), link: "lo"},
		{addr: netip.MustParseAddr("10.5.0.10"), link: "nolink0"}, {addr: netip.MustParseAddr("fd00:4::10"), link: "lo"},
	}}
	must.Do(t, netns.In(ns, func() error {
		err := netns.ProtectSettings()
		had, all := capabilities(t), capabilities(t)
		had[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		setCapabilities(t, had)
		f.askAsNode()
		f.askAsNode()
		setCapabilities(t, all)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "operation not permitted") {
			t.Errorf("without the capability the log is:\n%s", got)
		}
		f.askAsNode()
		if value, err := os.ReadFile("/proc/sys/net/ipv4/conf/lo/arp_announce"); err != nil || string(value) != "2\n" || f.asksAsVIP {
			t.Errorf("arp_announce is %q, %v; asksAsVIP is %t", value, err, f.asksAsVIP)
		}
		return err
	}))
}

// capabilities returns the capabilities of the thread.
func capabilities(t *testing.T) (data [2]unix.CapUserData) {
	t.Helper()
	must.Do(t, unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]))
	return data
}

func setCapabilities(t *testing.T, data [2]unix.CapUserData) {
	t.Helper()
	must.Do(t, unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]))
}

// An address lives for the lease, rounded up to whole seconds, and at least 2 s.
func TestLifetime(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond:  2 * time.Second,
		600 * time.Millisecond:  2 * time.Second,
		2 * time.Second:         2 * time.Second,
		2100 * time.Millisecond: 3 * time.Second,
		10 * time.Second:        10 * time.Second,
	} {
		if got := Lifetime(lease); got != want {
			t.Errorf("with a lease of %v an address lives %v, want %v", lease, got, want)
		}
	}
}
