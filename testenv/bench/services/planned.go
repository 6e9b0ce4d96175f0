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
