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

// nobody is a speaker that does nothing.
type nobody struct{}

func (nobody) Observe(health.Verdict) {}
func (nobody) LeasesChanged()         {}
func (nobody) FenceClosed()           {}

// newFlat is that of a node with the subnets 10.4.0.0/16 and 10.5.0.0/16.
func newFlat(t *testing.T, node string) *Flat {
	t.Helper()
	f, _ := New(Options{Log: slog.New(slog.DiscardHandler), Node: node}, func(speaker.FlatParts, *election.Election) nobody { return nobody{} })
	f.links = make(map[string]link.Link)
	for name, prefix := range map[string]string{"nolink0": "10.4.0.0/16", "nolink1": "10.5.0.0/16"} {
		f.links[name] = link.Link{Name: name, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}
	}
	return f
}

// A node whose onConflict becomes yield has a verdict on the address at once: that nobody
// else used it was known before, and is not found out a second time.
func TestYieldFromNowOn(t *testing.T) {
	f := newFlat(t, "n1")
	f.acquainted = true
	c := Config{VIPs: []speaker.VIP{{
		Name: "flat", Interface: "nolink0", Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.10")}, Flat: &speaker.Flat{},
	}}}
	for _, yields := range []bool{false, true} {
		c.Yield = map[string]bool{"flat": yields}
		f.Apply(c)
		if v, ok := f.verdicts["address 10.4.0.10"]; ok != yields || ok && v.State != health.Healthy {
			t.Errorf("yields: %v, and there is a verdict: %v, %+v", yields, ok, v)
		}
	}
}

// A verdict is told once, and again when it has changed; of places that change Moved is called.
func TestNewsOnce(t *testing.T) {
	f := newFlat(t, "n1")
	f.Apply(Config{VIPs: []speaker.VIP{{Name: "flat", Interface: "nolink0", Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.10")}, Flat: &speaker.Flat{}}}})
	expect := func(what string, untold int, moved bool) {
		t.Helper()
		if len(f.untold) != untold || f.moved != moved {
			t.Errorf("%s: to be told are %v, moved: %v", what, f.untold, f.moved)
		}
		clear(f.untold)
		f.moved = false
	}
	expect("applied", 1, false)
	f.takeLinks(f.links)
	expect("nothing new", 0, false)
	since := f.verdicts["link nolink0"].Since
	f.takeLinks(map[string]link.Link{"nolink0": {Name: "nolink0"}})
	expect("down", 1, false)
	if v := f.verdicts["link nolink0"]; v.State != health.Unhealthy || !v.Since.After(since) {
		t.Errorf("the verdict is %+v", v)
	}
	f.chosen = []Address{{Addr: netip.MustParseAddr("10.4.0.11")}}
	f.decide()
	expect("a Service", 1, true)
}
