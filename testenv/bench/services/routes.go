package services

import (
	"context"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/bench/record"
	cluster "github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
)

// within bounds every wait.
const within = 10 * time.Minute

// probeService is the Service with an endpoint on n1 that comes and goes; its endpoint on n2
// stays.
const probeService = "probe"

// bgpPart measures changes of one Service's endpoint, and planned changes of a node.
func (s *stage) bgpPart(ctx context.Context) {
	s.createProbe(ctx)
	s.flips(ctx, 1)
	s.planned(ctx, cluster.PoolBGP)
}

// create creates a Service and returns its address.
func (s *stage) create(ctx context.Context, service cluster.Service) netip.Addr {
	step.Do(s.Create(ctx, service))
	return step.Get(s.AddressOf(ctx, service.Name))
}

// createProbe creates the probe Service and waits for its route.
func (s *stage) createProbe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	vip := s.create(ctx, cluster.Service{Name: probeService, Pool: cluster.PoolBGP, Local: true, Endpoints: []string{"n1", "n2"}})
	s.have = 1
	step.Get(s.routes.AwaitHops(ctx, vip, s.Address("n1"), s.Address("n2")))
}

// flips repeatedly removes and restores the probe's endpoint on n1, among this many
// Services. It records how long it took until the router was told, and had the route
// in its kernel.
func (s *stage) flips(ctx context.Context, size int) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	vip := step.Get(s.AddressOf(ctx, probeService))
	n1, n2 := s.Address("n1"), s.Address("n2")
	for range s.trials {
		for _, flip := range []struct {
			name       string
			conditions cluster.Conditions
			hops       []netip.Addr
		}{{"unready", cluster.NotReady(), []netip.Addr{n2}}, {"ready", cluster.Ready(), []netip.Addr{n1, n2}}} {
			// So that the router is at rest, and trials don't fall into step with its timers.
			step.Pause(ctx, 300*time.Millisecond+time.Duration(time.Now().UnixNano()%100)*time.Millisecond)
			s.wire.Mark()
			s.routes.Mark()
			at := time.Now()
			step.Do(s.SetEndpoint(ctx, probeService, "n1", flip.conditions))
			installed := step.Get(s.routes.AwaitHops(ctx, vip, flip.hops...))
			if h, ok := s.wire.First(n1); ok {
				s.note("endpoint "+flip.name+", until the router is told", size, "ms", h.At.Sub(at).Seconds()*1e3)
			}
			s.note("endpoint "+flip.name+", until the router's kernel has the route", size, "ms", installed.Sub(at).Seconds()*1e3)
		}
	}
}

// curvePart measures the cost of one change of an endpoint among increasing numbers of Services.
func (s *stage) curvePart(ctx context.Context) {
	s.createProbe(ctx)
	for _, n := range s.curve {
		s.grow(ctx, n, false)
		s.size(ctx, n)
		idle := s.spent(func() { step.Pause(ctx, min(s.quiet, 5*time.Second)) })
		busy := s.spent(func() { s.flips(ctx, n) })
		share := idle.cpu.Seconds() / idle.took.Seconds()
		s.note("one change of an endpoint, CPU of all nodes", n, "ms", max(0, busy.cpu.Seconds()-share*busy.took.Seconds())/float64(2*s.trials)*1e3)
	}
}

// plannedTrials bounds the trials of each planned change.
const plannedTrials = 5

// planned makes planned changes of a node in use, and counts the failed connections of a client.
func (s *stage) planned(ctx context.Context, pool string) {
	suffix := ", BGP"
	if pool == cluster.PoolARP {
		suffix = ", ARP"
	}
	s.change(ctx, "node drained"+suffix, pool, s.drain)
	s.change(ctx, "speaker restarted"+suffix, pool, s.upgrade)
}

// change makes one planned change repeatedly.
func (s *stage) change(ctx context.Context, measure, pool string, do func(ctx context.Context, node, service string)) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	const name = "planned"
	// Its traffic goes to nodes with an endpoint, so that a node has to leave in the proper order.
	vip := s.create(ctx, cluster.Service{Name: name, Pool: pool, Local: true, Endpoints: s.Members()})
	trials := min(s.faults, plannedTrials)
	var failed, attempts int
	for number := range trials {
		f, n := s.changeOnce(ctx, pool, vip, number, s.connections/trials, func(node string) { do(ctx, node, name) })
		failed, attempts = failed+f, attempts+n
	}
	s.rec.Add(s.result(measure, 0), record.Failed(failed, attempts)...)
	step.Do(s.Remove(ctx, name))
	step.Get(s.routes.AwaitHops(ctx, vip))
}

// changeOnce makes a planned change of the node that has the VIP or, with routers, of
// each in turn. The state is as before when it returns.
func (s *stage) changeOnce(ctx context.Context, pool string, vip netip.Addr, number, connections int, do func(node string)) (failed, attempts int) {
	client, rest := "c1", func() string { s.onAll(ctx, vip); return s.Members()[number%len(s.Members())] }
	if pool == cluster.PoolARP {
		seen := s.observe(vip)
		defer step.Close(seen.Close)
		client, rest = "c2", func() string { return observe.AtRest(ctx, seen, []netip.Addr{vip}, nil, nil)[vip] }
	}
	node := rest()
	t := s.send(ctx, client, vip, false)
	defer t.Stop()
	step.Pause(ctx, observe.LeadIn)
	do(node)
	rest()
	observe.AwaitConnections(ctx, connections, t)
	r := t.End()
	return r.Failed, r.Total
}

// onAll waits until the router has reached the VIP over all nodes for a moment.
func (s *stage) onAll(ctx context.Context, vip netip.Addr) {
	var hops []netip.Addr
	for _, m := range s.Members() {
		hops = append(hops, s.Address(m))
	}
	step.Get(s.routes.AwaitHops(ctx, vip, hops...))
	step.Pause(ctx, time.Second)
}

// drain takes a node out of service like an administrator before a shutdown: the node
// is labelled, its endpoint ends, its speaker is stopped, and its power goes. Then all
// of it comes back.
func (s *stage) drain(ctx context.Context, node, service string) {
	step.Do(s.Exclude(ctx, node, true))
	step.Do(s.SetEndpoint(ctx, service, node, cluster.Draining()))
	step.Pause(ctx, 3*time.Second)
	step.Do(s.Speaker(node).Stop(ctx))
	step.Do(s.Node(node).PowerOff())
	step.Do(s.RemoveEndpoint(ctx, service, node))
	step.Pause(ctx, time.Second)
	step.Do(s.Node(node).PowerOn(ctx))
	step.Do(s.Serves(ctx, node))
	step.Do(s.SetEndpoint(ctx, service, node, cluster.Ready()))
	step.Do(s.Exclude(ctx, node, false))
}

// upgrade stops the speaker of a node and starts it again, as a rolling update does.
func (s *stage) upgrade(ctx context.Context, node, _ string) {
	step.Do(s.Speaker(node).Stop(ctx))
	step.Do(s.Speaker(node).Boot(ctx))
}
