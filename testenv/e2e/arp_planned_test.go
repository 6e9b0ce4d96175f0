//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestARPPlanned takes the VIP from its holder in every planned way, and costs
// a client nothing.
func TestARPPlanned(t *testing.T) {
	f, holder := newElected(t)
	restart := func(t *testing.T, m string) {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		f.planned(t, m, func() error { return f.Node(m + "-speaker").Stop(ctx) })
		must(t, f.Node(m+"-speaker").Boot(ctx))
		f.ready(t, m)
	}
	for _, change := range []struct {
		name string
		make func(t *testing.T)
	}{
		{"drain", func(t *testing.T) {
			f.planned(t, holder, func() error { return f.herald(t, holder, "drain") })
			f.held(t, f.others(holder)...)
			must(t, f.herald(t, holder, "undrain"))
			f.ready(t, holder)
		}},
		{"SIGTERM", func(t *testing.T) { restart(t, holder) }},
		{"rolling restart", func(t *testing.T) {
			for _, m := range flatMasters() {
				restart(t, m)
			}
		}},
	} {
		t.Run(change.name, func(t *testing.T) {
			load := f.connect(t)
			load.works(t)
			change.make(t)
			load.works(t)
			load.none(t)
			holder = f.held(t)
		})
	}
}

// TestARPKeyRotation changes the key on all members, node by node, and nothing
// moves. One with another key is out, and named once; so is a file with a key that
// others may read.
func TestARPKeyRotation(t *testing.T) {
	f := newFlat(t)
	for _, m := range flatMasters() {
		must(t, os.Chmod(filepath.Join(f.dir, m, "gossip.key"), 0o644))
	}
	holder := f.elect(t)
	exposed := func(want bool) {
		t.Helper()
		for _, m := range flatMasters() {
			e, err := f.election(t, m)
			must(t, err)
			if said := strings.Contains(e.Exposed, "gossip.key has mode 0644"); said != want {
				t.Errorf("%s says of its key %q", m, e.Exposed)
			}
			if n := f.logged(t, m, "THE KEY OF THE ELECTION IS EXPOSED"); n != 1 {
				t.Errorf("%s warned %d times of its key, want once", m, n)
			}
		}
	}
	exposed(true)
	load := f.connect(t)
	from := f.seen.Clock()
	old, err := os.ReadFile(filepath.Join(f.dir, "m1", "gossip.key"))
	must(t, err)
	must(t, f.herald(t, "m1", "keygen", "/tmp/new.key"))
	fresh, err := run(t, f.Node("m1-speaker"), "cat", "/tmp/new.key")
	must(t, err)
	both := fresh + string(old)
	for _, keys := range []string{string(old) + fresh, both, fresh} {
		for _, m := range flatMasters() {
			f.rewrite(t, m, "gossip.key", func(string) string { return keys })
			f.ready(t, m)
			f.asked(t, 50)
		}
	}
	f.stays(t, holder, from)
	load.none(t)
	exposed(false)

	wrong := f.others(holder)[0]
	f.rewrite(t, wrong, "gossip.key", func(string) string { return string(old) })
	other := f.others(holder, wrong)[0]
	eventually(t, soon, func() error {
		e, err := f.election(t, other)
		if err == nil && e.Undecipherable < 20 {
			err = fmt.Errorf("%s could not read %d messages", other, e.Undecipherable)
		}
		return err
	})
	f.asked(t, 100)
	f.stays(t, holder, from)
	if n := f.logged(t, other, "cannot be read"); n != 1 {
		t.Errorf("%s named the wrong key %d times, want once", other, n)
	}
}

// TestARPElectorate removes a member and adds it again by reload, and nothing
// moves; a file that changes two at a time is refused.
func TestARPElectorate(t *testing.T) {
	f, holder := newElected(t)
	load := f.connect(t)
	from := f.seen.Clock()
	leaving := f.others(holder)[0]
	staying := []string{holder, f.others(holder, leaving)[0]}
	member := fmt.Sprintf(`%s: "10.4.0.%c:7946"`, leaving, leaving[1])
	without := func(s string) string {
		return strings.NewReplacer(", "+member, "", member+", ", "").Replace(s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must(t, f.Node(leaving+"-speaker").Stop(ctx))
	for _, m := range staying {
		f.rewrite(t, m, "herald.yaml", without)
	}
	members := func(want int) {
		t.Helper()
		eventually(t, soon, func() error {
			for _, m := range staying {
				e, err := f.election(t, m)
				if err != nil {
					return err
				}
				if len(e.Members) != want || e.Change != "" || e.Problem != "" {
					return fmt.Errorf("%s has %d members, change %q, problem %q", m, len(e.Members), e.Change, e.Problem)
				}
			}
			return nil
		})
	}
	members(2)

	for _, m := range staying {
		f.rewrite(t, m, "herald.yaml", func(s string) string { return strings.Replace(s, "members: {", "members: {"+member+", ", 1) })
	}
	must(t, f.Node(leaving+"-speaker").Boot(ctx))
	members(3)
	f.ready(t, leaving)
	f.stays(t, holder, from)

	f.rewrite(t, holder, "herald.yaml", func(s string) string {
		return strings.Replace(s, "members: {", `members: {m8: "10.4.0.98:7946", m9: "10.4.0.99:7946", `, 1)
	})
	eventually(t, soon, func() error {
		status, err := f.speaker(holder).status(t)
		if err == nil && status.Config.Error == "" {
			err = fmt.Errorf("the file is taken: generation %d", status.Config.Generation)
		}
		return err
	})
	f.asked(t, 100)
	f.stays(t, holder, from)
	load.none(t)
}
