package flat

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/rendezvous"
	"github.com/herald-vip/herald/speaker"
)

// member returns a live member and its number of campaigns.
func member(name string, campaigns int) election.Member {
	return election.Member{Name: name, Alive: true, Campaigns: campaigns}
}

func offers(nodes []string, addrs ...string) []Address {
	var out []Address
	for _, a := range addrs {
		out = append(out, Address{Addr: netip.MustParseAddr(a), Nodes: nodes})
	}
	return out
}

// campaign decides as [Flat.campaignForServices] does, and returns the VIPs that f campaigns for.
func campaign(f *Flat, now time.Time, offered []Address, members []election.Member, holds map[string]bool) []speaker.VIP {
	f.candidacies = f.candidacies.next(now, f.Node, f.config.Linger, offered, members)
	f.chosen = f.candidacies.choose(f.Node, holds, true)
	f.decide()
	all, _ := f.VIPs()
	return all
}

// describe returns the addresses, links and checks of VIPs.
func describe(vips []speaker.VIP) string {
	var out []string
	for _, v := range vips {
		out = append(out, fmt.Sprintf("%s on %s by %v", v.Addresses[0], v.Interface, v.Checks))
	}
	return strings.Join(out, ", ")
}

// The speaker gets the addresses that the node campaigns for, on a link that the pool allows, with the
// rendezvous weight as the priority and the link's check.
func TestServiceVIPs(t *testing.T) {
	f := newFlat(t, "n1")
	f.Apply(Config{Linger: time.Second, Lifetime: 2 * time.Second})
	offered := offers([]string{"n1"}, "10.4.0.9", "10.5.0.9", "192.0.2.9")
	offered[1].Interfaces = []string{"nolink9", "nolink0"}
	vips := campaign(f, time.Now(), offered, nil, nil)
	if !f.moved {
		t.Error("moved is not set for the first addresses")
	}
	want := "10.4.0.9 on nolink0 by [link nolink0], 10.5.0.9 on nolink0 by [link nolink0], 192.0.2.9 on  by [link of 192.0.2.9]"
	if got := describe(vips); got != want {
		t.Errorf("the VIPs are %s\nwant %s", got, want)
	}
	for _, v := range vips {
		if v.Flat == nil || v.Flat.Priority != rendezvous.Weight(v.Addresses[0], "n1") || v.Flat.Preempt || v.Flat.Lifetime != 2*time.Second || v.Linger != time.Second {
			t.Errorf("%s: claim %+v, linger %v", v.Name, v.Flat, v.Linger)
		}
	}
	for check, state := range map[string]health.State{"link nolink0": health.Healthy, "link of 192.0.2.9": health.Unhealthy} {
		if got := f.verdicts[check]; got.State != state {
			t.Errorf("%s is %v: %s", check, got.State, got.Reason)
		}
	}
	f.moved = false
	if campaign(f, time.Now(), offered, nil, nil); f.moved {
		t.Error("moved is set without a change")
	}
	l := f.links["nolink0"]
	l.Prefixes = nil
	f.links["nolink0"] = l
	got := describe(campaign(f, time.Now(), offered, nil, nil))
	if !f.moved {
		t.Error("moved is not set after a link lost its subnet")
	}
	if !strings.HasPrefix(got, "10.4.0.9 on  by [link of 10.4.0.9], 10.5.0.9 on nolink0") {
		t.Errorf("the VIPs are %s", got)
	}
	f.moved = false
	if got := campaign(f, time.Now(), nil, nil, nil); !f.moved || len(got) != 0 {
		t.Errorf("campaigns for addresses that are no longer offered: %v", got)
	}
}

// Each address has three candidates. Its holder keeps campaigning, and a live node without a campaign
// is passed over.
func TestCandidates(t *testing.T) {
	const addr = "10.4.0.9"
	nodes := []string{"n1", "n2", "n3", "n4", "n5"}
	order := candidates(netip.MustParseAddr(addr), nodes)
	start := time.Now()
	all := func(campaigns int) (out []election.Member) {
		for _, n := range order {
			out = append(out, member(n, campaigns))
		}
		return out
	}
	for rank, node := range order {
		campaigns := func(f *Flat, after time.Duration, members []election.Member, holds bool) bool {
			return len(campaign(f, start.Add(after), offers(nodes, addr), members, map[string]bool{addr: holds})) == 1
		}
		f := newFlat(t, node)
		if got := campaigns(f, 0, all(1), false); got != (rank < 3) {
			t.Errorf("node %d of 5 campaigns: %v", rank+1, got)
		}
		if !campaigns(f, 0, all(1), true) {
			t.Errorf("node %d of 5 steps down as the holder", rank+1)
		}
		if got := campaigns(f, 0, all(1)[1:], false); got != (rank < 4) { // the first node counts itself
			t.Errorf("the first node is gone, and node %d of 5 campaigns: %v", rank+1, got)
		}
		idle := all(1)
		idle[0].Campaigns = 0
		if got := campaigns(f, 0, idle, false); got != (rank < 3) {
			t.Errorf("the first node has just started, and node %d of 5 campaigns: %v", rank+1, got)
		}
		if got := campaigns(f, passOver, idle, false); got != (rank < 4) {
			t.Errorf("the first node stays idle, and node %d of 5 campaigns: %v", rank+1, got)
		}
		if got := campaigns(f, passOver, all(1), false); got != (rank < 3) {
			t.Errorf("the first node campaigns again, and node %d of 5 campaigns: %v", rank+1, got)
		}
		dead := all(1)
		dead[0].Alive = false
		if got := campaigns(f, passOver, dead, false); got != (rank < 4) {
			t.Errorf("the first node is dead, and node %d of 5 campaigns: %v", rank+1, got)
		}
	}
}

