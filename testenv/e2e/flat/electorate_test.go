//go:build e2e

package flat

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestElectorateGrows lists one master, then two and three. The first is an electorate
// of its own and has the VIP as soon as its apiserver is ready. The others join one at
// a time; the running ones reload before or after the new one starts. The VIP does not
// move.
func TestElectorateGrows(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	list := func(members ...string) func(string) string {
		var all []string
		for _, m := range members {
			all = append(all, fmt.Sprintf(`%s: "10.4.0.%c:7946"`, m, m[1]))
		}
		return func(s string) string {
			return regexp.MustCompile(`members: {.*}`).ReplaceAllString(s, "members: {"+strings.Join(all, ", ")+"}")
		}
	}

	f.Rewrite(t, "m1", "herald.yaml", list("m1"))
	site.Boot(t, f.Lab, "m1-speaker") // and no apiserver: kubeadm init has not run
	f.Speaker("m1").Shows(t, func(status admin.Status) error {
		return site.ErrorIf(len(status.VIPs) == 0 || !status.VIPs[0].Decided || status.VIPs[0].Stage != "withdrawn",
			"the VIPs of m1 are %+v", status.VIPs)
	})
	f.Asked(t, 50)
	if seen := f.Seen.Trace().Observations; len(seen) > 0 {
		t.Fatalf("before the apiserver runs: %v", seen[0])
	}
	site.Boot(t, f.Lab, "m1-apiserver")
	f.Held(t, "m1")
	load, from := f.Connect(t), f.Mark(t)
	load.GoesOn(t, 100)

	for n := 2; n <= 3; n++ {
		there, joins := site.FlatMasters()[:n-1], site.FlatMasters()[n-1]
		all := list(site.FlatMasters()[:n]...)
		f.Rewrite(t, joins, "herald.yaml", all)
		reload := func() {
			for _, m := range there {
				f.Rewrite(t, m, "herald.yaml", all)
			}
		}
		if n == 2 { // the static pod of m2 starts in the middle of kubeadm join
			reload()
			for _, m := range there {
				f.Elects(t, m, func(e *admin.Election) error {
					return site.ErrorIf(!strings.Contains(e.Change, joins), "%s reports the change %q, want it to wait for %s", m, e.Change, joins)
				})
			}
			site.Boot(t, f.Lab, joins+"-speaker", joins+"-apiserver")
		} else {
			site.Boot(t, f.Lab, joins+"-speaker", joins+"-apiserver")
			reload()
		}
		for _, m := range site.FlatMasters()[:n] {
			f.Ready(t, m)
			agrees(t, f, m, site.FlatMasters()[:n])
		}
		f.Asked(t, 100)
		f.Stays(t, "m1", from)
	}
	load.None(t, from.Time)

	// And back: m1 is removed, drained first.
	f.Planned(t, "m1", func() error { return f.Herald(t, "m1", "drain") })
	f.Held(t, "m2", "m3")
	site.Must(t, f.Node("m1-speaker").Kill())
	for _, m := range []string{"m2", "m3"} {
		f.Rewrite(t, m, "herald.yaml", list("m2", "m3"))
	}
	for _, m := range []string{"m2", "m3"} {
		agrees(t, f, m, []string{"m2", "m3"})
	}
	load.GoesOn(t, 100)
}

// agrees waits until these members are in force for a master.
func agrees(t *testing.T, f *site.Flat, master string, members []string) {
	t.Helper()
	f.Elects(t, master, func(e *admin.Election) error {
		var names []string
		for _, m := range e.Members {
			if m.Voter {
				names = append(names, m.Name)
			}
		}
		slices.Sort(names)
		return site.ErrorIf(e.Change != "" || e.Problem != "" || !slices.Equal(names, members),
			"the voters of %s are %v, change %q, problem %q, want %v", master, names, e.Change, e.Problem, members)
	})
}

// TestMastersComeAndGo starts a cluster with one master, which two others join,
// reinstalls one of them, and removes the vote of a dead one. No configuration changes
// after the start, and the VIP never moves.
func TestMastersComeAndGo(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	named := regexp.MustCompile(`members: .*`)
	for _, m := range site.FlatMasters() {
		f.Rewrite(t, m, "herald.yaml", func(s string) string {
			return named.ReplaceAllString(s, fmt.Sprintf(`join: ["10.4.0.1:7946", "10.4.0.2:7946"]`+"\n  bootstrap: %v", m == "m1"))
		})
	}
	vote := func(masters ...string) {
		t.Helper()
		for _, m := range masters {
			agrees(t, f, m, masters)
		}
	}
	for _, n := range f.Nodes() {
		if n != f.Node("m2-speaker") && n != f.Node("m3-speaker") {
			site.Start(t, n)
		}
	}
	f.Held(t, "m1")
	vote("m1")
	load, from := f.Connect(t), f.Mark(t)
	for _, m := range []string{"m2", "m3"} {
		site.Start(t, f.Node(m+"-speaker"))
	}
	vote("m1", "m2", "m3")

	site.MustRun(t, f.Node("m3-speaker"), "rm", "/var/lib/herald/electorate")
	site.Must(t, site.Stop(t, f.Node("m3-speaker")))
	site.Start(t, f.Node("m3-speaker"))
	site.Eventually(t, site.Soon, func() error { // it is a new member, and replaces the silent one
		n := f.Logged(t, "m1", "electorate is in force.* members=m1,m2,m3 ")
		return site.ErrorIf(n != 2, "m1, m2 and m3 were made voters %d times, want twice", n)
	})
	vote("m1", "m2", "m3")

	err := f.Herald(t, "m1", "member", "remove", "m2")
	if err == nil || !strings.Contains(err.Error(), "m2 is alive, and would get its vote again: stop herald there first") {
		t.Errorf("a member that is alive was removed: %v", err)
	}
	site.Must(t, site.Stop(t, f.Node("m2-speaker")))
	f.Elects(t, "m1", func(e *admin.Election) error {
		silent := slices.ContainsFunc(e.Members, func(m lease.Member) bool { return m.Name == "m2" && strings.HasPrefix(m.Problem, "no packet for") })
		return site.ErrorIf(!silent, "m2 is still alive")
	})
	site.Must(t, f.Herald(t, "m1", "member", "remove", "m2"))
	vote("m1", "m3")
	site.Start(t, f.Node("m2-speaker")) // with its disk
	f.Ready(t, "m2")
	vote("m1", "m2", "m3")
	f.Stays(t, "m1", from)
	load.None(t, from.Time)
}
