//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestElectorateGrows is docs/kubeadm.md on a flat layer 2: the first master is an
// electorate of its own and has the VIP as soon as its apiserver is ready; the
// others join one at a time, by a reload of those that are there before or after the
// new one starts, and the VIP stays where it is throughout.
func TestElectorateGrows(t *testing.T) {
	f := newFlat(t)
	list := func(members ...string) func(string) string {
		var all []string
		for _, m := range members {
			all = append(all, fmt.Sprintf(`%s: "10.4.0.%c:7946"`, m, m[1]))
		}
		return func(s string) string {
			return regexp.MustCompile(`members: {.*}`).ReplaceAllString(s, "members: {"+strings.Join(all, ", ")+"}")
		}
	}

	f.rewrite(t, "m1", "herald.yaml", list("m1"))
	boot(t, f.Lab, "m1-speaker") // and no apiserver: kubeadm init has not run
	eventually(t, soon, func() error {
		status, err := f.speaker("m1").status(t)
		if err == nil && (len(status.VIPs) == 0 || !status.VIPs[0].Decided || status.VIPs[0].Stage != "withdrawn") {
			err = fmt.Errorf("the VIPs of m1 are %+v", status.VIPs)
		}
		return err
	})
	f.asked(t, 50)
	if seen := f.seen.Trace().Sightings; len(seen) > 0 {
		t.Fatalf("before the apiserver is there: %v", seen[0])
	}
	boot(t, f.Lab, "m1-apiserver")
	f.held(t, "m1")
	load, from := f.connect(t), f.seen.Clock()
	load.works(t)

	for n := 2; n <= 3; n++ {
		there, joins := flatMasters()[:n-1], flatMasters()[n-1]
		all := list(flatMasters()[:n]...)
		f.rewrite(t, joins, "herald.yaml", all)
		reload := func() {
			for _, m := range there {
				f.rewrite(t, m, "herald.yaml", all)
			}
		}
		if n == 2 { // the static pod of m2 starts in the middle of kubeadm join
			reload()
			for _, m := range there {
				f.waitsFor(t, m, joins)
			}
			boot(t, f.Lab, joins+"-speaker", joins+"-apiserver")
		} else {
			boot(t, f.Lab, joins+"-speaker", joins+"-apiserver")
			reload()
		}
		for _, m := range flatMasters()[:n] {
			f.ready(t, m)
			f.agrees(t, m, flatMasters()[:n])
		}
		f.asked(t, 100)
		f.stays(t, "m1", from)
	}
	load.none(t)

	// And back: m1 is removed, drained first.
	f.planned(t, "m1", func() error { return f.herald(t, "m1", "drain") })
	f.held(t, "m2", "m3")
	must(t, f.Node("m1-speaker").Kill())
	for _, m := range []string{"m2", "m3"} {
		f.rewrite(t, m, "herald.yaml", list("m2", "m3"))
	}
	for _, m := range []string{"m2", "m3"} {
		f.agrees(t, m, []string{"m2", "m3"})
	}
	load.works(t)
}

// waitsFor waits until a master says that a change waits for another.
func (f *flat) waitsFor(t *testing.T, master, other string) {
	t.Helper()
	eventually(t, soon, func() error {
		e, err := f.election(t, master)
		if err == nil && !strings.Contains(e.Change, other) {
			err = fmt.Errorf("%s says %q of a change, want it to wait for %s", master, e.Change, other)
		}
		return err
	})
}

// agrees waits until these members are in force for a master.
func (f *flat) agrees(t *testing.T, master string, members []string) {
	t.Helper()
	eventually(t, soon, func() error {
		e, err := f.election(t, master)
		if err != nil {
			return err
		}
		var names []string
		for _, m := range e.Members {
			names = append(names, m.Name)
		}
		slices.Sort(names)
		if e.Change != "" || e.Problem != "" || !slices.Equal(names, members) {
			return fmt.Errorf("the members of %s are %v, change %q, problem %q, want %v", master, names, e.Change, e.Problem, members)
		}
		return nil
	})
}
