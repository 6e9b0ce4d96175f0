//go:build e2e

package flat

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/soak"
)

// TestARPHolderFails breaks the holder in every way. Another master takes the VIP, and
// keeps it when the first recovers, without cost.
func TestARPHolderFails(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	speaker := func(m string) *lab.Node { return f.Node(m + "-speaker") }
	apiserver := func(m string) *lab.Node { return f.Node(m + "-apiserver") }
	link := func(m string) *lab.Link { return f.Link(m, "lan") }
	boot := func(n *lab.Node) error { site.Start(t, n); return nil }
	for _, fault := range []struct {
		name     string
		do, undo func(m string) error
	}{
		{"apiserver killed", func(m string) error { return apiserver(m).Kill() }, func(m string) error { return boot(apiserver(m)) }},
		{"apiserver frozen", func(m string) error { return apiserver(m).Freeze() }, func(m string) error { return apiserver(m).Thaw() }},
		{"speaker killed", func(m string) error { return speaker(m).Kill() }, func(m string) error { return boot(speaker(m)) }},
		{"speaker frozen", func(m string) error { return speaker(m).Freeze() }, func(m string) error { return speaker(m).Thaw() }},
		{"parted from the others", f.Alone, func(string) error { return f.Part("lan") }},
		{"gossip cut", func(m string) error { return gossip(t, f, m, gossipCut) }, func(m string) error { return gossip(t, f, m, gossipWhole) }},
		{"link cut", func(m string) error { return link(m).Cut() }, func(m string) error { return link(m).Heal() }},
		{"link cut outwards", func(m string) error { return link(m).CutFrom(m) }, func(m string) error { return link(m).Heal() }},
		{"link cut inwards", func(m string) error { return link(m).CutFrom("lan") }, func(m string) error { return link(m).Heal() }},
		{"link without carrier", func(m string) error { return link(m).Down() }, func(m string) error { return link(m).Heal() }},
		{"power cut", func(m string) error { return f.Node(m).PowerOff() }, func(m string) error { site.PowerOn(t, f.Node(m)); return nil }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			load := f.Connect(t)
			site.Must(t, fault.do(holder))
			next := f.Held(t, f.Others(holder)...)
			f.Asked(t, 80) // longer than an attempt to connect may take
			moved := f.Mark(t)
			site.Must(t, fault.undo(holder))
			f.Ready(t, holder)
			f.Asked(t, 100)
			f.Stays(t, next, moved)
			load.None(t, moved.Time)
			holder = next
		})
	}
}

// TestARPKept freezes all apiservers, with whenAllFail: keep. One master goes on
// answering as a last resort, until a healthy one takes over. Killing its apiserver
// ends that.
func TestARPKept(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		f.Rewrite(t, m, "herald.yaml", func(file string) string {
			return strings.Replace(file, "announce: arp\n", "announce: arp\n  whenAllFail: keep\n", 1)
		})
	}
	f.Elect(t)
	apiserver := func(m string) *lab.Node { return f.Node(m + "-apiserver") }
	shows := func(m string, stage speaker.Stage, kept bool) {
		t.Helper()
		f.Speaker(m).ShowsVIPs(t, func(v admin.VIP) error {
			return site.ErrorIf(v.Stage != stage || v.Kept != kept, "%s has %s %s, kept %t: %s", m, v.Address, v.Stage, v.Kept, v.Reason)
		})
	}

	from := f.Mark(t)
	for _, m := range site.FlatMasters() {
		site.Freeze(t, apiserver(m))
	}
	f.Asked(t, 300)
	holder := f.Held(t)
	shows(holder, speaker.Announced, true)
	well := f.Others(holder)[0]
	site.Thaw(t, apiserver(well))
	f.Held(t, well)
	shows(well, speaker.Announced, false)
	shows(holder, speaker.Withdrawn, false)
	f.Asked(t, 100)
	site.Freeze(t, apiserver(well))
	shows(well, speaker.Announced, true)
	f.Asked(t, 300)
	f.Held(t, well)
	f.Answered(t, from)

	site.Kill(t, apiserver(well))
	shows(well, speaker.Withdrawn, false)
	for _, m := range f.Others(well) {
		site.Thaw(t, apiserver(m))
	}
	f.Held(t, f.Others(well)...)
}

