package flat

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/speaker"
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
