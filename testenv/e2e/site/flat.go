//go:build e2e

package site

import (
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

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/witness"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/lab"
)

// Lease is the lease of the flat site. It is longer than the default, so that busy
// machines renew it in time.
const Lease = 3 * time.Second

// FlatMasters are the masters of flat.clab.yml.
func FlatMasters() []string { return []string{"m1", "m2", "m3"} }

// Flat is the lab of flat.clab.yml, with an observer that judges it to the end.
type Flat struct {
	*lab.Lab
	Seen *holders.Observer
	// target is the observer's target.
	target  holders.Target
	witness *witness.Witness
	// Dir has a folder for each master, its /etc/herald.
	Dir string
	// Blind lists the rules that the test breaks on purpose.
	Blind []holders.Rule
}

// NewFlat lays out the topology and boots no node.
func NewFlat(t *testing.T) *Flat {
	t.Helper()
	dir := t.TempDir()
	Must(t, os.CopyFS(dir, os.DirFS("../../topologies/flat")))
	for _, m := range FlatMasters() {
		file := filepath.Join(dir, m, "herald.yaml")
		slow := strings.Replace(ReadFile(t, file), "election:\n", fmt.Sprintf("election:\n  lease: %v\n", Lease), 1)
		Must(t, os.WriteFile(file, []byte(slow), 0o600))
	}
	f := &Flat{Lab: StartLab(t, "flat.clab.yml", map[string]string{"FLAT_DIR": dir}), Dir: dir}
	f.Observe(t, holders.Flat(f.Lab))
	return f
}

// Observe makes o1 observe the target, and judges the observations at the end of the test.
func (f *Flat) Observe(t *testing.T, target holders.Target) {
	t.Helper()
	f.target, f.witness = target, StartWitness(t)
	f.Seen = Get[*holders.Observer](t)(holders.Observe(f.Node("o1"), target))
	t.Cleanup(func() {
		for _, v := range holders.Judge(f.Seen.Trace(), holders.DefaultLimits()) {
			if !slices.Contains(f.Blind, v.Rule) {
				t.Errorf("%v\n%s", v, strings.Join(v.Around, "\n"))
			}
		}
		Must(t, f.Seen.Close())
	})
}

// StartFlat returns a running site and its holder.
func StartFlat(t *testing.T) (*Flat, string) {
	t.Helper()
	f := NewFlat(t)
	return f, f.Elect(t)
}

// Elect boots the site and returns its holder.
func (f *Flat) Elect(t *testing.T) string {
	t.Helper()
	Must(t, f.Boot(Context(t)))
	for _, m := range FlatMasters() {
		f.Ready(t, m)
	}
	return f.Held(t)
}

func (f *Flat) Speaker(master string) Speaker { return Speaker{f.Node(master + "-speaker")} }

// Others returns the masters except these.
func (f *Flat) Others(masters ...string) []string {
	return slices.DeleteFunc(FlatMasters(), func(m string) bool { return slices.Contains(masters, m) })
}

// Held waits until one of these masters, or any, answers for both addresses.
func (f *Flat) Held(t *testing.T, masters ...string) string {
	t.Helper()
	holder := Get[string](t)(f.Seen.Await(Context(t), masters...))
	return holder
}

// Asked waits until the observer has asked that many times more.
func (f *Flat) Asked(t *testing.T, times int) {
	t.Helper()
	count := func() int { return len(f.Seen.Trace().Questions[f.Vips()[0]]) }
	want := count() + times
	Eventually(t, Soon, func() error {
		n := count()
		return ErrorIf(n < want, "the observer asked %d times, want %d", n, want)
	})
}

func (f *Flat) Vips() []netip.Addr { return f.target.VIPs }

// Mark returns the present time, and the epoch of the VIP's holder.
func (f *Flat) Mark(t *testing.T) Mark {
	t.Helper()
	m := Mark{At: f.Seen.Clock(), Time: time.Now()}
	for _, master := range FlatMasters() {
		if !f.Node(master + "-speaker").Running() {
			continue
		}
		if e, err := f.Election(t, master); err == nil {
			m.epoch = max(m.epoch, e.Leases[0].Epoch)
		}
	}
	return m
}

