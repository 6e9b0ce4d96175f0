package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

// clusterOf returns a committed electorate.
func clusterOf(cluster, number uint64, names string) electorate.Committed {
	return electorate.Committed{Cluster: cluster, Number: number, Electorate: voters(names)}
}

// TestGivesWay checks that m2 leaves its own cluster for some others, and stands still for some.
func TestGivesWay(t *testing.T) {
	const ignores, stands, leaves = "ignores", "stands still", "leaves"
	for name, test := range map[string]struct {
		mine   electorate.Committed
		open   bool
		hears  []string // voters of mine
		theirs electorate.Committed
		from   string
		heard  bool
		want   string
	}{
		"observer that hears no voter":                  {clusterOf(5, 2, "m1 m3"), false, nil, clusterOf(9, 1, "m8"), "m8", true, leaves},
		"observer that hears no voter, by an observer":  {clusterOf(5, 2, "m1 m3"), false, nil, clusterOf(9, 1, "m8"), "w1", true, leaves},
		"observer that hears no voter, of no majority":  {clusterOf(5, 2, "m1 m3"), false, nil, clusterOf(4, 3, "m8"), "m8", false, ignores},
		"observer, of a greater cluster":                {clusterOf(5, 2, "m1 m3"), false, []string{"m1", "m3"}, clusterOf(4, 2, "m8"), "m8", true, leaves},
		"observer, of a lesser cluster":                 {clusterOf(5, 2, "m1 m3"), false, []string{"m1", "m3"}, clusterOf(9, 2, "m8"), "m8", true, ignores},
		"observer, of a cluster begun recently":         {clusterOf(5, 2, "m1 m3"), false, []string{"m1", "m3"}, clusterOf(4, 1, "m8"), "m8", true, ignores},
		"sole voter, of a greater cluster":              {clusterOf(5, 1, "m2"), true, nil, clusterOf(4, 1, "m8"), "m8", true, leaves},
		"sole voter, of a lesser cluster":               {clusterOf(5, 1, "m2"), true, nil, clusterOf(9, 1, "m8"), "m8", true, ignores},
		"sole voter, of an older cluster":               {clusterOf(5, 1, "m2"), true, nil, clusterOf(9, 2, "m8"), "m8", true, leaves},
		"sole voter, of no majority":                    {clusterOf(5, 1, "m2"), true, nil, clusterOf(4, 2, "m8"), "m8", false, ignores},
		"sole voter of a list":                          {clusterOf(5, 1, "m2"), false, nil, clusterOf(4, 2, "m8"), "m8", true, stands},
		"last voter":                                    {clusterOf(5, 2, "m2"), true, nil, clusterOf(4, 9, "m8"), "m8", true, stands},
		"voter, of a greater cluster":                   {clusterOf(5, 2, "m1 m2 m3"), true, []string{"m1", "m3"}, clusterOf(4, 3, "m8"), "m8", true, stands},
		"voter, of a greater cluster, by an observer":   {clusterOf(5, 2, "m1 m2 m3"), true, []string{"m1", "m3"}, clusterOf(4, 3, "m8"), "w1", true, stands},
		"voter, of a lesser cluster":                    {clusterOf(5, 2, "m1 m2 m3"), true, []string{"m1", "m3"}, clusterOf(9, 3, "m8"), "m8", true, ignores},
		"voter, of an older cluster":                    {clusterOf(5, 1, "m1 m2 m3"), true, []string{"m1", "m3"}, clusterOf(9, 3, "m8"), "m8", true, stands},
		"voter, of a cluster begun recently":            {clusterOf(5, 2, "m1 m2 m3"), true, []string{"m1", "m3"}, clusterOf(4, 1, "m8"), "m8", true, ignores},
		"voter, of no majority":                         {clusterOf(5, 2, "m1 m2 m3"), true, []string{"m1", "m3"}, clusterOf(4, 3, "m8"), "m8", false, ignores},
		"voter without majority, of a lesser cluster":   {clusterOf(5, 2, "m1 m2 m3"), true, nil, clusterOf(9, 1, "m8"), "m8", true, stands},
		"voter without majority, of no majority":        {clusterOf(5, 2, "m1 m2 m3"), true, nil, clusterOf(4, 3, "m8"), "m8", false, ignores},
		"left by one of the voters":                     {clusterOf(5, 2, "m1 m2 m3"), false, nil, clusterOf(9, 1, "m1 m2 m3"), "m1", true, stands},
		"left by a majority of the voters":              {clusterOf(5, 2, "m1 m2 m3 m4"), false, nil, clusterOf(9, 1, "m1 m2 m3"), "m1 m3 m4", true, leaves},
		"left by a majority, of no majority":            {clusterOf(5, 2, "m1 m2 m3"), false, nil, clusterOf(9, 1, "m1 m2 m3"), "m1 m3", false, ignores},
		"left at birth for an electorate since changed": {clusterOf(5, 1, "m1 m2 m3"), false, nil, clusterOf(9, 2, "m1 m3"), "m1 m3", true, leaves},
		"voters, of one that has begun alone":           {clusterOf(5, 1, "m1 m2 m3"), false, []string{"m1", "m3"}, clusterOf(4, 1, "m8"), "m8", true, ignores},
		"sole voter, of several that have begun":        {clusterOf(4, 1, "m2"), true, nil, clusterOf(5, 1, "m7 m8 m9"), "m8", true, leaves},
		"twin with the lesser identity":                 {clusterOf(5, 1, "m1 m2 m3"), false, nil, clusterOf(4, 1, "m1 m2 m3"), "m1", false, leaves},
		"twin with the greater identity":                {clusterOf(5, 1, "m1 m2 m3"), false, nil, clusterOf(9, 1, "m1 m2 m3"), "m1", false, ignores},
		"twins with the greater identity":               {clusterOf(5, 1, "m1 m2 m3"), false, nil, clusterOf(9, 1, "m1 m2 m3"), "m1 m3", true, stands},
		"twin by an observer":                           {clusterOf(5, 1, "m1 m2 m3"), false, nil, clusterOf(4, 1, "m1 m2 m3"), "w1", false, ignores},
		"twin that has changed":                         {clusterOf(5, 1, "m1 m2 m3"), false, nil, clusterOf(4, 2, "m1 m2 m3"), "m1", false, ignores},
		"twin after a change":                           {clusterOf(5, 2, "m1 m2 m3"), false, nil, clusterOf(4, 1, "m1 m2 m3"), "m1", false, ignores},
		"another first electorate":                      {clusterOf(5, 1, "m1 m2 m3"), false, nil, clusterOf(4, 1, "m1 m2"), "m1", false, ignores},
	} {
		t.Run(name, func(t *testing.T) {
			var open *lease.Open
			if test.open {
				open = &lease.Open{Forget: forget}
			}
			a := newAloneIn(t, lease.State{Committed: test.mine, Longest: duration}, test.mine.Electorate, open)
			for _, voter := range test.hears {
				a.hear(voter, func(*message.Message) {})
			}
			a.wait(duration / 3)
			for _, from := range strings.Fields(test.from) {
				a.hear(from, func(m *message.Message) {
					m.Cluster, m.Number, m.Active, m.Heard = test.theirs.Cluster, test.theirs.Number, test.theirs.Digest(), test.heard
					m.Electorate = &test.theirs.Electorate
				})
			}
			got := ignores
			switch s := a.disk; {
			case s.Committed.Cluster == test.theirs.Cluster:
				got = leaves
			case strings.Contains(a.Status(a.now).Problem, " belongs to another cluster, "):
				got = stands
			}
			if got != test.want {
				t.Errorf("it %s, want %s", got, test.want)
			}
		})
	}
}