// TestARPLeftover kills the holder's speaker and flushes its nftables, so that its
// kernel goes on answering. The address expires by itself.
func TestARPLeftover(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	f.Blind = []holders.Rule{holders.TwoHolders, holders.Trespass}
	site.Must(t, f.Speaker(holder).Kill())
	site.MustRun(t, f.Node(holder), "nft", "flush", "ruleset")
	next := f.Held(t, f.Others(holder)...)
	site.Eventually(t, site.Soon, func() error {
		out, err := site.Run(t, f.Node(holder), "ip", "address", "show", "dev", "eth1")
		for _, vip := range f.Vips() {
			if err == nil && strings.Contains(out, vip.String()+"/") {
				err = fmt.Errorf("%v is left on %s", vip, holder)
			}
		}
		return err
	})
	gone := f.Mark(t)
	f.Asked(t, 100)
	f.Stays(t, next, gone)
}

// TestARPPartOfThree separates a non-holder from the other two, and makes one of them
// deaf to the holder: the VIP does not move.
func TestARPPartOfThree(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	lone, other := f.Others(holder)[0], f.Others(holder)[1]
	for _, fault := range []struct {
		name string
		do   func() error
	}{
		{"another master alone", func() error { return f.Alone(lone) }},
		{"a master does not hear the holder", func() error {
			return f.Link(lone, "lan").Deafen(lone, f.Link(holder, "lan").MAC(holder))
		}},
		{"the holder does not hear a master", func() error {
			return f.Link(holder, "lan").Deafen(holder, f.Link(other, "lan").MAC(other))
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			load := f.Connect(t)
			from := f.Mark(t)
			site.Must(t, fault.do())
			f.Asked(t, int(2*site.Lease/(10*time.Millisecond)))
			site.Must(t, f.Part("lan"))
			f.Ready(t, lone)
			f.Asked(t, 100)
			f.Stays(t, holder, from)
			load.None(t, from.Time)
		})
	}
}

// TestARPFirewall drops the UDP, but not the TCP, of a non-holder in a firewall: the
// member reports that once, and the VIP does not move.
func TestARPFirewall(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	behind := f.Others(holder)[0]
	from := f.Mark(t)
	site.Must(t, gossip(t, f, behind, udpCut))
	f.Elects(t, behind, func(e *admin.Election) error {
		for _, m := range e.Members {
			if !m.Self && (m.Alive || !strings.Contains(m.Problem, "UDP does not get through between this node and "+m.Name)) {
				return fmt.Errorf("%s reports %s, alive %v: %q", behind, m.Name, m.Alive, m.Problem)
			}
		}
		return nil
	})
	f.Asked(t, 200)
	f.Stays(t, holder, from)
	site.Must(t, gossip(t, f, behind, gossipWhole))
	f.Ready(t, behind)
	for _, m := range f.Others(behind) {
		if n := f.Logged(t, behind, "UDP does not get through .*member="+m+" "); n != 1 {
			t.Errorf("%s named %s %d times, want once", behind, m, n)
		}
	}
}

// Faults of a master's gossip.
const (
	gossipCut = `
add table inet lab
add chain inet lab in { type filter hook input priority 0; }
add chain inet lab out { type filter hook output priority 0; }
add rule inet lab in meta l4proto { tcp, udp } th dport 7946 drop
add rule inet lab out meta l4proto { tcp, udp } th dport 7946 drop`
	udpCut = `
add table inet lab
add chain inet lab in { type filter hook input priority 0; }
add rule inet lab in udp dport 7946 drop`
	gossipWhole = "delete table inet lab"
)

func gossip(t *testing.T, f *site.Flat, master, rules string) error {
	t.Helper()
	_, err := site.Run(t, f.Node(master), "nft", rules)
	return err
}

// TestARPBootOrders powers three masters on in three of the six orders (nightly, in
// all), each when the previous one has settled. There is no holder until the second is
// healthy, and the third changes nothing.
func TestARPBootOrders(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	for _, order := range site.Orders(site.FlatMasters()...) {
		t.Run(strings.Join(order, " "), func(t *testing.T) { testOrder(t, f, order) })
	}
}

