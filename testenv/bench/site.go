package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

// vip is the address of all BGP speakers.
const vip = "10.99.0.10"

// site is the running lab of bench-bgp.clab.yml with one speaker on all masters.
type site struct {
	lab     *lab.Lab
	speaker speaker
	bfd     int // milliseconds, 0 for none
	routers []*router
}

// masterNumbers are those of the topology's masters.
func masterNumbers() []int { return []int{1, 2, 3} }

func masterOf(number int) string  { return fmt.Sprintf("m%d", number) }
func speakerOf(number int) string { return masterOf(number) + "-speaker" }

// open boots the lab, its configurations and logs in dir. The caller closes it.
func open(ctx context.Context, o Options, s speaker, bfd int, dir string) (_ *site, err error) {
	out := &site{speaker: s, bfd: bfd}
	out.routers = []*router{{number: 1, kind: frrRouter{}}, {number: 2, kind: birdRouter{}}}
	templates := filepath.Join(o.Topologies, "bench-bgp")
	var numbers []int
	for _, r := range out.routers {
		numbers = append(numbers, r.number)
		c := routerConf{Masters: masterNumbers(), BFD: bfd}
		if err := r.kind.configure(templates, filepath.Join(dir, fmt.Sprintf("r%d", r.number)), c); err != nil {
			return nil, err
		}
	}
	for _, m := range masterNumbers() {
		c := masterConf{Number: m, Routers: numbers, BFD: bfd, Realtime: fast(bfd)}
		if err := s.configure(templates, filepath.Join(dir, masterOf(m)), c); err != nil {
			return nil, err
		}
	}
	topology, err := load(filepath.Join(o.Topologies, "bench-bgp.clab.yml"), map[string]string{
		"BENCH_DIR": dir, "SPEAKER": s.program(), "SPEAKER_IMAGE": "speaker",
	})
	if err != nil {
		return nil, err
	}
	out.lab, err = lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Hold: true, Dir: filepath.Join(dir, "logs"), Images: map[string]lab.Image{
		"quay.io/frrouting/frr": lab.FRR,
		"bird":                  lab.BIRD,
		"speaker":               s.image(),
		"herald-testenv":        lab.Binary(o.Testenv),
	}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
		}
	}()
	for _, r := range out.routers {
		r.node, r.client = out.lab.Node(fmt.Sprintf("r%d", r.number)), out.lab.Node(fmt.Sprintf("c%d", r.number))
		if r.routes, err = follow(r.node); err != nil {
			return nil, err
		}
		if r.wire, err = listen(r.node); err != nil {
			return nil, err
		}
	}
	if err := out.lab.Boot(ctx); err != nil {
		return nil, err
	}
	if err := out.realtime(); err != nil {
		return nil, err
	}
	return out, nil
}

// load reads a topology with these variables.
func load(path string, variables map[string]string) (*clab.Topology, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return clab.Parse(path, data, func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
}

// realtime gives every BFD daemon real-time scheduling where BFD is fast:
// intervals of 10 ms fail on a busy machine without, whoever speaks. Herald asks
// for it by its own configuration.
func (s *site) realtime() error {
	if !fast(s.bfd) {
		return nil
	}
	for _, n := range s.lab.Nodes() {
		for _, p := range n.Daemons() {
			if !p.Running() || p.Name() != "bfdd" && p.Name() != "bird" {
				continue
			}
			if err := realtime(p.Pid()); err != nil {
				return fmt.Errorf("real-time scheduling of %s on %s: %w", p.Name(), n.Name(), err)
			}
		}
	}
	return nil
}

// fast reports whether a BFD interval, in milliseconds, wants real-time scheduling.
func fast(bfd int) bool { return bfd > 0 && bfd < 50 }

// realtime gives all threads of a process a low priority of SCHED_FIFO.
func realtime(pid int) error {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, 0); err != nil {
			return err
		}
	}
	return nil
}

// steadyWithin is how long anything may take that is to come back.
const steadyWithin = time.Minute

// steady waits until the routes of all routers lead to every master, and all
// BFD sessions are up.
func (s *site) steady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	for _, r := range s.routers {
		var hops []netip.Addr
		for _, m := range masterNumbers() {
			hops = append(hops, r.hop(m))
		}
		if err := r.routes.await(ctx, hops); err != nil {
			return err
		}
	}
	for _, r := range s.routers {
		if err := s.bfdUp(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// bfdUp waits until the router has a BFD session with every master.
func (s *site) bfdUp(ctx context.Context, r *router) error {
	if s.bfd == 0 {
		return nil
	}
	for {
		up, err := r.kind.bfdUp(ctx, r.node)
		if err != nil {
			return err
		}
		if up == len(masterNumbers()) {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%s has %d BFD sessions up: %w", r.node.Name(), up, err)
		}
	}
}

// pause waits for a while, or for the end of the context.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// node returns a node of a master: "speaker", "apiserver" or "registry".
func (s *site) node(master int, kind string) *lab.Node {
	return s.lab.Node(masterOf(master) + "-" + kind)
}

// links are those of a master.
func (s *site) links(master int) []*lab.Link {
	var list []*lab.Link
	for _, r := range s.routers {
		list = append(list, s.lab.Link(masterOf(master), r.node.Name()))
	}
	return list
}

func (s *site) close() error {
	var err error
	for _, r := range s.routers {
		if r.routes != nil {
			err = errors.Join(err, r.routes.Close())
		}
		if r.wire != nil {
			err = errors.Join(err, r.wire.close())
		}
	}
	return errors.Join(err, s.lab.Close())
}