// Stays checks that since a mark that master has held the VIP in one epoch. The
// segment must never have been without the VIP for as long as a lease.
func (f *Flat) Stays(t *testing.T, holder string, since Mark) {
	t.Helper()
	starved := func() string { return f.witness.Starved(since.Time) }
	trace := f.Seen.Trace()
	for _, s := range trace.Observations {
		if s.At > since.At && s.Act == holders.Answers && s.Master != holder {
			FailTiming(t, starved(), "the holders are %v, want only %s", s, holder)
			break
		}
	}
	f.Answered(t, since)
	e := Get[*admin.Election](t)(f.Election(t, holder))
	if l := e.Leases[0]; l.Holder != holder || l.Epoch != since.epoch {
		FailTiming(t, starved(), "%s reports that %s has the VIP in epoch %d, want itself in epoch %d", holder, l.Holder, l.Epoch, since.epoch)
	}
}

// Answered checks that since a mark the segment has not been without the VIP for as long as a
// lease.
func (f *Flat) Answered(t *testing.T, since Mark) {
	t.Helper()
	trace := f.Seen.Trace()
	for _, vip := range f.Vips() {
		for _, s := range trace.Silences(vip, int(Lease/(10*time.Millisecond))) {
			if s.To > since.At {
				FailTiming(t, f.witness.Starved(since.Time), "no answer for %s from %v to %v", vip, s.From, s.To)
			}
		}
	}
}

// Ready waits until the speaker reports that its checks have passed and that it and the others
// vote.
func (f *Flat) Ready(t *testing.T, master string) {
	t.Helper()
	f.Elects(t, master, func(e *admin.Election) error {
		for _, l := range e.Leases {
			if !l.Campaigning {
				return fmt.Errorf("%s does not campaign for %s", master, l.Lease)
			}
		}
		for _, m := range e.Members {
			if !m.Alive || m.Problem != "" {
				return fmt.Errorf("%s does not receive from %s: %s", master, m.Name, m.Problem)
			}
		}
		return nil
	})
}

// Election returns the speaker's status of the election.
func (f *Flat) Election(t *testing.T, master string) (*admin.Election, error) {
	t.Helper()
	status, err := f.Speaker(master).Status(t)
	if err != nil {
		return nil, err
	}
	if status.Election == nil || len(status.Election.Leases) == 0 {
		return nil, fmt.Errorf("%s has no election", master)
	}
	return status.Election, nil
}

// Elects waits until check returns no error for that status.
func (f *Flat) Elects(t *testing.T, master string, check func(*admin.Election) error) {
	t.Helper()
	Becomes(t, func() (*admin.Election, error) { return f.Election(t, master) }, check)
}

// Herald runs herald's command line on a master.
func (f *Flat) Herald(t *testing.T, master string, args ...string) error {
	t.Helper()
	_, err := Run(t, f.Node(master+"-speaker"), append([]string{"herald"}, args...)...)
	return err
}

// Planned makes a planned change that takes the VIP from a master.
func (f *Flat) Planned(t *testing.T, master string, change func() error) {
	t.Helper()
	Must(t, f.Seen.Move(master, change))
}

// Rewrite changes a file of a master's /etc/herald and makes the speaker read it.
func (f *Flat) Rewrite(t *testing.T, master, file string, change func(string) string) {
	t.Helper()
	path := filepath.Join(f.Dir, master, file)
	Must(t, os.WriteFile(path+".new", []byte(change(ReadFile(t, path))), 0o600))
	Must(t, os.Rename(path+".new", path))
	if d := f.Node(master + "-speaker"); d.Running() {
		Must(t, d.Daemons()[0].Signal(unix.SIGHUP))
	}
}

// Logged counts the lines of a master's log that match.
func (f *Flat) Logged(t *testing.T, master, pattern string) int {
	t.Helper()
	log := ReadFile(t, f.Node(master+"-speaker").Log())
	return len(regexp.MustCompile("(?m)^.*"+pattern+".*$").FindAllString(log, -1))
}

// Alone separates a master from the others, but not from client and observer.
func (f *Flat) Alone(master string) error {
	return f.Part("lan", []string{master}, f.Others(master))
}

// BalancingConf returns the file of a node of the flat lab without a VIP. With checks
// it is a master's.
func BalancingConf(node, checks string) string {
	return fmt.Sprintf(`apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: %s
balancers:
- name: kubernetes
  listen: [{address: "127.0.0.1:9443"}]
  backends: {members: {port: 6443, checks: [apiserver]}}
election:
  members: {m2: "10.4.0.2:7946", m3: "10.4.0.3:7946"}
  keyFile: /etc/herald/gossip.key
%s`, node, checks)
}
