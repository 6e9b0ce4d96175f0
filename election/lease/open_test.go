package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/must"
)

// forget is shorter than the default of four hours; spare equals replaceAfter.
const forget, spare = 2 * time.Minute, time.Minute

// newOpenCluster starts a member that begins a cluster, and others that join.
func newOpenCluster(t *testing.T, first string, others ...string) *cluster {
	t.Helper()
	c := newCluster(t)
	c.observers = 8
	c.open = &lease.Open{Bootstrap: true, Forget: forget}
	c.join(first)
	c.awaitHolder(5 * time.Second)
	c.open = &lease.Open{Forget: forget}
	for _, name := range others {
		c.join(name)
	}
	return c
}

// join starts a member that requests a vote and campaigns.
func (c *cluster) join(name string) {
	c.t.Helper()
	n := c.start(name, electorate.Electorate{Members: []string{name}, Duration: duration})
	n.Campaign(c.now, lease.Candidacy{Lease: vip})
	for _, other := range c.others(name) { // reported by memberlist
		n.AddObservers(c.now, other)
		c.nodes[other].AddObservers(c.now, name)
	}
}

func (c *cluster) awaitVoters(d time.Duration, names ...string) {
	c.t.Helper()
	c.await(d, "the voters "+strings.Join(names, ", "), func() bool {
		return !slices.ContainsFunc(c.names, func(name string) bool {
			active := c.nodes[name].Status(c.now).Active
			return active == nil || !slices.Equal(active.Members, names)
		})
	})
}

func TestMembersJoinAndLeave(t *testing.T) {
	c := newOpenCluster(t, "m1@#1")
	c.join("m2@#2")
	c.run(5 * time.Second)
	c.awaitVoters(0, "m1@#1") // two voters would need each other
	c.join("m3@#3")
	c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3")
	if h := c.holder(vip); h != "m1@#1" {
		t.Fatalf("%q holds the VIP, not the undisturbed m1", h)
	}
	c.kill("m1@#1")
	c.awaitHolder(3 * duration)
	c.join("m4@#4")
	c.run(spare - 5*time.Second)
	c.awaitVoters(0, "m1@#1", "m2@#2", "m3@#3") // m1 may come back
	c.awaitVoters(10*time.Second, "m2@#2", "m3@#3", "m4@#4")
	c.join("m1@#1") // it returns, with its disk
	c.run(5 * time.Second)
	c.awaitVoters(0, "m2@#2", "m3@#3", "m4@#4")
	c.join("m5@#5")
	c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3", "m4@#4", "m5@#5")
}

// TestJoiningBeginsNothing checks that a member that only joins waits for a cluster.
func TestJoiningBeginsNothing(t *testing.T) {
	c := newCluster(t)
	c.observers = 8
	c.open = &lease.Open{Forget: forget}
	c.join("m1@#1")
	c.join("m2@#2")
	c.run(time.Minute)
	for name, n := range c.nodes {
		if e := n.Status(c.now).Active; e != nil {
			t.Errorf("%s began a cluster: %v", name, e)
		}
	}
}

// TestStaysInItsCluster checks that these ignore another cluster: an observer that reaches a voter of its own, every
// voter, and a sole voter that has not begun its cluster itself.
func TestStaysInItsCluster(t *testing.T) {
	for name, test := range map[string]struct {
		members []string
		who     string
		prepare func(*cluster, *node)
	}{
		"stands by": {[]string{"m2@#2", "m3@#3", "m4@#4"}, "m4@#4", func(*cluster, *node) {}},
		"receives no member": {[]string{"m2@#2", "m3@#3"}, "m3@#3", func(c *cluster, n *node) {
			c.oneWay(true, "m1@#1", n.name)
			c.oneWay(true, "m2@#2", n.name)
		}},
		"is alone": {nil, "m1@#1", func(c *cluster, n *node) {
			c.reconfigure(electorate.Electorate{Members: []string{n.name}, Duration: 2 * duration}, n.name)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newOpenCluster(t, "m1@#1", test.members...)
			c.run(10 * time.Second)
			n := c.nodes[test.who]
			test.prepare(c, n)
			c.run(10 * time.Second)
			want := n.Status(c.now).Active.Members
			c.open = &lease.Open{Observer: true}
			c.join("m5@#5")
			c.run(duration)
			other := electorate.Electorate{Members: []string{"m5@#5"}, Duration: duration}
			msg := c.forge("m5@#5", n.name, 100000)
			msg.Cluster, msg.Number, msg.Active, msg.Electorate = msg.Cluster+1, 9, other.Digest(), &other
			n.Receive(c.now, msg)
			if got := n.Status(c.now).Active.Members; !slices.Equal(got, want) {
				t.Errorf("it follows %v, and was in %v", got, want)
			}
		})
	}
}

