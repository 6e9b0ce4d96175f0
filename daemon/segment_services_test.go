package daemon

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/lease"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/speaker"
)

// tenants is the segment of a node with the subnets 10.4.0.0/16 and 10.5.0.0/16.
func tenants(t *testing.T, node string) *segment {
	t.Helper()
	g := &segment{
		log: slog.New(slog.DiscardHandler), node: node, look: make(chan struct{}, 1),
		verdicts: make(map[string]health.Verdict), told: func(health.Verdict) {},
	}
	g.services.init(&config.Config{Services: &config.Services{Linger: time.Second}})
	g.services.lifetime = 2 * time.Second
	g.links = make(map[string]netutil.Link)
	for i, prefix := range []string{"10.4.0.1/16", "10.5.0.1/16"} {
		name := fmt.Sprintf("nolink%d", i)
		g.links[name] = netutil.Link{Name: name, Index: i + 1, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix).Masked()}}
	}
	return g
}

// member is one that is alive and stands for so many leases.
func member(name string, standing int) election.Member {
	return election.Member{MemberStatus: lease.MemberStatus{Name: name}, Alive: true, Standing: standing}
}

func offers(nodes []string, addrs ...string) []announce.Address {
	var out []announce.Address
	for _, a := range addrs {
		out = append(out, announce.Address{Addr: netip.MustParseAddr(a), Nodes: nodes})
	}
	return out
}

// settle has a segment decide as [segment.contend] does.
func settle(g *segment, now time.Time, offered []announce.Address, members []election.Member, holds map[string]bool, met bool) (changed bool) {
	g.services.offer(now, offered)
	return g.settle(now, members, holds, met)
}

// said are the VIPs in short.
func said(vips []speaker.VIP) string {
	var out []string
	for _, v := range vips {
		out = append(out, fmt.Sprintf("%s on %s by %v", v.Name, v.Interface, v.Checks))
	}
	return strings.Join(out, ", ")
}

// What a node stands for is what the speaker is to lead, with the weight as its
// priority and the link's check, on the link that the pool allows.
func TestServiceVIPs(t *testing.T) {
	g := tenants(t, "n1")
	nodes := []string{"n1"}
	offered := offers(nodes, "10.4.0.9", "10.5.0.9", "192.0.2.9")
	offered[1].Interfaces = []string{"nolink9", "nolink0"}
	if !settle(g, time.Now(), offered, nil, nil, true) {
		t.Error("nothing changed")
	}
	vips := g.serviceVIPs()
	want := "10.4.0.9 on nolink0 by [link nolink0], 10.5.0.9 on nolink0 by [link nolink0], 192.0.2.9 on  by [link of 192.0.2.9]"
	if got := said(vips); got != want {
		t.Errorf("the VIPs are %s\nwant %s", got, want)
	}
	for _, v := range vips {
		if v.Flat == nil || v.Flat.Priority != service.Weight(v.Addresses[0], "n1") || v.Flat.Preempt || v.Flat.Lifetime != 2*time.Second || v.Linger != time.Second {
			t.Errorf("%s is claimed by %+v and lingers for %v", v.Name, v.Flat, v.Linger)
		}
	}
	for check, state := range map[string]health.State{"link nolink0": health.Healthy, "link of 192.0.2.9": health.Unhealthy} {
		if got := g.verdicts[check]; got.State != state {
			t.Errorf("%s is %v: %s", check, got.State, got.Reason)
		}
	}
	if settle(g, time.Now(), offered, nil, nil, true) {
		t.Error("nothing is new, and yet something changed")
	}
	l := g.links["nolink0"]
	l.Prefixes = nil
	g.links["nolink0"] = l
	if !settle(g, time.Now(), offered, nil, nil, true) {
		t.Error("a link lost its subnet, and nothing changed")
	}
	if got := said(g.serviceVIPs()); !strings.HasPrefix(got, "10.4.0.9 on  by [link of 10.4.0.9], 10.5.0.9 on nolink0") {
		t.Errorf("the VIPs are %s", got)
	}
	if !settle(g, time.Now(), nil, nil, nil, true) || len(g.serviceVIPs()) != 0 {
		t.Errorf("stands for what is offered no more: %v", g.serviceVIPs())
	}
}

