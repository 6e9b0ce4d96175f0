package balancer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/lab"
)

// way is a way of connections: through a balancer or not, from its machine or from another.
type way struct {
	name, path string
	machine    string   // of the client
	targets    []string // of its connections
	balancer   *lab.Node
	bulkOnly   bool
}

// ways returns all ways of a path, direct first.
func (s *stage) ways(path string) []way {
	client := func(worker string) string {
		if path == local {
			return worker
		}
		return "c1"
	}
	list := []way{{name: direct, path: path, machine: client(directWorker)}}
	for _, m := range voters() {
		list[0].targets = append(list[0].targets, backend(m))
	}
	through := func(name, worker string, port int, n *lab.Node) way {
		return way{name: name, path: path, machine: client(worker), targets: []string{target(worker, path, port)}, balancer: n}
	}
	if path == remote {
		indirect := way{name: forwarded, path: path, machine: "c1"}
		for _, m := range voters() {
			indirect.targets = append(indirect.targets, netip.AddrPortFrom(routed(m), backendPort).String())
		}
		list = append(list, indirect)
	}
	spliced := through(viaHAProxySpl, haproxyWorker, splicePort, s.haproxy(haproxyWorker))
	spliced.bulkOnly = true
	return append(list,
		through(viaHerald, heraldWorker, listenPort, s.speaker(heraldWorker)),
		through(viaHAProxy, haproxyWorker, listenPort, s.haproxy(haproxyWorker)),
		through(viaProxy, proxyWorker, listenPort, s.speaker(proxyWorker)),
		spliced)
}

// loadPart measures the cost of balancing for clients on the balancer's own machine or
// on another one: the path is the part's name.
func (s *stage) loadPart(ctx context.Context) error {
	if err := errors.Join(s.bootBoth(ctx), s.boot(ctx, s.speaker, proxyWorker, trackingWorker)); err != nil {
		return err
	}
	ways := s.ways(s.part)
	for _, w := range ways {
		if w.balancer == nil {
			continue
		}
		if err := s.spread(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	for round := range s.rounds {
		if err := errors.Join(s.paced(ctx, ways), s.stream(ctx, ways)); err != nil {
			return err
		}
		// Each round begins with another way, so that none always follows the same one.
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			err := s.bulk(ctx, w)
			if !w.bulkOnly {
				err = errors.Join(err, s.connections(ctx, w))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

// spread counts at the servers how the connections were distributed.
func (s *stage) spread(ctx context.Context, w way) error {
	before, err := s.served(ctx, voters()...)
	if err != nil {
		return err
	}
	if _, err := s.load(ctx, w.machine, Load{Targets: w.targets, Workers: 8, Count: s.scale.spread}); err != nil {
		return err
	}
	after, err := s.served(ctx, voters()...)
	if err != nil {
		return err
	}
	for _, m := range voters() {
		s.note(w.name, "connections at each master", w.path, "connections", float64(after[m]-before[m]))
	}
	return nil
}

// served returns the number of connections of each master's server.
func (s *stage) served(ctx context.Context, masters ...string) (map[string]int, error) {
	all := make(map[string]int)
	for _, m := range masters {
		text, err := s.ask(ctx, m, backend(m), "/served", answerWithin)
		if err == nil {
			all[m], err = strconv.Atoi(text)
		}
		if err != nil {
			return nil, fmt.Errorf("ask %s: %w", m, err)
		}
	}
	return all, nil
}

// load runs a load to its end. Any failed connection is an error.
func (s *stage) load(ctx context.Context, machine string, l Load) (r LoadResult, err error) {
	c, err := s.start(machine, l)
	if err != nil {
		return r, err
	}
	err = c.wait(ctx, &r)
	return r, errors.Join(err, r.allGood())
}

// allGood returns an error if connections failed.
func (r *LoadResult) allGood() error {
	if r.Failed == 0 {
		return nil
	}
	return fmt.Errorf("%d connections failed without a fault, the first: %s", r.Failed, r.Failures[0].Failure)
}

// connections measures the rate and cost of new connections.
func (s *stage) connections(ctx context.Context, w way) error {
	var r LoadResult
	const inAll = 16 // concurrent connections in the closed loop
	used, machine, err := s.cost(w, func() error {
		c, err := s.start(w.machine, Load{Targets: w.targets, Workers: inAll})
		if err != nil {
			return err
		}
		err = observe.Pause(ctx, s.last)
		return errors.Join(err, c.stop(ctx, &r), r.allGood())
	})
	if err != nil {
		return err
	}
	n := float64(r.Good)
	s.note(w.name, "new connections a second", w.path, "connections/s", n/r.Took.Seconds())
	s.took(w.name, "latency of a new connection at that rate, median", w.path, r.Median)
	s.took(w.name, "latency of a new connection at that rate, p99", w.path, r.P99)
	s.note(w.name, "CPU of a new connection, all processes", w.path, "µs", 1e6*(used+r.CPU).Seconds()/n)
	s.note(w.name, "CPU of a new connection, whole machine", w.path, "µs", 1e6*machine.Seconds()/n)
	return nil
}

// bulk measures the cost of bytes, over one and over eight streams, and with eight
// streams their throughput.
func (s *stage) bulk(ctx context.Context, w way) error {
	for _, streams := range []int{1, 8} {
		name := fmt.Sprintf("%d stream", streams)
		if streams > 1 {
			name += "s"
		}
		var r BulkResult
		used, machine, err := s.cost(w, func() error {
			c, err := s.start(w.machine, Bulk{Targets: w.targets, Streams: streams, Time: s.last})
			if err != nil {
				return err
			}
			return c.wait(ctx, &r)
		})
		if err != nil {
			return err
		}
		gigabytes := float64(r.Bytes) / 1e9
		if streams == 8 {
			s.note(w.name, "throughput, "+name, w.path, "Gbit/s", gigabytes*8/r.Took.Seconds())
		}
		s.note(w.name, "CPU of 10^9 bytes, "+name+", all processes", w.path, "ms", 1e3*(used+r.CPU).Seconds()/gigabytes)
		s.note(w.name, "CPU of 10^9 bytes, "+name+", whole machine", w.path, "ms", 1e3*machine.Seconds()/gigabytes)
	}
	return nil
}

// cost returns the CPU time of the servers, the balancer and the kernel's softirq
// threads while do runs, and the busy time of the whole machine. The client reports
// its own CPU time. The kernel's work on a packet is accounted to the process that
// sends or receives it, or to those threads.
func (s *stage) cost(w way, do func() error) (used, machine time.Duration, err error) {
	pids, err := observe.SoftIRQ()
	if err != nil {
		return 0, 0, err
	}
	var nodes []*lab.Node
	for _, name := range voters() {
		nodes = append(nodes, s.server(name))
	}
	if w.balancer != nil {
		nodes = append(nodes, w.balancer)
	}
	for _, n := range nodes {
		for _, p := range n.Daemons() {
			group, err := observe.Group(p.Pid())
			if err != nil {
				return 0, 0, fmt.Errorf("%s: %w", n.Name(), err)
			}
			pids = append(pids, group...)
		}
	}
	before, err := observe.CPUOf(pids...)
	if err != nil {
		return 0, 0, err
	}
	busyBefore, err := observe.Busy()
	if err == nil {
		err = do()
	}
	if err != nil {
		return 0, 0, err
	}
	now, err := observe.CPUOf(pids...)
	if err != nil {
		return 0, 0, err
	}
	busy, err := observe.Busy()
	return now - before, busy - busyBefore, err
}
