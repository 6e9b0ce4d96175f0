package election

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
)

func named(name, at string) *memberlist.Node {
	a := ap(at)
	return &memberlist.Node{Name: name, Addr: net.IP(a.Addr().AsSlice()), Port: a.Port()}
}

func TestRosterKeepsOut(t *testing.T) {
	var log book
	g := &gate{log: log.logger()}
	r := newRoster("m1", g, nil, nil)
	r.configure(trio(), nil)
	for name, test := range map[string]struct {
		node *memberlist.Node
		want string
	}{
		"itself":           {named("m1", "10.0.0.1:7946"), ""},
		"a member":         {named("m2", "10.0.0.2:7946"), ""},
		"IPv4 as IPv6":     {&memberlist.Node{Name: "m2", Addr: net.IPv4(10, 0, 0, 2).To16(), Port: 7946}, ""},
		"another address":  {named("m2", "10.0.0.9:7946"), `"m2" is at 10.0.0.2:7946 in the configuration, not at 10.0.0.9:7946`},
		"another port":     {named("m2", "10.0.0.2:1"), `"m2" is at 10.0.0.2:7946 in the configuration, not at 10.0.0.2:1`},
		"another name":     {named("m9", "10.0.0.2:7946"), `"m9" is not among the configured members`},
		"no address":       {&memberlist.Node{Name: "m2", Addr: net.IP{1, 2}, Port: 7946}, `"m2" is at 10.0.0.2:7946 in the configuration, not at invalid AddrPort`},
		"this one's name":  {named("m1", "10.0.0.2:7946"), `"m1" is at 10.0.0.1:7946 in the configuration, not at 10.0.0.2:7946`},
		"nobody, anywhere": {&memberlist.Node{}, `"" is not among the configured members`},
	} {
		t.Run(name, func(t *testing.T) {
			before := g.refused.Load()
			got := ""
			if err := r.NotifyAlive(test.node); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Fatalf("error %q, want %q", got, test.want)
			}
			if counted := g.refused.Load() > before; counted != (test.want != "") {
				t.Fatalf("counted: %v", counted)
			}
		})
	}
}

func TestRosterRefusesAnotherCluster(t *testing.T) {
	r := newRoster("m1", &gate{}, nil, nil)
	r.configure(trio(), nil)
	foreign, member := named("a", "10.1.0.1:7946"), named("m2", "10.0.0.2:7946")
	if err := r.NotifyMerge([]*memberlist.Node{foreign, named("m3", "10.1.0.2:7946")}); err == nil {
		t.Error("a list without a member is taken")
	}
	if err := r.NotifyMerge([]*memberlist.Node{foreign, member}); err != nil {
		t.Errorf("a list with a member and another node: %v", err)
	}
}

// Of a node without a vote, the configuration says where to look, not for whom.
func TestRosterOfSeeds(t *testing.T) {
	r := newRoster("w1", &gate{open: true, log: slog.New(slog.DiscardHandler)}, nil)
	r.configure(map[string]netip.AddrPort{"w1": ap("10.0.0.9:7946")}, trio())
	if at := r.address("m1"); at != trio()["m1"] {
		t.Errorf("m1 is at %v", at)
	}
	moved, other, odd := named("m1", "10.0.0.7:7946"), named("m9", "10.0.0.2:7946"), named("m8", "10.0.0.9:7946")
	if err := r.NotifyMerge([]*memberlist.Node{odd, other}); err != nil {
		t.Error(err)
	}
	if err := r.NotifyMerge([]*memberlist.Node{odd}); err == nil {
		t.Error("a list of nobody who could be a member is taken")
	}
	for _, n := range []*memberlist.Node{moved, other} {
		if err := r.NotifyAlive(n); err != nil {
			t.Error(err)
		}
		n.DMax = offersDelegate
		r.NotifyJoin(n)
		if at := where(n); r.address(n.Name) != at || !r.gate.knows(at) || !r.joined(n.Name) {
			t.Errorf("%s is at %v", n.Name, r.address(n.Name))
		}
	}
	if err := r.NotifyAlive(odd); err == nil {
		t.Error("somebody else is where this node is")
	}
	if joined, left := r.turnout(); len(joined) != 2 || len(left) > 0 || len(r.listeners()) != 2 {
		t.Errorf("%v have joined, %v left, %v listen", joined, left, r.listeners())
	}
	other.State = memberlist.StateLeft
	r.NotifyLeave(other)
	moved.State = memberlist.StateDead
	r.NotifyLeave(moved)
	if joined, left := r.turnout(); len(joined) > 0 || !slices.Equal(left, []string{"m9"}) || len(r.listeners()) > 0 || !r.alone() {
		t.Errorf("%v have joined, %v left, %v listen", joined, left, r.listeners())
	}
	r.configure(map[string]netip.AddrPort{"w1": ap("10.0.0.9:7946")}, trio())
	if !r.gate.knows(trio()["m1"]) || !r.gate.knows(where(moved)) {
		t.Error("seeds, or those that were found, are kept out")
	}
}