// Of many addresses and nodes each address has three who stand for it; one that holds an
// address keeps it, and who is alive and stands for nothing is passed over.
func TestContend(t *testing.T) {
	const addr = "10.4.0.9"
	nodes := []string{"n1", "n2", "n3", "n4", "n5"}
	order := service.Candidates(netip.MustParseAddr(addr), nodes)
	start := time.Now()
	all := func(standing int) (out []election.Member) {
		for _, n := range order {
			out = append(out, member(n, standing))
		}
		return out
	}
	for rank, node := range order {
		stands := func(g *segment, after time.Duration, members []election.Member, holds bool) bool {
			settle(g, start.Add(after), offers(nodes, addr), members, map[string]bool{addr: holds}, true)
			return len(g.serviceVIPs()) == 1
		}
		g := tenants(t, node)
		if got := stands(g, 0, all(1), false); got != (rank < 3) {
			t.Errorf("%d. of 5 stands: %v", rank+1, got)
		}
		if !stands(g, 0, all(1), true) {
			t.Errorf("%d. of 5 gives up what it holds", rank+1)
		}
		if got := stands(g, 0, all(1)[1:], false); got != (rank < 4) { // the first counts itself
			t.Errorf("%d. of 5, the first of whom is gone, stands: %v", rank+1, got)
		}
		idle := all(1)
		idle[0].Standing = 0
		if got := stands(g, 0, idle, false); got != (rank < 3) {
			t.Errorf("%d. of 5, the first of whom has just come, stands: %v", rank+1, got)
		}
		if got := stands(g, passOver, idle, false); got != (rank < 4) {
			t.Errorf("%d. of 5, the first of whom stands for nothing, stands: %v", rank+1, got)
		}
		if got := stands(g, passOver, all(1), false); got != (rank < 3) {
			t.Errorf("%d. of 5, the first of whom stands again, stands: %v", rank+1, got)
		}
		silent := all(1)
		silent[0].Alive = false
		if got := stands(g, passOver, silent, false); got != (rank < 4) {
			t.Errorf("%d. of 5, the first of whom is silent, stands: %v", rank+1, got)
		}
	}
}

// Where links are not known yet nobody stands, whatever comes first.
func TestContendBeforeLinks(t *testing.T) {
	g := tenants(t, "n1")
	links := g.links
	g.links = nil
	offered := offers([]string{"n1"}, "10.4.0.9")
	if settle(g, time.Now(), offered, nil, nil, true); len(g.serviceVIPs()) != 0 {
		t.Error("stands without a link")
	}
	g.links = links
	if settle(g, time.Now(), offered, nil, nil, true); len(g.serviceVIPs()) != 1 {
		t.Error("does not stand with one")
	}
}

// An address is a Service's for the fence until nothing of it can be bound any more.
func TestLeaving(t *testing.T) {
	g := tenants(t, "n1")
	now := time.Now()
	for _, step := range []struct {
		after   time.Duration
		offered []string
		want    []string
	}{
		{0, []string{"10.4.0.8", "10.4.0.9"}, nil},
		{0, []string{"10.4.0.9"}, []string{"10.4.0.8"}},
		{g.services.linger + aftermath - 1, []string{"10.4.0.9"}, []string{"10.4.0.8"}},
		{1, []string{"10.4.0.9"}, nil},
		{0, nil, []string{"10.4.0.9"}},
		{0, []string{"10.4.0.9"}, nil},
	} {
		now = now.Add(step.after)
		settle(g, now, offers([]string{"n1"}, step.offered...), nil, nil, true)
		var left []string
		for a := range g.services.leaving {
			left = append(left, a.String())
		}
		if !slices.Equal(left, step.want) {
			t.Errorf("%v of %v are leaving, want %v", left, step.offered, step.want)
		}
	}
}

// An address that has become a VIP of the file is no Service's for the speaker, even before
// the segment has heard of that.
func TestServiceVIPsBesidesTheFile(t *testing.T) {
	g := tenants(t, "n1")
	settle(g, time.Now(), offers([]string{"n1"}, "10.4.0.8", "10.4.0.9"), nil, nil, true)
	file := []speaker.VIP{{Name: "apiserver", Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.1"), netip.MustParseAddr("10.4.0.9")}}}
	want := "10.4.0.8 on nolink0 by [link nolink0]"
	if got := said(besides(g.serviceVIPs(), file)); got != want {
		t.Errorf("the VIPs of Services are %s, want %s", got, want)
	}
}