// TestStandsStill checks that a voter of a lesser cluster grants, accepts and proposes nothing while it receives a
// greater one.
func TestStandsStill(t *testing.T) {
	four := voters("m1 m2 m3 m4")
	a := newAlone(t, lease.State{Committed: clusterOf(5, 2, "m1 m2 m3"), Longest: duration}, four, false)
	greater := func(m *message.Message) { m.Cluster, m.Number, m.Heard = 4, 2, true }
	vote := func(counter uint64) message.Kind {
		_, items := a.hear("m1", func(m *message.Message) {
			m.Items = []message.Item{{Kind: message.Prepare, Lease: 1, Counter: counter}}
		})
		return items[len(items)-1].Kind
	}
	if got := vote(1); got != message.Promise {
		t.Fatalf("before, it answers %v", got)
	}
	a.hear("m8", greater)
	if got := vote(2); got != message.Refuse {
		t.Errorf("it answers %v", got)
	}
	expect(t, "asked", a.change("m1", asked(5, "m1")), 0)
	expect(t, "proposed", a.change("m1", proposed(5, "m1", voters("m1 m2"))), 0)
	a.sent = nil
	for _, from := range []string{"m1", "m3", "m4"} {
		a.hear(from, func(m *message.Message) { m.Desired = four.Digest() })
	}
	a.wait(duration / 2)
	for _, out := range a.sent {
		if out.Change != nil {
			t.Errorf("it sends %+v", out.Change)
		}
	}
	a.wait(duration)
	if got := vote(3); got != message.Promise {
		t.Errorf("after the greater cluster timed out, it answers %v", got)
	}
}