func testOrder(t *testing.T, f *site.Flat, order []string) {
	for _, m := range order {
		site.Must(t, f.Node(m).PowerOff())
	}
	f.Asked(t, 10)
	dark := f.Seen.Clock()
	site.PowerOn(t, f.Node(order[0]))
	f.Elects(t, order[0], func(e *admin.Election) error { // it is healthy, and reports why it does not have the lease
		l := e.Leases[0]
		return site.ErrorIf(!l.Campaigning || l.Holder != "" || l.Reason == "", "the lease of %s is %+v", order[0], l)
	})
	f.Asked(t, int((site.Lease+time.Second)/(10*time.Millisecond)))
	for _, s := range f.Seen.Trace().Observations {
		if s.At > dark {
			t.Fatalf("with one master up: %v", s)
		}
	}

	site.PowerOn(t, f.Node(order[1]))
	holder := f.Held(t, order[:2]...)
	from := f.Mark(t)
	site.PowerOn(t, f.Node(order[2]))
	f.Ready(t, order[2])
	f.Asked(t, 100)
	f.Stays(t, holder, from)
}

// TestARPSoak runs speakers built with the race detector through overlapping random
// faults on one segment, and checks that an observer never sees two holders: thirty
// faults, or nightly five hundred. The electorate changes too: by lists, and by
// masters that join and are reinstalled.
func TestARPSoak(t *testing.T) {
	t.Parallel()
	faults := site.Scale(500, 30)
	for name, join := range map[string]bool{"lists": false, "join": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := site.Soak(t, soak.Options{Flat: true, Join: join, Topology: "../../topologies/flat.clab.yml", Seed: 2, Faults: faults})
			if len(report.Trace.Incidents) < faults || report.Holders < faults/4 {
				t.Errorf("%d faults, after which the holder changed %d times: too few to tell anything", len(report.Trace.Incidents), report.Holders)
			}
			if report.Looks["announced"] < faults || report.Looks["withdrawn"] < faults {
				t.Errorf("kernels were compared with their speakers' status only %v times", report.Looks)
			}
		})
	}
}

// TestLeaseUnderLoad holds a lease of 200 ms, with real-time priority on all masters,
// while every core is overloaded. The lease must not be lost, and its holder must
// answer all the time. It takes LEASE_LOAD_TIME, ten seconds by default.
//
// Three nodes share the processors of this machine. Go's sweeper waits a whole turn
// for another thread of its process, and two nodes can keep both processors from the
// third. A node on its own machine has another processor for that thread; here the
// test shortens the turns of real time instead.
func TestLeaseUnderLoad(t *testing.T) {
	const turn = "/proc/sys/kernel/sched_rr_timeslice_ms"
	before := site.ReadFile(t, turn)
	site.Must(t, os.WriteFile(turn, []byte("5"), 0))
	t.Cleanup(func() { site.Must(t, os.WriteFile(turn, []byte(before), 0)) })
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		f.Rewrite(t, m, "herald.yaml", func(s string) string {
			return "realtime: true\n" + strings.Replace(s, "lease: 3s", "lease: 200ms", 1)
		})
	}
	holder := f.Elect(t)
	election := site.Get[*admin.Election](t)(f.Election(t, holder))
	if election.Lease != 0.2 || election.Leases[0].Holder != holder {
		t.Fatalf("%s answers; its election is %+v", holder, election)
	}

	from, w := f.Mark(t), site.StartWitness(t)
	measured := site.UnderLoad(t, f.Node("c1"), "LEASE_LOAD_TIME")
	for _, m := range site.FlatMasters() {
		status := site.Get[admin.Status](t)(f.Speaker(m).Status(t))
		if status.Realtime != "on" {
			t.Errorf("real time of %s: %s", m, status.Realtime)
		}
		after := status.Election.Leases[0]
		if after.Holder != holder || after.Epoch != election.Leases[0].Epoch {
			site.FailTiming(t, w.Stolen(from.Time), "after %v under load %s reports that %s holds the lease, epoch %d; want %s, epoch %d",
				measured, m, after.Holder, after.Epoch, holder, election.Leases[0].Epoch)
		}
	}
}
