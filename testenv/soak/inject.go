package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// patience bounds each act of breaking or mending.
const patience = 60 * time.Second

// injector makes and undoes faults. It distinguishes crashes from the process ends that it caused.
type injector struct {
	site     *site
	rec      *recorder
	witness  witness
	schedule Schedule
	watching sync.WaitGroup

	mu    sync.Mutex
	ended map[int]bool           // PIDs of speakers that it ended
	parts map[string]*sync.Mutex // each held by the fault that claims the part
}

func (j *injector) speaker(master string) *lab.Node { return j.site.Node(master + "-speaker") }

// inflict makes the fault, waits for its duration or until ctx ends, and undoes it.
func (j *injector) inflict(ctx context.Context, f Fault) error {
	for _, part := range j.schedule.claims(f) {
		lock := j.part(part)
		lock.Lock()
		defer lock.Unlock()
	}
	if ctx.Err() != nil {
		return nil
	}
	var number int
	j.rec.add(func(t *Trace, now time.Duration) {
		number = len(t.Incidents)
		t.Incidents = append(t.Incidents, Incident{Fault: f, Began: now, Broken: Never, Mending: Never, Mended: Never})
	})
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	t := j.schedule.traitOf(f.Kind)
	if t.nature.includes(restarts) {
		j.ending(j.speakers(f)...)
	}
	do := func() error { return t.do(bounded, j, f) }
	var err error
	if t.nature.includes(planned) {
		err = j.witness.Move(f.Master, do)
	} else {
		err = do()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	j.rec.add(func(t *Trace, now time.Duration) { t.Incidents[number].Broken = now })
	if f.Kind == LinkFlaps {
		if err := j.flap(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	} else {
		pause(ctx, f.For)
	}
	j.rec.add(func(t *Trace, now time.Duration) { t.Incidents[number].Mending = now })
	bounded, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if t.undo != nil {
		err = t.undo(bounded, j, f)
	}
	if t.nature.includes(restarts) {
		j.watchSpeakers(j.speakers(f)...)
	}
	if err != nil {
		return fmt.Errorf("undo %s: %w", f, err)
	}
	j.rec.add(func(t *Trace, now time.Duration) { t.Incidents[number].Mended = now })
	return nil
}

// part returns the lock of a part. All faults lock several parts in the same order.
func (j *injector) part(name string) *sync.Mutex {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.parts[name] == nil {
		j.parts[name] = new(sync.Mutex)
	}
	return j.parts[name]
}

// speakers returns the masters that lose their speaker by the fault.
func (j *injector) speakers(f Fault) []string {
	if f.Part == Everyone {
		return masters
	}
	return []string{f.Master}
}

// watchSpeakers records a crash when a speaker ends unasked.
func (j *injector) watchSpeakers(names ...string) {
	for _, master := range names {
		for _, p := range j.speaker(master).Daemons() {
			j.watching.Go(func() {
				<-p.Done()
				j.mu.Lock()
				asked := j.ended[p.Pid()]
				j.mu.Unlock()
				if !asked {
					j.rec.add(func(t *Trace, now time.Duration) {
						t.Crashes = append(t.Crashes, Crash{now, master, fmt.Sprint(p.Wait(context.Background()))})
					})
				}
			})
		}
	}
}

// ending records that these speakers are about to be ended.
func (j *injector) ending(names ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, master := range names {
		for _, p := range j.speaker(master).Daemons() {
			j.ended[p.Pid()] = true
		}
	}
}

// flap takes the link's carrier down and up repeatedly.
func (j *injector) flap(ctx context.Context, f Fault) error {
	const phase = 300 * time.Millisecond
	link := j.site.Link(f.Master, f.Router)
	for end := time.Now().Add(f.For); time.Now().Before(end) && ctx.Err() == nil; {
		for _, change := range []func() error{link.Heal, link.Down} {
			pause(ctx, phase)
			if err := change(); err != nil {
				return err
			}
		}
	}
	return nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// act is one half of a fault: it breaks something or mends it.
type act func(context.Context, *injector, Fault) error

// nodes returns the nodes that the fault breaks.
func (j *injector) nodes(f Fault) (list []*lab.Node) {
	switch f.Part {
	case APIServer, Registry, Speaker:
		return []*lab.Node{j.site.Node(f.Master + "-" + string(f.Part))}
	case Member:
		return []*lab.Node{j.speaker(f.Master)}
	case Router:
		return []*lab.Node{j.site.Node(f.Router)}
	case Everyone:
		for _, m := range masters {
			list = append(list, j.speaker(m))
		}
		return list
	}
	return []*lab.Node{j.site.Node(f.Master)}
}

// node returns an act that calls do for each node of the fault; process adapts a
// function without a context.
func node(do func(*lab.Node, context.Context) error) act {
	return func(ctx context.Context, j *injector, f Fault) (err error) {
		for _, n := range j.nodes(f) {
			err = errors.Join(err, do(n, ctx))
		}
		return err
	}
}

func process(do func(*lab.Node) error) act {
	return node(func(n *lab.Node, _ context.Context) error { return do(n) })
}

// runs returns an act that runs a command on each node of the fault.
func runs(argv ...string) act {
	return node(func(n *lab.Node, ctx context.Context) error {
		_, err := n.Run(ctx, argv...)
		return err
	})
}

// herald returns an act that runs a command of the binary under test.
func herald(command string) act {
	return node(func(n *lab.Node, ctx context.Context) error {
		_, err := n.Run(ctx, n.Daemons()[0].Name(), command)
		return err
	})
}

// answers returns an act that sets how a stub server answers its check.
func answers(parameters string) act {
	return func(ctx context.Context, j *injector, f Fault) error {
		check := "127.0.0.1:6443/stub/readyz"
		if f.Part == Registry {
			check = "127.0.0.1:5001/stub/v2"
		}
		return stub.Tell(ctx, j.site.Node(f.Master).DialContext, check, parameters)
	}
}

// changeFile applies the fault's change to the speaker's configuration, or to all
// configurations if it changes the electorate.
func changeFile(_ context.Context, j *injector, f Fault) (err error) {
	for _, m := range masters {
		if f.Part == Speaker && m != f.Master {
			continue
		}
		c := j.site.speakerConfig(m)
		c.change(f)
		path := filepath.Join(j.site.config(m), "herald.yaml")
		err = errors.Join(err, c.write(path+".new"), os.Rename(path+".new", path))
		if f.Part == Speaker { // other speakers may be down; they read the file when they start
			err = errors.Join(err, j.speaker(m).Daemons()[0].Signal(unix.SIGHUP))
		}
	}
	return err
}

func restoreFile(ctx context.Context, j *injector, f Fault) error {
	return changeFile(ctx, j, Fault{Part: f.Part, Master: f.Master})
}

// moves returns an act that stops the master's speaker, changes the files and starts it again.
func moves(change act) act {
	return func(ctx context.Context, j *injector, f Fault) error {
		j.ending(f.Master)
		_, err := j.site.Node(f.Master).Run(ctx, "ip", "address", "replace", movedTo(f.Master)+"/24", "dev", "eth1")
		return errors.Join(err, j.speaker(f.Master).Kill(), change(ctx, j, f), j.speaker(f.Master).Boot(ctx))
	}
}

// loseDisk stops the master's speaker and deletes its state and its bootstrap flag. It
// waits until all masters vote and receive each other: if two members had lost their
// state at once, the committed record would be lost.
func loseDisk(ctx context.Context, j *injector, f Fault) error {
	speaker := j.speaker(f.Master)
	pause(ctx, 3*time.Second) // a silent member may be shown as alive for that long
	for {
		out, err := speaker.Run(ctx, speaker.Daemons()[0].Name(), "status", "-o", "json")
		if ctx.Err() != nil {
			return fmt.Errorf("await all votes: %w", errors.Join(ctx.Err(), err))
		}
		var status admin.Status
		if err == nil && json.Unmarshal([]byte(out), &status) == nil && status.Election != nil &&
			len(slices.DeleteFunc(status.Election.Members, func(m lease.Member) bool { return !m.Voter || !m.Alive })) == len(masters) {
			break
		}
		pause(ctx, 50*time.Millisecond)
	}
	return errors.Join(speaker.Kill(), restoreFile(ctx, j, f), os.Remove(filepath.Join(j.site.Dir, "disks", f.Master, "electorate")))
}

// deleteAddress deletes the VIP's IPv4 address if it is present.
func deleteAddress(ctx context.Context, j *injector, f Fault) error {
	return runs("ip", "-4", "address", "flush", "to", j.site.vips()[0].String()+"/32")(ctx, j, f)
}

// gossipCut is an nftables ruleset that drops the election's messages.
const gossipCut = `add table inet lab
	add chain inet lab in { type filter hook input priority 0; }
	add chain inet lab out { type filter hook output priority 0; }
	add rule inet lab in meta l4proto { tcp, udp } th dport 7946 drop
	add rule inet lab out meta l4proto { tcp, udp } th dport 7946 drop`

// link returns an act that calls do for the fault's link.
func link(do func(*lab.Link) error) act {
	return func(_ context.Context, j *injector, f Fault) error { return do(j.site.Link(f.Master, f.Router)) }
}

func cutOut(_ context.Context, j *injector, f Fault) error {
	return j.site.Link(f.Master, f.Router).CutFrom(f.Master)
}

func cutIn(_ context.Context, j *injector, f Fault) error {
	return j.site.Link(f.Master, f.Router).CutFrom(f.Router)
}

func killBGP(_ context.Context, j *injector, f Fault) error {
	return j.site.Node(f.Router).Daemon("bgpd").Kill()
}

// reboot ends a router's remaining processes and removes the routes that a killed FRR
// left in its kernel, as a reboot does. A new FRR should sweep them, but an IPv6 route
// once outlived even the session it came from. So a route that Herald failed to
// withdraw before the kill is not detected afterwards.
func reboot(ctx context.Context, j *injector, f Fault) error {
	router := j.site.Node(f.Router)
	err := router.Kill()
	for _, family := range []string{"-4", "-6"} {
		_, failed := router.Run(ctx, "ip", family, "route", "flush", "proto", "bgp")
		err = errors.Join(err, failed)
	}
	return errors.Join(err, router.Boot(ctx))
}

// part separates the master from the others.
func part(_ context.Context, j *injector, f Fault) error {
	return j.site.Part(lan, []string{f.Master}, others(f.Master))
}

// deafenNext makes the next master receive nothing from this one.
func deafenNext(_ context.Context, j *injector, f Fault) error {
	next := others(f.Master)[0]
	return j.site.Link(next, lan).Deafen(next, j.site.Link(f.Master, lan).MAC(f.Master))
}

func join(_ context.Context, j *injector, _ Fault) error { return j.site.Part(lan) }

// others returns the other masters, the next one first.
func others(master string) []string {
	i := slices.Index(masters, master)
	return slices.Concat(masters[i+1:], masters[:i])
}

// strangers returns an act that runs "ip address" with verb for the VIP on the stranger.
func strangers(what string) act {
	return func(ctx context.Context, j *injector, _ Fault) (err error) {
		for _, a := range j.site.vips() {
			_, failed := j.site.Node(stranger).Run(ctx, "ip", "address", what, fmt.Sprintf("%v/%d", a, a.BitLen()), "dev", "eth1")
			err = errors.Join(err, failed)
		}
		return err
	}
}