// TestNamesake checks that a member of the same name does not replace a live voter.
func TestNamesake(t *testing.T) {
	c := newOpenCluster(t, "m1@#1", "m2@#2", "m3@#3")
	c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3")
	c.join("m1@#9")
	c.run(10 * time.Second)
	c.awaitVoters(0, "m1@#1", "m2@#2", "m3@#3")
}

func TestReinstalledMemberReplacesItself(t *testing.T) {
	c := newOpenCluster(t, "m1@#1", "m2@#2", "m3@#3")
	c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3")
	c.kill("m1@#1")
	c.join("m1@#9")
	c.awaitVoters(5*time.Second, "m1@#9", "m2@#2", "m3@#3")
	c.awaitHolder(3 * duration)
}

func TestDeadAreForgottenWhileAMajorityIsThere(t *testing.T) {
	c := newOpenCluster(t, "m1@#1", "m2@#2", "m3@#3", "m4@#4", "m5@#5")
	c.awaitVoters(10*time.Second, "m1@#1", "m2@#2", "m3@#3", "m4@#4", "m5@#5")
	c.kill("m4@#4")
	c.run(2 * forget)
	c.awaitVoters(0, "m1@#1", "m2@#2", "m3@#3", "m4@#4", "m5@#5") // four would need three, too
	c.kill("m5@#5")
	c.run(spare + 10*time.Second)
	c.awaitVoters(0, "m1@#1", "m2@#2", "m3@#3", "m4@#4", "m5@#5") // no member can take their place
	c.awaitVoters(2*forget, "m1@#1", "m2@#2", "m3@#3")
	c.kill("m3@#3")
	c.kill("m2@#2")
	c.run(2 * forget)
	if h := c.holder(vip); h != "" {
		t.Fatalf("%s holds the VIP without a majority", h)
	}
}

// TestRestartedVotersWait checks that after a power cut of all, voters wait as long for each other as at any other
// time.
func TestRestartedVotersWait(t *testing.T) {
	all := []string{"m1@#1", "m2@#2", "m3@#3", "m4@#4", "m5@#5"}
	c := newOpenCluster(t, all[0], all[1:]...)
	c.awaitVoters(10*time.Second, all...)
	for _, name := range all {
		c.kill(name)
	}
	for _, name := range all[:3] {
		c.join(name)
	}
	c.run(forget - 10*time.Second)
	c.awaitVoters(0, all...)
	c.awaitVoters(time.Minute, all[:3]...)
}

// TestUnfitMembersGetNoVote checks that members without candidacies, with other rules or without a request get no
// vote. There are two of them, as one alone would have to wait for another anyway.
func TestUnfitMembersGetNoVote(t *testing.T) {
	longer := func(name string) electorate.Electorate {
		return electorate.Electorate{Members: []string{name}, Duration: 2 * duration}
	}
	for name, add := range map[string]func(*cluster, string){
		"stands for nothing": func(c *cluster, name string) {
			c.join(name)
			c.nodes[name].StepDown(c.now, vip)
		},
		"other rules": func(c *cluster, name string) {
			c.join(name)
			must.Do(t, c.nodes[name].Reconfigure(c.now, longer(name)))
		},
		"observer": func(c *cluster, name string) {
			c.open = &lease.Open{Observer: true}
			c.join(name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newOpenCluster(t, "m1@#1", "m2@#2", "m3@#3")
			c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3")
			add(c, "m4@#4")
			add(c, "m5@#5")
			c.run(10 * time.Second)
			c.awaitVoters(0, "m1@#1", "m2@#2", "m3@#3")
			want := ""
			if name == "other rules" {
				want = "this node asks for a vote with lease 1.2s and quorum majority, the voters have 600ms and majority: make them the same"
			}
			if got := c.nodes["m5@#5"].Status(c.now).Lag; got != want {
				t.Errorf("m5 reports %q, want %q", got, want)
			}
		})
	}
}