// TestTwoClustersMeet lets two clusters of three voters each meet: the lesser one stands still within an exchange, and
// goes on when the other is gone.
func TestTwoClustersMeet(t *testing.T) {
	c := newCluster(t)
	c.observers = 8
	var last time.Time
	c.apart = func() { last = c.now }
	for _, names := range []string{"m1 m2 m3", "m4 m5 m6"} {
		for _, name := range strings.Fields(names) {
			c.start(name, voters(names))
		}
	}
	c.campaign(vip)
	c.run(5 * duration)
	if c.now.Sub(last) > step {
		t.Fatal("there never were two holders")
	}
	for _, a := range c.names {
		c.nodes[a].AddObservers(c.now, c.others(a)...)
	}
	c.run(4 * step)
	c.apart = nil
	c.run(20 * duration)
	greater := c.nodes[c.awaitHolder(0)].Status(c.now).Active.Members
	for _, name := range c.names {
		if s := c.nodes[name].Status(c.now); (s.Problem == "") != slices.Contains(greater, name) || len(s.Active.Members) != 3 {
			t.Errorf("%s reports %q with %v", name, s.Problem, s.Active)
		}
	}
	for _, name := range greater {
		c.kill(name)
	}
	c.awaitHolder(4 * duration)
}

// TestClustersAreQuiet checks that voters of two clusters without candidates do not answer each other's every message.
func TestClustersAreQuiet(t *testing.T) {
	c := newCluster(t)
	c.observers = 8
	for _, name := range []string{"m1", "m2"} {
		c.start(name, voters(name))
	}
	c.run(5 * duration)
	c.nodes["m1"].AddObservers(c.now, "m2")
	c.run(duration)
	before := c.sent
	c.run(10 * duration)
	if n := c.sent - before; n > 10*2*30 {
		t.Errorf("%d messages in 10 leases", n)
	}
}

