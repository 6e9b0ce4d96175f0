package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herald-vip/herald/testenv/balance"
	"github.com/herald-vip/herald/testenv/lab"
)

// way is one way that connections go: through a balancer or not, from the machine that
// it is on or from another.
type way struct {
	name, path string
	machine    string   // of the client
	targets    []string // of its connections
	balancer   *lab.Node
	bulkOnly   bool
}

// ways are all of a path. The first is direct.
func (s *balancerStage) ways(path string) []way {
	client := func(worker string) string {
		if path == local {
			return worker
		}
		return "c1"
	}
	list := []way{{name: direct, path: path, machine: client(directWorker)}}
	for _, m := range voters() {
		list[0].targets = append(list[0].targets, balance.Backend(m).String())
	}
	through := func(name, worker string, port int, n *lab.Node) way {
		return way{name: name, path: path, machine: client(worker), targets: []string{target(worker, path, port)}, balancer: n}
	}
	if path == remote {
		routed := way{name: forwarded, path: path, machine: "c1"}
		for _, m := range voters() {
			routed.targets = append(routed.targets, balance.Routed(m).String())
		}
		list = append(list, routed)
	}
	spliced := through(viaHAProxySpl, haproxyWorker, balance.SplicePort, s.HAProxy(haproxyWorker))
	spliced.bulkOnly = true
	return append(list,
		through(viaHerald, heraldWorker, balance.ListenPort, s.Speaker(heraldWorker)),
		through(viaHAProxy, haproxyWorker, balance.ListenPort, s.HAProxy(haproxyWorker)),
		through(viaProxy, proxyWorker, balance.ListenPort, s.Speaker(proxyWorker)),
		spliced)
}

// localPart measures what balancing costs clients on the balancer's own machine.
func (s *balancerStage) localPart(ctx context.Context) error { return s.loadPart(ctx, local) }

// remotePart measures what it costs those on another.
func (s *balancerStage) remotePart(ctx context.Context) error { return s.loadPart(ctx, remote) }

func (s *balancerStage) loadPart(ctx context.Context, path string) error {
	if err := errors.Join(s.bootBoth(ctx), s.boot(ctx, s.Speaker, proxyWorker, trackingWorker)); err != nil {
		return err
	}
	began := len(s.results.Figures)
	ways := s.ways(path)
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
		// Each round begins with another one, so that none is always the one after another.
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
	s.tell(began)
	return nil
}

// spread counts at the servers to whom the connections went.
func (s *balancerStage) spread(ctx context.Context, w way) error {
	before, err := s.served(ctx, voters()...)
	if err != nil {
		return err
	}
	r, err := s.load(ctx, w.machine, balance.Load{Targets: w.targets, Workers: 8, Count: s.balancerScale.spread})
	if err != nil {
		return err
	}
	if r.Failed > 0 {
		return fmt.Errorf("%d connections failed at rest, the first: %s", r.Failed, r.Failures[0].Cause)
	}
	after, err := s.served(ctx, voters()...)
	if err != nil {
		return err
	}
	for _, m := range voters() {
		s.note(w.name, Spread, w.path, float64(after[m]-before[m]))
	}
	return nil
}

// served is what each of the masters' servers has had.
func (s *balancerStage) served(ctx context.Context, masters ...string) (map[string]int, error) {
	all := make(map[string]int)
	for _, m := range masters {
		n, err := s.Served(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("ask %s: %w", m, err)
		}
		all[m] = n
	}
	return all, nil
}

// load runs a load to its end.
func (s *balancerStage) load(ctx context.Context, machine string, l balance.Load) (*balance.LoadResult, error) {
	c, err := s.Load(machine, l)
	if err != nil {
		return nil, err
	}
	return result[balance.LoadResult](c.Wait(ctx))
}

func result[T any](r any, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return r.(*T), nil
}

// inAll is how many connections are under way at a time, in the closed loop.
const inAll = 16

