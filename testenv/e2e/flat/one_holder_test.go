//go:build e2e

package flat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// electorateFile is the state of a speaker's election.
const electorateFile = "/var/lib/herald/electorate"

// TestOneHolder does what operators and slow machines do to an election: one trial of each fault, nightly thirty. The
// observer never sees two masters answer, and one answers at the end.
func TestOneHolder(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name  string
		lab   func(*testing.T) *site.Flat
		trial func(*testing.T, *site.Flat, *rand.Rand)
	}{
		{"the VIP is renamed", started, renameVIP},
		{"a bootstrapping master is reinstalled behind a firewall", bootstrapped, reinstallBehindFirewall},
		{"every master bootstraps", site.NewFlat, bootstrapAll},
		{"disks stand still", onDisks, freezeDisks},
		{"the holder's speaker is stuck", started, stallHolder},
		{"a straggler returns", bootstrapped, returnStraggler},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			f := fault.lab(t)
			for n := range site.Scale(30, 1) {
				t.Run(fmt.Sprint(n), func(t *testing.T) { fault.trial(t, f, rand.New(rand.NewPCG(37, uint64(n)))) })
			}
		})
	}
}

// started returns a running site.
func started(t *testing.T) *site.Flat {
	f, _ := site.StartFlat(t)
	return f
}

// bootstrapped returns a running site that m1 has begun and the others have joined.
func bootstrapped(t *testing.T) *site.Flat {
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		join(t, f, m, m == "m1")
	}
	return begun(t, f)
}

func begun(t *testing.T, f *site.Flat) *site.Flat {
	t.Helper()
	f.Elect(t)
	for _, m := range site.FlatMasters() {
		agrees(t, f, m, site.FlatMasters())
	}
	return f
}

// join makes a master's file join the others, or begin the cluster.
func join(t *testing.T, f *site.Flat, master string, bootstrap bool) {
	t.Helper()
	f.Rewrite(t, master, "herald.yaml", func(s string) string {
		s = regexp.MustCompile(`(?m)^  (members|join|bootstrap): .*\n`).ReplaceAllString(s, "")
		return strings.Replace(s, "  keyFile:", fmt.Sprintf("  join: [\"10.4.0.1:7946\", \"10.4.0.2:7946\", \"10.4.0.3:7946\"]\n  bootstrap: %v\n  keyFile:", bootstrap), 1)
	})
}

// restart restarts a speaker.
func restart(t *testing.T, f *site.Flat, master string) {
	t.Helper()
	site.Must(t, site.Stop(t, f.Node(master+"-speaker")))
	site.Start(t, f.Node(master+"-speaker"))
}

// reinstall starts a stopped speaker without its state.
func reinstall(t *testing.T, f *site.Flat, master string) {
	t.Helper()
	site.MustRun(t, f.Node(master+"-speaker"), "rm", "-f", electorateFile)
	site.Start(t, f.Node(master+"-speaker"))
}

// renameVIP renames the VIP on one node after the other, in random order, each by a restart.
func renameVIP(t *testing.T, f *site.Flat, rng *rand.Rand) {
	name := fmt.Sprintf("vip-%x", rng.Uint32())
	order := site.FlatMasters()
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, m := range order {
		f.Rewrite(t, m, "herald.yaml", func(s string) string {
			return regexp.MustCompile(`(?m)^vips:\n- name: .*$`).ReplaceAllString(s, "vips:\n- name: "+name)
		})
		f.Planned(t, m, func() error { restart(t, f, m); return nil })
		f.Ready(t, m)
		f.Held(t)
		f.Asked(t, 100)
	}
}

// reinstallBehindFirewall removes m1's state while its firewall drops UDP, but not TCP: m1 must not begin another
// cluster.
func reinstallBehindFirewall(t *testing.T, f *site.Flat, _ *rand.Rand) {
	f.Planned(t, "m1", func() error { return site.Stop(t, f.Node("m1-speaker")) })
	holder := f.Held(t, "m2", "m3")
	site.Must(t, gossip(t, f, "m1", udpCut))
	from := f.Mark(t)
	reinstall(t, f, "m1")
	f.Elects(t, "m1", func(e *admin.Election) error {
		return site.ErrorIf(e.Problem == "", "m1 does not report why it has no electorate")
	})
	f.Asked(t, 800) // longer than m1 looks for a cluster
	f.Stays(t, holder, from)
	site.Must(t, gossip(t, f, "m1", gossipWhole))
	for _, m := range site.FlatMasters() {
		agrees(t, f, m, site.FlatMasters())
	}
}

