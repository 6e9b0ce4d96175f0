package balancer

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
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
func (s *stage) loadPart(ctx context.Context) {
	s.bootBoth(ctx)
	s.boot(ctx, s.speaker, proxyWorker, trackingWorker)
	ways := s.ways(s.part)
	for _, w := range ways {
		if w.balancer != nil {
			step.Named(w.name, func() { s.spread(ctx, w) })
		}
	}
	for round := range s.rounds {
		s.paced(ctx, ways)
		s.stream(ctx, ways)
		// Each round begins with another way, so that none always follows the same one.
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			step.Named(w.name, func() {
				s.bulk(ctx, w)
				if !w.bulkOnly {
					s.connections(ctx, w)
				}
			})
		}
	}
}

// spread counts at the servers how the connections were distributed.
func (s *stage) spread(ctx context.Context, w way) {
	before := s.served(ctx, voters()...)
	s.start(w.machine, Load{Targets: w.targets, Workers: 8, Count: s.scale.spread}).load(ctx).allGood()
	after := s.served(ctx, voters()...)
	for _, m := range voters() {
		s.note(w.name, "connections at each master", w.path, "connections", float64(after[m]-before[m]))
	}
}

// served returns the number of connections of each master's server.
func (s *stage) served(ctx context.Context, masters ...string) map[string]int {
	all := make(map[string]int)
	for _, m := range masters {
		step.Named("ask "+m, func() { all[m] = step.Get(strconv.Atoi(step.Get(s.ask(ctx, m, backend(m), "/served", answerWithin)))) })
	}
	return all
}

// allGood fails if connections failed.
func (r LoadResult) allGood() {
	if r.Failed > 0 {
		step.Do(fmt.Errorf("%d connections failed without a fault, the first: %s", r.Failed, r.Failures[0].Failure))
	}
}

// connections measures the rate and cost of new connections.
func (s *stage) connections(ctx context.Context, w way) {
	var r LoadResult
	const inAll = 16 // concurrent connections in the closed loop
	used, machine := s.cost(w, func() {
		c := s.start(w.machine, Load{Targets: w.targets, Workers: inAll})
		step.Pause(ctx, s.last)
		c.stop(ctx)
		r = c.load(ctx)
		r.allGood()
	})
	n := float64(r.Good)
	s.note(w.name, "new connections a second", w.path, "connections/s", n/r.Took.Seconds())
	s.took(w.name, "latency of a new connection at that rate, median", w.path, r.Median)
	s.took(w.name, "latency of a new connection at that rate, p99", w.path, r.P99)
	s.note(w.name, "CPU of a new connection, all processes", w.path, "µs", 1e6*(used+r.CPU).Seconds()/n)
	s.note(w.name, "CPU of a new connection, whole machine", w.path, "µs", 1e6*machine.Seconds()/n)
}

// bulk measures the cost of bytes, over one and over eight streams, and with eight
// streams their throughput.
func (s *stage) bulk(ctx context.Context, w way) {
	for _, streams := range []int{1, 8} {
		name := map[int]string{1: "1 stream", 8: "8 streams"}[streams]
		var r BulkResult
		used, machine := s.cost(w, func() {
			r = s.start(w.machine, Bulk{Targets: w.targets, Streams: streams, Time: s.last}).bulk(ctx)
		})
		gigabytes := float64(r.Bytes) / 1e9
		if streams == 8 {
			s.note(w.name, "throughput, "+name, w.path, "Gbit/s", gigabytes*8/r.Took.Seconds())
		}
		s.note(w.name, "CPU of 10^9 bytes, "+name+", all processes", w.path, "ms", 1e3*(used+r.CPU).Seconds()/gigabytes)
		s.note(w.name, "CPU of 10^9 bytes, "+name+", whole machine", w.path, "ms", 1e3*machine.Seconds()/gigabytes)
	}
}

// cost returns the CPU time of the servers, the balancer and the kernel's softirq
// threads while do runs, and the busy time of the whole machine. The client reports
// its own CPU time. The kernel's work on a packet is accounted to the process that
// sends or receives it, or to those threads.
func (s *stage) cost(w way, do func()) (used, machine time.Duration) {
	pids := step.Get(observe.SoftIRQ())
	var nodes []*lab.Node
	for _, name := range voters() {
		nodes = append(nodes, s.server(name))
	}
	if w.balancer != nil {
		nodes = append(nodes, w.balancer)
	}
	for _, n := range nodes {
		for _, p := range n.Daemons() {
			pids = append(pids, step.Get(observe.Group(p.Pid()))...)
		}
	}
	cpu, busy := step.Get(observe.CPUOf(pids...)), observe.Busy()
	do()
	return step.Get(observe.CPUOf(pids...)) - cpu, observe.Busy() - busy
}