// connections measures new connections, as many as can be.
func (s *balancerStage) connections(ctx context.Context, w way) error {
	u, err := s.meter(w)
	if err != nil {
		return err
	}
	c, err := s.Load(w.machine, balance.Load{Targets: w.targets, Workers: inAll})
	if err != nil {
		return err
	}
	if err := pause(ctx, s.last); err != nil {
		return err
	}
	r, err := result[balance.LoadResult](c.Stop(ctx))
	if err != nil {
		return err
	}
	used, machine, err := u.read(r.CPU)
	if err != nil {
		return err
	}
	if r.Failed > 0 {
		return fmt.Errorf("%d connections failed at rest, the first: %s", r.Failed, r.Failures[0].Cause)
	}
	n := float64(r.Good)
	s.note(w.name, Rate, w.path, n/r.Took.Seconds())
	s.note(w.name, RateMedian, w.path, r.Median.Seconds())
	s.note(w.name, RateP99, w.path, r.P99.Seconds())
	s.note(w.name, ConnectionCPU, w.path, used.Seconds()/n)
	s.note(w.name, ConnectionBusy, w.path, machine.Seconds()/n)
	return nil
}

// bulk measures what bytes cost, over one and over eight streams, and over eight how fast they come.
func (s *balancerStage) bulk(ctx context.Context, w way) error {
	for _, m := range []struct {
		streams    int
		cpu, whole BalancerMeasure
	}{
		{1, GigabyteCPU1, GigabyteBusy1},
		{8, GigabyteCPU8, GigabyteBusy8},
	} {
		u, err := s.meter(w)
		if err != nil {
			return err
		}
		c, err := s.Bulk(w.machine, balance.Bulk{Targets: w.targets, Streams: m.streams, Time: s.last})
		if err != nil {
			return err
		}
		r, err := result[balance.BulkResult](c.Wait(ctx))
		if err != nil {
			return err
		}
		used, machine, err := u.read(r.CPU)
		if err != nil {
			return err
		}
		gigabytes := float64(r.Bytes) / 1e9
		if m.streams == 8 {
			s.note(w.name, Throughput8, w.path, gigabytes*8/r.Took.Seconds())
		}
		s.note(w.name, m.cpu, w.path, used.Seconds()/gigabytes)
		s.note(w.name, m.whole, w.path, machine.Seconds()/gigabytes)
	}
	return nil
}

// meter counts the CPU time of all that takes part in a way: the servers, the balancer,
// and the kernel's threads for what interrupts leave to do. That of the client is its own
// to tell. What the kernel does for a packet it does on account of the process that sends
// or receives it, or of those threads.
type meter struct {
	pids    []int
	before  time.Duration
	machine time.Duration
}

func (s *balancerStage) meter(w way) (m *meter, err error) {
	m = new(meter)
	if m.pids, err = balance.SoftIRQ(); err != nil {
		return nil, err
	}
	var nodes []*lab.Node
	for _, name := range voters() {
		nodes = append(nodes, s.Server(name))
	}
	if w.balancer != nil {
		nodes = append(nodes, w.balancer)
	}
	for _, n := range nodes {
		for _, p := range n.Daemons() {
			group, err := balance.Group(p.Pid())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.Name(), err)
			}
			m.pids = append(m.pids, group...)
		}
	}
	if m.before, err = m.sum(); err != nil {
		return nil, err
	}
	m.machine, err = balance.MachineBusy()
	return m, err
}

func (m *meter) sum() (sum time.Duration, err error) {
	for _, pid := range m.pids {
		d, err := balance.CPUOf(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// read is what has been used since, with the client's own, and for how long the machine
// has been busy, whatever with.
func (m *meter) read(client time.Duration) (used, machine time.Duration, err error) {
	now, err := m.sum()
	if err != nil {
		return 0, 0, err
	}
	busy, err := balance.MachineBusy()
	return now - m.before + client, busy - m.machine, err
}
