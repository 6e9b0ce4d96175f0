package election

import (
	"net"
	"net/netip"
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
	r.configure(trio())
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
	r.configure(trio())
	foreign, member := named("a", "10.1.0.1:7946"), named("m2", "10.0.0.2:7946")
	if err := r.NotifyMerge([]*memberlist.Node{foreign, named("m3", "10.1.0.2:7946")}); err == nil {
		t.Error("a list without a member is taken")
	}
	if err := r.NotifyMerge([]*memberlist.Node{foreign, member}); err != nil {
		t.Errorf("a list with a member and another node: %v", err)
	}
}

func TestRosterKnowsWhoHasJoined(t *testing.T) {
	r := newRoster("m1", &gate{}, nil, nil)
	r.configure(trio())
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
