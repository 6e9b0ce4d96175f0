//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/segment"
)

// lease is that of the flat topology, the default.
const lease = 600 * time.Millisecond

// flatMasters are the masters of flat.clab.yml.
func flatMasters() []string { return []string{"m1", "m2", "m3"} }

// flat is the lab of flat.clab.yml, with an observer that judges it to the end.
type flat struct {
	*lab.Lab
	seen *segment.Observer
	// target is what it watches.
	target segment.Target
	// dir has a folder for each master, which it has as /etc/herald.
	dir string
	// blind are the rules that the test breaks on purpose.
	blind []segment.Rule
}

// newFlat lays out the topology and boots nothing.
func newFlat(t *testing.T) *flat {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../topologies/flat")))
	f := &flat{Lab: startLab(t, "flat.clab.yml", map[string]string{"FLAT_DIR": dir}), dir: dir}
	f.observe(t, segment.Flat(f.Lab))
	return f
}

// observe has o1 watch the target, and judges at the end of the test what it has seen.
func (f *flat) observe(t *testing.T, target segment.Target) {
	t.Helper()
	var err error
	f.target = target
	f.seen, err = segment.Observe(f.Node("o1"), target)
	must(t, err)
	t.Cleanup(func() {
		for _, v := range segment.Judge(f.seen.Trace(), segment.DefaultLimits()) {
			if !slices.Contains(f.blind, v.Rule) {
				t.Errorf("%v\n%s", v, strings.Join(v.Around, "\n"))
			}
		}
		if err := f.seen.Close(); err != nil {
			t.Error(err)
		}
	})
}

// newElected is a site that is up, and its holder.
func newElected(t *testing.T) (*flat, string) {
	t.Helper()
	f := newFlat(t)
	return f, f.elect(t)
}

// elect boots the site and returns its holder.
func (f *flat) elect(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must(t, f.Boot(ctx))
	for _, m := range flatMasters() {
		f.ready(t, m)
	}
	return f.held(t)
}

// Node returns a node of the lab.
func (f *flat) Node(name string) *lab.Node { return f.Lab.Node(name) }

func (f *flat) speaker(master string) speaker { return speaker{f.Node(master + "-speaker")} }

// others are the masters besides these.
func (f *flat) others(masters ...string) []string {
	return slices.DeleteFunc(flatMasters(), func(m string) bool { return slices.Contains(masters, m) })
}

// held waits until one of these masters, or any, answers for both addresses.
func (f *flat) held(t *testing.T, masters ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	holder, err := f.seen.Await(ctx, masters...)
	must(t, err)
	return holder
}

// asked waits until the observer has asked that many times more.
func (f *flat) asked(t *testing.T, times int) {
	t.Helper()
	count := func() int { return len(f.seen.Trace().Questions[f.vips()[0]]) }
	want := count() + times
	eventually(t, soon, func() error {
		if n := count(); n < want {
			return fmt.Errorf("the observer asked %d times, want %d", n, want)
		}
		return nil
	})
}

func (f *flat) vips() []netip.Addr { return f.target.VIPs }

// stays checks that since an instant the VIP has been that master's, without a break.
func (f *flat) stays(t *testing.T, holder string, since time.Duration) {
	t.Helper()
	trace := f.seen.Trace()
	for _, s := range trace.Sightings {
		if s.At > since && s.Act == segment.Answers && s.Master != holder {
			t.Errorf("%v, want only %s to answer", s, holder)
			break
		}
	}
	for _, vip := range f.vips() {
		for _, s := range trace.Silences(vip, 10) {
			if s.To > since {
				t.Errorf("nobody answered for %s from %v to %v", vip, s.From, s.To)
			}
		}
	}
}

// ready waits until the speaker says that its checks have passed and that it
// and the others vote.
func (f *flat) ready(t *testing.T, master string) {
	t.Helper()
	eventually(t, soon, func() error {
		e, err := f.election(t, master)
		if err != nil {
			return err
		}
		for _, l := range e.Leases {
			if !l.Stands {
				return fmt.Errorf("%s does not stand for %s", master, l.VIP)
			}
		}
		for _, m := range e.Members {
			if !m.Alive || m.Reason != "" {
				return fmt.Errorf("%s does not hear %s: %s", master, m.Name, m.Reason)
			}
		}
		return nil
	})
}

// election is what the speaker says of the election.
func (f *flat) election(t *testing.T, master string) (*admin.Election, error) {
	t.Helper()
	status, err := f.speaker(master).status(t)
	if err != nil {
		return nil, err
	}
	if status.Election == nil || len(status.Election.Leases) == 0 {
		return nil, fmt.Errorf("%s has no election", master)
	}
	return status.Election, nil
}

// herald runs herald's command line on a master.
func (f *flat) herald(t *testing.T, master string, args ...string) error {
	t.Helper()
	_, err := run(t, f.Node(master+"-speaker"), append([]string{"herald"}, args...)...)
	return err
}

// planned makes a change that takes the VIP from a master as planned.
func (f *flat) planned(t *testing.T, master string, change func() error) {
	t.Helper()
	must(t, f.seen.Move(master, change))
}

// rewrite changes a file of a master's /etc/herald and has the speaker read it.
func (f *flat) rewrite(t *testing.T, master, file string, change func(string) string) {
	t.Helper()
	path := filepath.Join(f.dir, master, file)
	old, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path+".new", []byte(change(string(old))), 0o600))
	must(t, os.Rename(path+".new", path))
	if d := f.Node(master + "-speaker"); d.Running() {
		must(t, d.Daemons()[0].Signal(unix.SIGHUP))
	}
}

// logged counts the lines of a master's log that match.
func (f *flat) logged(t *testing.T, master, pattern string) int {
	t.Helper()
	log, err := os.ReadFile(f.Node(master + "-speaker").Log())
	must(t, err)
	return len(regexp.MustCompile("(?m)^.*"+pattern+".*$").FindAllString(string(log), -1))
}

// alone parts a master from the others, but not from client and observer.
func (f *flat) alone(master string) error {
	return f.Part("lan", []string{master}, f.others(master))
}
