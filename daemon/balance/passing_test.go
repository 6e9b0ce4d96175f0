package balance

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/balancer/secondchance"
	"github.com/herald-vip/herald/election"
)

// fakeChance records the desired state.
type fakeChance struct {
	wanted secondchance.Wanted
	status secondchance.Status
}

func (f *fakeChance) Set(w secondchance.Wanted)   { f.wanted = w }
func (f *fakeChance) Status() secondchance.Status { return f.status }
func (f *fakeChance) Run(ctx context.Context)     { <-ctx.Done() }

// fakeBridge records opened addresses.
type fakeBridge struct{ opened []netip.Addr }

func (f *fakeBridge) Prepare(map[netip.Addr][]netip.Addr) error { return nil }
func (f *fakeBridge) Open(_ time.Duration, vips ...netip.Addr)  { f.opened = append(f.opened, vips...) }
func (f *fakeBridge) Close(...netip.Addr) error                 { return nil }
func (f *fakeBridge) Received(netip.Addr) (uint64, error)       { return 0, nil }

// Packets go to members that are alive and pass packets on, drained or not. So do new connections to a VIP that leaves, while one
// of these members serves it. Otherwise the bridge forwards them.
func TestPassing(t *testing.T) {
	chance, forwarder := &fakeChance{}, &fakeBridge{}
	n := New(slog.New(slog.DiscardHandler), &fakePlane{}, &fakePlane{}, forwarder, chance)
	c := parseBalancing(t, "announce: arp, checks: [apiserver]}", `announce: kernel, kernel: {table: 100}, checks: [apiserver]}
- {name: flat, addresses: [10.0.1.9], announce: arp, checks: [apiserver]}
- {name: plain, addresses: [10.99.0.11], announce: kernel, kernel: {table: 100}, bridge: false, checks: [apiserver]}`)
	state := func(name, at string, passes bool) election.MemberState {
		return election.MemberState{Member: name, Address: netip.MustParseAddrPort(at), Advertisement: election.Advertisement{Passing: passes, Checks: map[string]bool{"apiserver": true}}}
	}
	self, m2, older, timedOut := state("m1", "10.0.1.1:7946", false), state("m2", "10.0.1.2:7946", true), state("m3", "10.0.1.3:7946", false), state("m4", "10.0.1.4:7946", true)
	self.Self, timedOut.TimedOut = true, true
	v4, v6 := netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("fd00:99::10")
	other := netip.MustParseAddr("10.99.0.11")

	n.SetVIPs(c)
	n.SetLinks([]string{"eth0"})
	n.SetMemberStates([]election.MemberState{self, m2, older, timedOut})
	member := func(name, at string) secondchance.Member {
		return secondchance.Member{Name: name, Number: secondchance.NumberOf(name), Addr: netip.MustParseAddr(at)}
	}
	want := secondchance.Wanted{
		Self: member("m1", "10.0.1.1"), Others: []secondchance.Member{member("m2", "10.0.1.2")}, Links: []string{"eth0"},
		VIPs: map[netip.Addr]bool{v4: false, v6: false},
	}
	expect := func(after string, leaves bool) {
		t.Helper()
		want.VIPs[v4] = leaves
		if diff := cmp.Diff(want, chance.wanted, ports); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", after, diff)
		}
	}
	goTo := func(after string, names ...string) {
		t.Helper()
		if members, _, _ := n.BridgeStatus(v4); !cmp.Equal(members, names) {
			t.Errorf("after %s new connections go to %v, want %v", after, members, names)
		}
	}
	expect("the start", false)

	n.Open(time.Now().Add(time.Hour), v4, other) // other is not bridged
	expect("leaving", true)
	if diff := cmp.Diff([]netip.Addr{v4}, forwarder.opened, ports); diff != "" {
		t.Errorf("opened bridges (-want +got):\n%s", diff)
	}
	goTo("leaving without the second chance", "m2", "m3")
	chance.status = secondchance.Status{Able: true, To: []string{"m2"}}
	goTo("leaving", "m2")
	m2.Advertisement.Draining = true
	n.SetMemberStates([]election.MemberState{self, m2, older, timedOut})
	expect("leaving of all others", false)
	goTo("leaving of all others", "m3")
	m2.Advertisement.Draining = false
	n.SetMemberStates([]election.MemberState{self, m2, older, timedOut})
	expect("another member serves again", true)
	n.Close(v4)
	expect("serving again", false)

	if got, err := n.Held(v4, other); err != nil || !cmp.Equal(got, map[netip.Addr]int{v4: 0}, ports) {
		t.Errorf("Held returns %v, %v", got, err)
	}
	chance.status.Lacks = "something"
	if p := n.Passing(); p == nil || !cmp.Equal(p.Members, []string{"m2"}) || p.Error != "something" {
		t.Errorf("status %+v", p)
	}

	n.Open(time.Now().Add(time.Hour), v4)
	n.SetVIPs(parseBalancing(t))
	if len(chance.wanted.VIPs) > 0 || n.Passing() != nil {
		t.Errorf("with VIPs on a flat layer 2 only: %+v, %+v", chance.wanted, n.Passing())
	}
	n.SetVIPs(c)
	expect("configuring the VIP again", false)
}