func TestRosterKnowsWhoHasJoined(t *testing.T) {
	r := newRoster("m1", &gate{}, nil, nil)
	r.configure(trio(), nil)
	r.NotifyJoin(named("m1", "10.0.0.1:7946"))
	r.NotifyJoin(named("m2", "10.0.0.2:7946"))
	r.NotifyJoin(named("m3", "10.0.0.9:7946")) // where it was until the last configuration
	r.NotifyJoin(named("m9", "10.0.0.8:7946"))
	for name, want := range map[string]bool{"m1": true, "m2": true, "m3": false, "m9": false} {
		if r.joined(name) != want {
			t.Errorf("%s has joined: %v", name, !want)
		}
	}
	if r.address("m9") != (netip.AddrPort{}) {
		t.Error("a node that is no member has an address")
	}
	r.NotifyLeave(named("m2", "10.0.0.2:7946"))
	if r.joined("m2") {
		t.Error("a member that has left is still there")
	}
}

func TestRosterLetsGuestsInWithTheKey(t *testing.T) {
	g := &gate{log: slog.New(slog.DiscardHandler), open: true}
	r := newRoster("m1", g, nil, make(chan struct{}, 1))
	r.configure(trio(), nil)
	for name, test := range map[string]struct {
		node *memberlist.Node
		want string
	}{
		"a guest":          {named("w1", "10.0.0.9:7946"), ""},
		"a member":         {named("m2", "10.0.0.2:7946"), ""},
		"a member's name":  {named("m2", "10.0.0.9:7946"), `"m2" is at 10.0.0.2:7946 in the configuration, not at 10.0.0.9:7946`},
		"a member's place": {named("w1", "10.0.0.2:7946"), `"w1" is not among the configured members, and at 10.0.0.2:7946, where "m2" should be`},
		"no name":          {named("", "10.0.0.9:7946"), `"", which is not configured, is at 10.0.0.9:7946: that cannot be`},
		"no port":          {named("w1", "10.0.0.9:0"), `"w1", which is not configured, is at 10.0.0.9:0: that cannot be`},
		"other family":     {named("w1", "[fd00::9]:7946"), `"w1", which is not configured, is at [fd00::9]:7946: that cannot be`},
		"no address":       {&memberlist.Node{Name: "w1", Addr: net.IP{1, 2}, Port: 7946}, `"w1", which is not configured, is at invalid AddrPort: that cannot be`},
	} {
		got := ""
		if err := r.NotifyAlive(test.node); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: error %q, want %q", name, got, test.want)
		}
	}

	if err := r.NotifyMerge([]*memberlist.Node{named("w1", "10.0.0.9:7946"), named("w2", "10.0.0.8:7946")}); err != nil {
		t.Errorf("guests alone: %v", err)
	}
	if err := r.NotifyMerge([]*memberlist.Node{named("w1", "10.0.0.9:7946"), named("m2", "10.1.0.2:7946")}); err == nil {
		t.Error("the list of another cluster is taken")
	}

	r.NotifyJoin(named("w1", "10.0.0.9:7946"))
	if !r.joined("w1") || !g.packet(ap("10.0.0.9:7946")) || !slices.Equal(r.present(), []string{"w1"}) {
		t.Error("a guest that joined is not there")
	}
	r.NotifyJoin(named("w1", "10.0.0.7:7946")) // elsewhere
	if r.address("w1") != ap("10.0.0.7:7946") {
		t.Errorf("the guest is at %v", r.address("w1"))
	}
	r.NotifyLeave(named("w1", "10.0.0.7:7946"))
	if r.keep(map[string]bool{"w1": true}) || r.address("w1") != ap("10.0.0.7:7946") {
		t.Error("forgotten while the machine knows it")
	}
	if !r.keep(nil) || r.address("w1").IsValid() {
		t.Error("remembered for ever")
	}
	for i := range maxGuests {
		r.NotifyJoin(named(fmt.Sprint("w", i), fmt.Sprintf("10.1.%d.%d:7946", i>>8, i&255)))
	}
	if err := r.NotifyAlive(named("late", "10.0.0.9:7946")); err == nil || !strings.Contains(err.Error(), "1024") {
		t.Errorf("one too many: %v", err)
	}
	if err := r.NotifyAlive(named("w7", "10.1.0.7:7946")); err != nil {
		t.Errorf("one of those that are there: %v", err)
	}
}