// candidates returns nodes in descending order of their weight.
func candidates(addr netip.Addr, nodes []string) []string {
	return slices.SortedFunc(slices.Values(nodes), func(a, b string) int { return rendezvous.Weight(addr, b) - rendezvous.Weight(addr, a) })
}

// Before the first address is offered, members without a campaign are not idle: they still precede this
// node.
func TestFirstAddress(t *testing.T) {
	nodes := []string{"n1", "n2", "n3", "n4"}
	addr := netip.MustParseAddr("10.4.0.9")
	last := candidates(addr, nodes)[3]
	var others []election.Member
	for _, n := range nodes {
		if n != last {
			others = append(others, member(n, 0))
		}
	}
	f := newFlat(t, last)
	now := time.Now()
	campaign(f, now, nil, others, nil)
	if got := campaign(f, now.Add(time.Hour), offers(nodes, "10.4.0.9"), others, nil); len(got) != 0 {
		t.Errorf("%s, the last candidate, campaigns for %s", last, describe(got))
	}
	if got := campaign(f, now.Add(time.Hour+passOver), offers(nodes, "10.4.0.9"), others, nil); len(got) != 1 {
		t.Errorf("all others are idle, and %s campaigns for %s", last, describe(got))
	}
}

// The claim to an address follows the preference of its nodes.
func TestPreferred(t *testing.T) {
	f := newFlat(t, "n1")
	offered := offers([]string{"n1", "n2"}, "10.4.0.9")
	for _, preference := range []map[string]int{nil, {"n1": 7}, {"n1": 9, "n2": 7}, {"n2": 7}} {
		offered[0].Preferred, offered[0].Preempt = preference, preference != nil
		f.moved = false
		vips := campaign(f, time.Now(), offered, nil, nil)
		want := speaker.Flat{Priority: rendezvous.Priority(offered[0].Addr, "n1", preference["n1"]), Preempt: preference != nil, Leases: []string{"10.4.0.9"}}
		if len(vips) != 1 || !reflect.DeepEqual(*vips[0].Flat, want) || !f.moved {
			t.Errorf("preference %v: claimed as %+v, moved %v", preference, vips, f.moved)
		}
	}
}

// The holder of one address of a Service campaigns last for the other. The holder of both gives up the higher one.
func TestApart(t *testing.T) {
	f := newFlat(t, "n1")
	offered := offers([]string{"n1", "n2"}, "10.4.0.8", "10.4.0.9")
	low, high := &offered[0], &offered[1]
	low.Apart, high.Apart = high.Addr, low.Addr
	for _, tt := range []struct {
		holds     []netip.Addr
		preferred map[string]int
		low, high speaker.Flat
		moved     bool
	}{
		{low: speaker.Flat{Priority: 1, Preempt: true}, high: speaker.Flat{Priority: 1, Preempt: true}, moved: true},
		{holds: []netip.Addr{low.Addr}, low: speaker.Flat{Priority: 1, Preempt: true}, high: speaker.Flat{Preempt: true}, moved: true},
		{holds: []netip.Addr{low.Addr, high.Addr}, low: speaker.Flat{Priority: 1, Preempt: true}, high: speaker.Flat{Preempt: true}},
		{holds: []netip.Addr{high.Addr}, low: speaker.Flat{Preempt: true}, high: speaker.Flat{Priority: 1, Preempt: true}, moved: true},
		{
			holds: []netip.Addr{high.Addr}, preferred: map[string]int{"n1": 3},
			low: speaker.Flat{Priority: 3 << 20}, high: speaker.Flat{Priority: 3<<20 | 1}, moved: true,
		},
	} {
		holds := make(map[string]bool)
		for _, addr := range tt.holds {
			holds[addr.String()] = true
		}
		low.Preferred, high.Preferred = tt.preferred, tt.preferred
		f.moved = false
		vips := campaign(f, time.Now(), offered, nil, holds)
		tt.low.Leases, tt.high.Leases = []string{"10.4.0.8"}, []string{"10.4.0.9"}
		if len(vips) != 2 || !reflect.DeepEqual(*vips[0].Flat, tt.low) || !reflect.DeepEqual(*vips[1].Flat, tt.high) || f.moved != tt.moved {
			t.Errorf("holding %v, it campaigns with %+v and %+v, moved %v", tt.holds, vips[0].Flat, vips[1].Flat, f.moved)
		}
	}
}