// TestLongNames checks that the number of voters is limited by the size of a message.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 200)
	c := newOpenCluster(t, "m1"+long+"@#1", "m2"+long+"@#2", "m3"+long+"@#3", "m4@#4", "m5@#5")
	c.awaitVoters(5*time.Second, "m1"+long+"@#1", "m2"+long+"@#2", "m3"+long+"@#3")
	c.run(10 * time.Second)
	c.awaitHolder(0)
}

func TestRemove(t *testing.T) {
	c := newOpenCluster(t, "m1@#1", "m2@#2", "m3@#3")
	c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3")
	remove := func(name string) error { return c.nodes["m1@#1"].Remove(c.now, name) }
	for name, want := range map[string]string{
		"m1": "m1 is this node: stop herald here, and remove it from another voter",
		"m2": "m2 is alive, and would get its vote again: stop herald there first",
		"m7": "m7 has no vote: the voters are [m1 m2 m3]",
	} {
		if err := remove(name); err == nil || err.Error() != want {
			t.Errorf("remove %s: %v, want %q", name, err, want)
		}
	}
	c.kill("m2@#2")
	c.run(2 * duration)
	must.Do(t, remove("m2"))
	c.awaitVoters(duration, "m1@#1", "m3@#3")
	c.run(10 * time.Second)
	c.awaitVoters(0, "m1@#1", "m3@#3")
	if h := c.holder(vip); h != "m1@#1" {
		t.Fatalf("%q holds the VIP, not the undisturbed m1", h)
	}
}

// TestListedMembersBecomeOpen migrates listed members to an open electorate without moving the lease.
func TestListedMembersBecomeOpen(t *testing.T) {
	c := newCluster(t, "m1@", "m2@", "m3@")
	c.observers = 8
	c.campaign(vip)
	holder := c.awaitHolder(5 * time.Second)
	c.open = &lease.Open{Forget: forget}
	for _, name := range []string{"m1@", "m2@", "m3@"} {
		if name != holder {
			c.kill(name)
			c.join(name)
			c.run(3 * duration)
		}
	}
	if h := c.holder(vip); h != holder {
		t.Fatalf("%q holds the VIP, not the undisturbed %s", h, holder)
	}
	c.kill(holder)
	c.join(holder)
	c.awaitHolder(3 * duration)
	c.join("m4@#4")
	c.join("m5@#5")
	c.awaitVoters(5*time.Second, "m1@", "m2@", "m3@", "m4@#4", "m5@#5")
}

// TestMembersAreReplacedInTurn replaces masters one by one with nodes of other names, as Cluster API does.
func TestMembersAreReplacedInTurn(t *testing.T) {
	c := newOpenCluster(t, "m1@#1", "m2@#2", "m3@#3")
	c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3")
	for _, turn := range [][2]string{{"m1@#1", "m4@#4"}, {"m2@#2", "m5@#5"}, {"m3@#3", "m6@#6"}} {
		c.join(turn[1])
		c.run(5 * time.Second)
		c.kill(turn[0])
		c.awaitHolder(3 * duration)
		c.run(spare + 5*time.Second)
	}
	c.awaitVoters(0, "m4@#4", "m5@#5", "m6@#6")
}

// TestFirstMemberIsInstalledAnew reinstalls the only voter while a second master stands by: it begins a new cluster,
// and the other follows.
func TestFirstMemberIsInstalledAnew(t *testing.T) {
	c := newOpenCluster(t, "m1@#1", "m2@#2")
	c.run(5 * time.Second)
	c.kill("m1@#1")
	c.open = &lease.Open{Bootstrap: true, Forget: forget}
	c.join("m1@#9")
	c.awaitHolder(10 * time.Second)
	c.awaitVoters(10*time.Second, "m1@#9")
	c.join("m3@#3")
	c.awaitVoters(10*time.Second, "m1@#9", "m2@#2", "m3@#3")
}