// bootstrapAll starts three masters without state, each with bootstrap: true.
func bootstrapAll(t *testing.T, f *site.Flat, rng *rand.Rand) {
	for _, m := range site.FlatMasters() {
		join(t, f, m, true)
		if n := f.Node(m + "-speaker"); n.Running() {
			site.Must(t, n.Kill())
		}
	}
	for _, n := range f.Nodes() {
		if !n.Running() && !strings.HasSuffix(n.Name(), "-speaker") {
			site.Start(t, n)
		}
	}
	for _, m := range site.FlatMasters() {
		reinstall(t, f, m)
		time.Sleep(time.Duration(rng.IntN(2)) * time.Duration(rng.Int64N(int64(time.Second))))
	}
	f.Held(t)
	for _, m := range site.FlatMasters() {
		agrees(t, f, m, site.FlatMasters())
	}
}

// onDisks is bootstrapped, with a file system for each speaker's state.
func onDisks(t *testing.T) *site.Flat {
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		join(t, f, m, m == "m1")
		site.MustRun(t, f.Node(m+"-speaker"), "sh", "-ec", `
			truncate -s 16M /tmp/disk
			mkfs.ext4 -q /tmp/disk
			mkdir -p /var/lib/herald
			mount -o loop /tmp/disk /var/lib/herald`)
		t.Cleanup(func() { _, _ = site.Run(t, f.Node(m+"-speaker"), "umount", "/var/lib/herald") })
	}
	return begun(t, f)
}

// freezeDisks makes all writes to the masters' disks wait for seconds, while the electorate changes.
func freezeDisks(t *testing.T, f *site.Flat, rng *rand.Rand) {
	holder := f.Held(t)
	other := f.Others(holder)[rng.IntN(2)]
	from := f.Mark(t)
	site.Must(t, site.Stop(t, f.Node(other+"-speaker")))
	f.Elects(t, holder, func(e *admin.Election) error {
		alive := slices.ContainsFunc(e.Members, func(m lease.Member) bool { return m.Name == other && m.Problem == "" })
		return site.ErrorIf(alive, "%s is still alive", other)
	})
	var frozen sync.WaitGroup
	for _, m := range f.Others(other) {
		pause := fmt.Sprintf("fsfreeze -f /var/lib/herald; sleep %d; fsfreeze -u /var/lib/herald", 1+rng.IntN(4))
		frozen.Go(func() { site.MustRun(t, f.Node(m+"-speaker"), "sh", "-c", pause) })
	}
	site.Must(t, f.Herald(t, holder, "member", "remove", other))
	frozen.Wait()
	agrees(t, f, holder, f.Others(other))
	site.Start(t, f.Node(other+"-speaker"))
	for _, m := range site.FlatMasters() {
		agrees(t, f, m, site.FlatMasters())
	}
	f.Stays(t, holder, from)
}

// stallHolder makes the calls of the holder's speaker to nftables wait for ten seconds. Another master takes the VIP
// meanwhile.
func stallHolder(t *testing.T, f *site.Flat, _ *rand.Rand) {
	holder := f.Held(t)
	f.Asked(t, 100)
	w, from := site.StartWitness(t), f.Mark(t)
	ctx, cancel := context.WithCancel(t.Context())
	stall := exec.CommandContext(ctx, "strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace=sendmsg", "-e", "inject=sendmsg:delay_enter=10000000",
		"-p", fmt.Sprint(f.Node(holder + "-speaker").Daemons()[0].Pid()))
	site.Must(t, stall.Start())
	next := f.Held(t, f.Others(holder)...)
	took := time.Since(from.Time)
	cancel()
	_ = stall.Wait() // it was killed
	if t.Logf("%s took the VIP from %s after %v", next, holder, took); took > 3*site.Lease {
		site.FailTiming(t, w.Starved(from.Time), "%s kept the lease for %v", holder, took)
	}
	f.Ready(t, holder)
	f.Held(t)
	f.Asked(t, 100)
	for _, vip := range f.Vips() {
		for _, s := range f.Seen.Trace().Silences(vip, int(2*site.Lease/(10*time.Millisecond))) {
			if s.To > from.At {
				site.FailTiming(t, w.Starved(from.Time), "no answer for %s from %v to %v", vip, s.From, s.To)
			}
		}
	}
}

// returnStraggler loses all masters, begins the site anew on m1, and lets m3 return with its disk.
func returnStraggler(t *testing.T, f *site.Flat, _ *rand.Rand) {
	for _, m := range site.FlatMasters() {
		site.Must(t, f.Node(m+"-speaker").Kill())
	}
	reinstall(t, f, "m1")
	agrees(t, f, "m1", []string{"m1"})
	f.Held(t, "m1")
	f.Asked(t, 100)
	from := f.Mark(t)
	site.Start(t, f.Node("m3-speaker"))
	f.Asked(t, 800)
	f.Stays(t, "m1", from)
	site.Must(t, site.Stop(t, f.Node("m3-speaker")))
	for _, m := range []string{"m2", "m3"} {
		reinstall(t, f, m)
	}
	for _, m := range site.FlatMasters() {
		agrees(t, f, m, site.FlatMasters())
	}
}