// TestBirthIsAgreed checks that members that begin a cluster at once give it one identity, which a later cluster of the
// same list does not have.
func TestBirthIsAgreed(t *testing.T) {
	seen := map[uint64]bool{}
	for range 2 {
		c := newCluster(t, "m1", "m2", "m3")
		c.incarnation += uint64(len(seen))
		for _, name := range c.names {
			c.start(name, c.electorate)
		}
		c.await(3*duration, "a member has begun", func() bool { return c.disks["m1"].Committed.Number > 0 })
		for _, name := range c.names {
			seen[c.disks[name].Committed.Cluster] = true
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d identities of two clusters: %s", len(seen), fmt.Sprint(seen))
	}
}

// TestBidEndsWithTheCluster checks that a ballot that began before a greater cluster was received grants nothing after.
func TestBidEndsWithTheCluster(t *testing.T) {
	for _, stands := range []bool{false, true} {
		a := newAlone(t, lease.State{Committed: clusterOf(5, 2, "m1 m2 m3"), Longest: duration}, voters("m1 m2 m3"), false)
		for _, from := range []string{"m1", "m3"} {
			a.hear(from, func(*message.Message) {})
		}
		a.Campaign(a.now, lease.Candidacy{Lease: vip})
		answer := func(kind message.Kind, to message.Item) message.Item {
			_, items := a.hear("m1", func(m *message.Message) {
				m.Items = []message.Item{{Kind: kind, Lease: to.Lease, Counter: to.Counter, Round: to.Round}}
			})
			return append(items, message.Item{})[0]
		}
		a.wait(duration / 5)
		_, items := a.said("m1")
		prepare := slices.IndexFunc(items, func(it message.Item) bool { return it.Kind == message.Prepare })
		if prepare < 0 {
			t.Fatalf("no ballot: %+v", items)
		}
		propose := answer(message.Promise, items[prepare])
		if propose.Kind != message.Propose {
			t.Fatalf("no proposal: %+v", propose)
		}
		if stands {
			a.hear("m8", func(m *message.Message) { m.Cluster, m.Number, m.Heard = 4, 2, true })
		}
		answer(message.Accept, propose)
		if holds := a.Lease(a.now, vip).Holder == "m2"; holds == stands {
			t.Errorf("holds the lease: %t, although it stands still: %t", holds, stands)
		}
	}
}

// TestFreshMastersBeginBesideADeadCluster checks that the record of lost voters keeps no listed members from beginning.
func TestFreshMastersBeginBesideADeadCluster(t *testing.T) {
	for _, late := range []bool{false, true} {
		c := newCluster(t)
		c.observers = 8
		c.electorate = voters("m1 m2 m3")
		c.disks["w1"] = lease.State{Committed: clusterOf(5, 4, "m7 m8 m9"), Longest: duration}
		others := func() {
			c.start("m2", c.electorate)
			c.start("m3", c.electorate)
		}
		c.start("m1", c.electorate)
		if !late {
			others()
		}
		c.start("w1", c.electorate)
		c.run(3 * duration)
		if late {
			others()
		}
		c.campaign(vip)
		c.awaitHolder(20 * duration)
	}
}

// TestBootstrapNamesTheDeadCluster checks that a bootstrapping member names the dead cluster of a straggler.
func TestBootstrapNamesTheDeadCluster(t *testing.T) {
	c := newCluster(t)
	c.observers = 8
	c.open = &lease.Open{Bootstrap: true, Forget: forget}
	c.start("m1", voters("m1"))
	c.open = &lease.Open{Forget: forget}
	c.disks["m3"] = lease.State{Committed: clusterOf(5, 4, "m3 m8 m9"), Longest: duration}
	c.start("m3", voters("m3"))
	c.nodes["m1"].AddObservers(c.now, "m3")
	c.nodes["m3"].AddObservers(c.now, "m1")
	c.run(10 * time.Second)
	if s := c.nodes["m1"].Status(c.now); s.Number != 0 || !strings.Contains(s.Problem, "m3 belongs to a cluster without a majority") {
		t.Errorf("electorate %d, problem %q", s.Number, s.Problem)
	}
}

// TestTwinLeavesAnAcceptance checks that a voter that has accepted electorate 2 takes no twin of electorate 1.
func TestTwinLeavesAnAcceptance(t *testing.T) {
	a := newAlone(t, lease.State{Committed: clusterOf(5, 1, "m1 m2 m3"), Longest: duration}, voters("m1 m2"), false)
	a.change("m1", asked(5, "m1"))
	a.change("m1", proposed(5, "m1", voters("m1 m2")))
	a.hear("m3", func(m *message.Message) {
		e := voters("m1 m2 m3")
		m.Cluster, m.Number, m.Active, m.Electorate = 4, 1, e.Digest(), &e
	})
	if a.disk.Value == nil || a.disk.Committed.Cluster != 5 {
		t.Errorf("the disk has %+v", a.disk)
	}
}

// TestNamesakeForestalls checks that a bootstrapping member begins nothing while another node of its name has a majority.
func TestNamesakeForestalls(t *testing.T) {
	a := newAloneIn(t, lease.State{}, voters("m2"), &lease.Open{Bootstrap: true, Forget: forget})
	namesake := voters("m2@old")
	for range 30 {
		a.hear("w1", func(m *message.Message) {
			m.Cluster, m.Number, m.Active, m.Heard, m.Electorate = 4, 1, namesake.Digest(), true, &namesake
		})
		a.wait(duration / 3)
	}
	if s := a.Status(a.now); s.Number != 0 || !strings.Contains(s.Problem, "give each node its own name") {
		t.Errorf("electorate %d, problem %q", s.Number, s.Problem)
	}
}
