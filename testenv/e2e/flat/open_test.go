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
