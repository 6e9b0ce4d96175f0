package speaker_test

import (
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	election "github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// several fakes leases one by one, each held by this node or not.
type several struct {
	*flat
	held map[string]bool
}

func (f several) Campaign(candidacies ...election.Candidacy) {
	for _, c := range candidacies {
		f.record("campaign for %s after %q", c.Lease, c.After)
	}
}

func (f several) StepDown(leases ...string) {
	f.record("step down from %s", strings.Join(leases, " "))
	f.set(func() {
		for _, name := range leases {
			delete(f.held, name)
		}
	})
}

func (f several) Lease(leases ...string) speaker.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := speaker.Lease{Until: time.Now().Add(time.Hour)}
	for _, name := range leases {
		if !f.held[name] {
			all = speaker.Lease{Reason: "m2 holds the lease of " + name, Partial: all.Partial}
		} else if _, err := netip.ParseAddr(name); err == nil {
			all.Partial = true
		}
	}
	all.Partial = all.Partial && all.Reason != ""
	return all
}

func (f several) gain(s *speaker.Speaker, leases ...string) {
	f.set(func() {
		for _, name := range leases {
			f.held[name] = true
		}
	})
	s.LeasesChanged()
}

func vipWith(addrs ...netip.Addr) speaker.VIP {
	v := flatVIP()
	v.Addresses = addrs
	for _, a := range addrs {
		v.Flat.Leases = append(v.Flat.Leases, a.String())
	}
	return v
}

func runSeveral(t *testing.T, v speaker.VIP, f func(t *testing.T, s *speaker.Speaker, l several)) {
	synctest.Test(t, func(t *testing.T) {
		l := several{&flat{node: newNode()}, make(map[string]bool)}
		parts := speaker.FlatParts{Leases: l, Announcer: announcer{l.flat}, Fence: l}
		s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), l.node, route.New(), l.node, parts, bridge{l.node}, &others{})
		whileRunning(t, s, func() {
			s.Apply([]speaker.VIP{v}, nil, passing())
			l.takeSteps()
			f(t, s, l)
		})
	})
}

func answers(s *speaker.Speaker) (all []string) {
	for _, a := range s.Summary().Addresses {
		if a.Stage == speaker.Announced {
			all = append(all, a.Address.String())
		}
	}
	return all
}

// A VIP with two addresses answers for both or none, and gives both up at once.
func TestFlatAnswersWithAllLeases(t *testing.T) {
	runSeveral(t, vipWith(v4, v6), func(t *testing.T, s *speaker.Speaker, l several) {
		for _, name := range []string{"control-plane", v4.String()} {
			l.gain(s, name)
			if got := answers(s); len(got) > 0 {
				t.Errorf("without all leases it answers for %v", got)
			}
		}
		l.gain(s, v6.String())
		if got := answers(s); len(got) != 2 {
			t.Errorf("with all leases it answers for %v", got)
		}
		l.takeSteps()
		s.Observe(verdict("registry", health.Unhealthy))
		steps := l.takeSteps()
		if last := steps[len(steps)-1]; !strings.HasPrefix(last, "step down from control-plane ") || len(strings.Fields(last)) != 6 || len(l.held) > 0 {
			t.Errorf("it gives up its leases by %q: want all at once, last, and the VIP's name first", steps)
		}
	})
}

// The loss of one lease ends the answers for all addresses.
func TestFlatLosesAllWithOne(t *testing.T) {
	runSeveral(t, vipWith(v4, v6), func(t *testing.T, s *speaker.Speaker, l several) {
		l.gain(s, "control-plane", v4.String(), v6.String())
		l.set(func() { delete(l.held, v6.String()) })
		s.LeasesChanged()
		if got := answers(s); len(got) > 0 {
			t.Errorf("it answers for %v", got)
		}
		if len(l.held) > 0 {
			t.Errorf("it keeps the leases %v", l.held)
		}
	})
}

// Another address of a VIP does not interrupt the first one, neither when it comes nor while it is free nor when it goes.
func TestFlatAddsAnAddress(t *testing.T) {
	runSeveral(t, vipWith(v4), func(t *testing.T, s *speaker.Speaker, l several) {
		l.gain(s, "control-plane", v4.String())
		l.takeSteps()
		s.Apply([]speaker.VIP{vipWith(v4, v6)}, nil, passing())
		expect(t, l.node, "filter 10.99.0.10 fd00:99::10", "unbind fd00:99::10", `campaign for fd00:99::10 after "10.99.0.10"`)
		pass(10 * time.Minute)
		if got := answers(s); len(got) != 1 {
			t.Errorf("while another node holds the new address, this one answers for %v", got)
		}
		l.gain(s, v6.String())
		if got := answers(s); len(got) != 2 {
			t.Errorf("with all leases it answers for %v", got)
		}
		l.takeSteps()
		s.Apply([]speaker.VIP{vipWith(v4)}, nil, passing())
		pass(10 * time.Second)
		for _, step := range l.takeSteps() {
			if strings.Contains(step, "unbind 10.99") || step == "step down from 10.99.0.10" || strings.Contains(step, "control-plane") {
				t.Errorf("the remaining address was interrupted: %s", step)
			}
		}
		if l.held[v6.String()] || !l.held[v4.String()] {
			t.Errorf("it holds %v", l.held)
		}
	})
}

// The first address goes: the second one follows the VIP's name from then on, before the lease of the first is released.
func TestFlatRemovesTheFirstAddress(t *testing.T) {
	runSeveral(t, vipWith(v4, v6), func(t *testing.T, s *speaker.Speaker, l several) {
		l.gain(s, "control-plane", v4.String(), v6.String())
		l.takeSteps()
		s.Apply([]speaker.VIP{vipWith(v6)}, nil, passing())
		pass(10 * time.Second)
		var got []string
		for _, step := range l.takeSteps() {
			if strings.Contains(step, "campaign") || strings.Contains(step, "step down") || strings.Contains(step, "forget") {
				got = append(got, step)
			}
		}
		want := []string{`campaign for fd00:99::10 after "control-plane"`, "step down from 10.99.0.10", "forget 10.99.0.10"}
		if strings.Join(got, "; ") != strings.Join(want, "; ") {
			t.Errorf("got %q\nwant %q", got, want)
		}
	})
}

// Files that divide the addresses differently must not block each other: a node with some of the addresses leaves them.
// A node with the VIP's name alone waits.
func TestFlatLeavesPartOfItsAddresses(t *testing.T) {
	runSeveral(t, vipWith(v4, v6), func(t *testing.T, s *speaker.Speaker, l several) {
		l.gain(s, "control-plane")
		pass(10 * time.Minute)
		expect(t, l.node)
		l.gain(s, v4.String())
		pass(900 * time.Millisecond)
		expect(t, l.node)
		pass(200 * time.Millisecond)
		if steps := l.takeSteps(); len(steps) != 1 || !strings.HasPrefix(steps[0], "step down from control-plane ") {
			t.Errorf("after a second with one of two addresses: %q", steps)
		}
		if a := s.Summary().Addresses[0]; a.Reason != "left to others for a while: m2 holds the lease of fd00:99::10" {
			t.Errorf("reason %q", a.Reason)
		}
		pass(2 * time.Second)
		if steps := l.takeSteps(); len(steps) != 3 || !strings.HasPrefix(steps[0], "campaign") {
			t.Errorf("two seconds later: %q", steps)
		}
	})
}
