//go:build e2e

package flat

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestARPPlanned takes the VIP from its holder in every planned way, without cost for a client.
func TestARPPlanned(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	restart := func(t *testing.T, m string) {
		f.Planned(t, m, func() error { return site.Stop(t, f.Node(m+"-speaker")) })
		site.Start(t, f.Node(m+"-speaker"))
		f.Ready(t, m)
		f.Asked(t, int(site.Lease/(10*time.Millisecond))) // a newly started member does not vote earlier
	}
	for _, change := range []struct {
		name string
		make func(t *testing.T)
	}{
		{"drain", func(t *testing.T) {
			f.Planned(t, holder, func() error { return f.Herald(t, holder, "drain") })
			f.Held(t, f.Others(holder)...)
			site.Must(t, f.Herald(t, holder, "undrain"))
			f.Ready(t, holder)
		}},
		{"rolling restart", func(t *testing.T) {
			for _, m := range site.FlatMasters() {
				restart(t, m)
			}
		}},
	} {
		t.Run(change.name, func(t *testing.T) {
			load, began := f.Connect(t), time.Now()
			load.GoesOn(t, 100)
			change.make(t)
			load.GoesOn(t, 100)
			load.None(t, began)
			holder = f.Held(t)
		})
	}
	for _, m := range site.FlatMasters() {
		site.WantLittleMemory(t, f.Node(m+"-speaker"))
	}
}

// TestARPKeyRotation changes the key on all members, node by node, and the VIP does
// not move. A member with another key is excluded, and reported once; so is a key file
// that others may read.
func TestARPKeyRotation(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		site.Must(t, os.Chmod(filepath.Join(f.Dir, m, "gossip.key"), 0o644))
	}
	holder := f.Elect(t)
	exposed := func(want bool) {
		t.Helper()
		for _, m := range site.FlatMasters() {
			e, err := f.Election(t, m)
			site.Must(t, err)
			if said := strings.Contains(e.Exposed, "gossip.key has mode 0644"); said != want {
				t.Errorf("%s reports about its key %q", m, e.Exposed)
			}
			if n := f.Logged(t, m, "THE KEY OF THE ELECTION IS EXPOSED"); n != 1 {
				t.Errorf("%s warned %d times of its key, want once", m, n)
			}
		}
	}
	exposed(true)
	load, from := f.Connect(t), f.Mark(t)
	old := site.ReadFile(t, filepath.Join(f.Dir, "m1", "gossip.key"))
	site.Must(t, f.Herald(t, "m1", "keygen", "/tmp/new.key"))
	fresh := site.MustRun(t, f.Node("m1-speaker"), "cat", "/tmp/new.key")
	both := fresh + old
	for _, keys := range []string{old + fresh, both, fresh} {
		for _, m := range site.FlatMasters() {
			f.Rewrite(t, m, "gossip.key", func(string) string { return keys })
			f.Ready(t, m)
			f.Asked(t, 50)
		}
	}
	f.Stays(t, holder, from)
	load.None(t, from.Time)
	exposed(false)

	wrong := f.Others(holder)[0]
	f.Rewrite(t, wrong, "gossip.key", func(string) string { return old })
	other := f.Others(holder, wrong)[0]
	f.Elects(t, other, func(e *admin.Election) error {
		return site.ErrorIf(e.Undecipherable < 20, "%s could not read %d messages", other, e.Undecipherable)
	})
	f.Asked(t, 100)
	f.Stays(t, holder, from)
	if n := f.Logged(t, other, "cannot be decrypted"); n != 1 {
		t.Errorf("%s named the wrong key %d times, want once", other, n)
	}
}

// TestARPElectorate removes a member and adds it again by reload, and the VIP does not
// move; a file that names two missing members waits for them.
func TestARPElectorate(t *testing.T) {
	t.Parallel()
	f, holder := site.StartFlat(t)
	load, from := f.Connect(t), f.Mark(t)
	leaving := f.Others(holder)[0]
	staying := []string{holder, f.Others(holder, leaving)[0]}
	member := fmt.Sprintf(`%s: "10.4.0.%c:7946"`, leaving, leaving[1])
	without := func(s string) string {
		return strings.NewReplacer(", "+member, "", member+", ", "").Replace(s)
	}
	site.Must(t, site.Stop(t, f.Node(leaving+"-speaker")))
	for _, m := range staying {
		f.Rewrite(t, m, "herald.yaml", without)
	}
	members := func(want int) {
		t.Helper()
		for _, m := range staying {
			f.Elects(t, m, func(e *admin.Election) error {
				return site.ErrorIf(len(e.Members) != want || e.Change != "" || e.Problem != "",
					"%s has %d members, change %q, problem %q", m, len(e.Members), e.Change, e.Problem)
			})
		}
	}
	members(2)

	for _, m := range staying {
		f.Rewrite(t, m, "herald.yaml", func(s string) string { return strings.Replace(s, "members: {", "members: {"+member+", ", 1) })
	}
	site.Start(t, f.Node(leaving+"-speaker"))
	members(3)
	f.Ready(t, leaving)
	f.Stays(t, holder, from)

	f.Rewrite(t, holder, "herald.yaml", func(s string) string {
		return strings.Replace(s, "members: {", `members: {m8: "10.4.0.98:7946", m9: "10.4.0.99:7946", `, 1)
	})
	f.Speaker(holder).Shows(t, func(status admin.Status) error {
		e := status.Election
		return site.ErrorIf(e == nil || !strings.HasSuffix(e.Change, ", m8, m9"), "the status of the change is %+v", status.Election)
	})
	f.Asked(t, 100)
	f.Stays(t, holder, from)
	load.None(t, from.Time)
}