// Nodes come and go. Once two nodes are fit, the two addresses of a Service soon are on different nodes. An address
// moves only if its holder leaves or holds both.
func TestStaysApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"n0", "n1"}
		for i := range rapid.IntRange(0, 8).Draw(t, "more nodes") {
			nodes = append(nodes, fmt.Sprint("more-", i))
		}
		offered := offers(nodes, "10.4.0.8", "fd00::8")
		offered[0].Apart, offered[1].Apart = offered[1].Addr, offered[0].Addr
		fit := make(map[string]bool)
		holders := make([]string, 2)
		// elected returns the next holders of the addresses.
		elected := func() []string {
			out, best := slices.Clone(holders), []int{-1, -1}
			claims := func(node string) (out [2]int) {
				others := maps.Clone(fit)
				delete(others, node)
				holds := map[string]bool{offered[0].Addr.String(): holders[0] == node, offered[1].Addr.String(): holders[1] == node}
				out = [2]int{-1, -1}
				for _, a := range (candidacies{offered: offered, fit: others}).choose(node, holds, true) {
					out[slices.IndexFunc(offered, func(o Address) bool { return o.Addr == a.Addr })], _ = a.claim(node)
				}
				return out
			}
			for i, holder := range holders {
				if holder != "" {
					best[i] = claims(holder)[i]
				}
			}
			for _, node := range rapid.Permutation(slices.Sorted(maps.Keys(fit))).Draw(t, "order") {
				for i, priority := range claims(node) {
					if priority > best[i] {
						best[i], out[i] = priority, node
					}
				}
			}
			return out
		}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			node := rapid.SampledFrom(nodes).Draw(t, "node")
			if fit[node] {
				delete(fit, node)
				for i := range holders {
					if holders[i] == node {
						holders[i] = ""
					}
				}
			} else {
				fit[node] = true
			}
			for range 2 {
				next := elected()
				for i := range next {
					if before := holders[i]; before != "" && before != next[i] && (i == 0 || holders[0] != before) {
						t.Fatalf("the addresses move from %q to %q", holders, next)
					}
				}
				holders = next
			}
			if len(fit) > 0 && slices.Contains(holders, "") || len(fit) > 1 && holders[0] == holders[1] {
				t.Fatalf("fit nodes %v, holders %q", fit, holders)
			}
		}
	})
}

// No node campaigns before its links are known.
func TestCandidacyBeforeLinks(t *testing.T) {
	f := newFlat(t, "n1")
	links := f.links
	f.links = nil
	offered := offers([]string{"n1"}, "10.4.0.9")
	if got := campaign(f, time.Now(), offered, nil, nil); len(got) != 0 {
		t.Error("campaigns without a link")
	}
	f.takeLinks(links)
	if got, _ := f.VIPs(); len(got) != 1 {
		t.Error("does not campaign with a link")
	}
}

// The fence filters a Service's address for as long as it may be bound.
func TestLeaving(t *testing.T) {
	const linger = time.Second
	var c candidacies
	now := time.Now()
	for _, step := range []struct {
		after   time.Duration
		offered []string
		want    []string
	}{
		{0, []string{"10.4.0.8", "10.4.0.9"}, nil},
		{0, []string{"10.4.0.9"}, []string{"10.4.0.8"}},
		{linger + afterLinger - 1, []string{"10.4.0.9"}, []string{"10.4.0.8"}},
		{1, []string{"10.4.0.9"}, nil},
		{0, nil, []string{"10.4.0.9"}},
		{0, []string{"10.4.0.9"}, nil},
	} {
		now = now.Add(step.after)
		c = c.next(now, "n1", linger, offers([]string{"n1"}, step.offered...), nil)
		var left []string
		for a := range c.leaving {
			left = append(left, a.String())
		}
		if !slices.Equal(left, step.want) {
			t.Errorf("offered %v: leaving %v, want %v", step.offered, left, step.want)
		}
		if got := c.addresses(); len(got) != len(step.offered)+len(step.want) {
			t.Errorf("the fence filters %v, want the offered %v and the leaving %v", got, step.offered, step.want)
		}
	}
}

// An address that becomes a VIP of the file no longer counts as a Service's.
func TestServiceVIPsBesidesTheFile(t *testing.T) {
	f := newFlat(t, "n1")
	campaign(f, time.Now(), offers([]string{"n1"}, "10.4.0.8", "10.4.0.9"), nil, nil)
	f.Apply(Config{VIPs: []speaker.VIP{{Name: "apiserver", Interface: "lo", Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.1"), netip.MustParseAddr("10.4.0.9")}}}})
	vips, _ := f.VIPs()
	if want, got := "10.4.0.1 on lo by [], 10.4.0.8 on nolink0 by [link nolink0]", describe(vips); got != want {
		t.Errorf("the VIPs are %s, want %s", got, want)
	}
}