// TestSecondClusterEnds: a bootstrapping member that lost its disk and reaches no other begins a second cluster. It
// leaves that as soon as it receives a member of the first.
func TestSecondClusterEnds(t *testing.T) {
	c := newOpenCluster(t, "m1@#1", "m2@#2", "m3@#3")
	c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3")
	c.kill("m1@#1")
	c.run(5 * time.Second)
	c.open = &lease.Open{Bootstrap: true, Forget: forget}
	for _, other := range c.names {
		c.cut[[2]string{"m1@#9", other}], c.cut[[2]string{other, "m1@#9"}] = true, true
	}
	two := 0
	c.apart = func() { two++ }
	c.join("m1@#9")
	c.run(30 * time.Second)
	if two == 0 {
		t.Fatal("there never were two clusters, so the test shows nothing")
	}
	clear(c.cut)
	c.run(2 * duration)
	c.apart = nil
	c.awaitVoters(10*time.Second, "m1@#9", "m2@#2", "m3@#3")
	c.awaitHolder(0)
}

// late delays every packet by 8 s, as a port that forwards too late does.
func late(_, _ string) []int { return []int{int(8 * time.Second / step)} }

// TestTwoBootstraps starts members that bootstrap a moment apart. If they reach each other by TCP, one cluster begins.
// If packets come too late, all begin one, and only the cluster that outranks the others is left once they have come.
func TestTwoBootstraps(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond, time.Second, 10 * time.Second} {
		for _, names := range [][]string{{"m1@#1", "m2@#2"}, {"m2@#2", "m1@#1"}, {"m1@#1", "m2@#2", "m3@#3"}, {"m3@#3", "m1@#1", "m2@#2"}} {
			for _, delayed := range []bool{false, true} {
				t.Run(fmt.Sprint(apart, names, delayed), func(t *testing.T) {
					c := newCluster(t)
					c.observers, c.byTCP = 8, !delayed
					var last time.Time
					if delayed {
						c.lag, c.apart = late, func() { last = c.now }
					}
					c.open = &lease.Open{Bootstrap: true, Forget: forget}
					for i, name := range names {
						if c.join(name); i < len(names)-1 {
							c.run(apart)
						}
					}
					// The last one begins after 3 s, and the keepalive that says so arrives within 8 s and a third of a lease.
					c.run(11*time.Second + duration/3 + duration/20)
					if delayed && (last.IsZero() || c.now.Sub(last) < 2*time.Millisecond) {
						t.Errorf("two holders until %v before now", c.now.Sub(last))
					}
					c.apart, c.lag = nil, nil
					c.open = &lease.Open{Forget: forget}
					if len(names) == 2 {
						c.join("m3@#3")
					}
					c.run(10 * time.Second)
					c.awaitVoters(0, "m1@#1", "m2@#2", "m3@#3")
					c.awaitHolder(0)
				})
			}
		}
	}
}

// TestSurvivorOfADeadCluster begins a site anew on m1, as the documentation says. m3 returns with an electorate that has
// no majority any more: m1 keeps its cluster, and m3 names the cure.
func TestSurvivorOfADeadCluster(t *testing.T) {
	c := newOpenCluster(t, "m1@#1", "m2@#2", "m3@#3")
	c.awaitVoters(5*time.Second, "m1@#1", "m2@#2", "m3@#3")
	for _, name := range []string{"m1@#1", "m2@#2", "m3@#3"} {
		c.kill(name)
	}
	c.open = &lease.Open{Bootstrap: true, Forget: forget}
	c.join("m1@#9")
	c.awaitHolder(10 * time.Second)
	c.open = &lease.Open{Forget: forget}
	c.join("m3@#3")
	c.run(2 * time.Minute)
	if h := c.holder(vip); h != "m1@#9" {
		t.Errorf("%q holds the VIP", h)
	}
	want := "m1 belongs to another cluster, [m1@#9; 600ms, majority], to which this node's gives way, [m1@#1 m2@#2 m3@#3; 600ms, majority]: "
	if s := c.nodes["m3@#3"].Status(c.now); !strings.HasPrefix(s.Problem, want) {
		t.Errorf("m3 reports %q", s.Problem)
	}
	delete(c.disks, "m3@#3")
	c.kill("m3@#3")
	c.join("m3@#8")
	c.join("m2@#8")
	c.awaitVoters(10*time.Second, "m1@#9", "m2@#8", "m3@#8")
}
