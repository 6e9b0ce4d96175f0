package services

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/bench/record"
	cluster "github.com/herald-vip/herald/testenv/services"
)

// plannedTrials bounds the trials of each planned change.
const plannedTrials = 5

// planned makes planned changes of a node in use, and counts the failed connections of a client.
func (s *stage) planned(ctx context.Context, pool string) error {
	suffix := ", BGP"
	if pool == cluster.PoolARP {
		suffix = ", ARP"
	}
	if err := s.change(ctx, "node drained"+suffix, pool, s.drain); err != nil {
		return err
	}
	return s.change(ctx, "speaker restarted"+suffix, pool, s.upgrade)
}

// change makes one planned change repeatedly.
func (s *stage) change(ctx context.Context, measure, pool string, do func(ctx context.Context, node, service string) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	const name = "planned"
	// Its traffic goes to nodes with an endpoint, so that a node has to leave in the proper order.
	if err := s.Create(ctx, cluster.Service{Name: name, Pool: pool, Local: true, Endpoints: s.Members()}); err != nil {
		return err
	}
	vip, err := s.AddressOf(ctx, name)
	if err != nil {
		return err
	}
	trials := min(s.faults, plannedTrials)
	var failed, attempts int
	for number := range trials {
		f, n, err := s.changeOnce(ctx, pool, vip, number, s.connections/trials, func(node string) error { return do(ctx, node, name) })
		if err != nil {
			return err
		}
		failed, attempts = failed+f, attempts+n
	}
	s.rec.Add(s.result(measure, 0), record.Value{Value: float64(failed), Unit: "failed"}, record.Value{Value: float64(attempts), Unit: "connections"})
	if err := s.Remove(ctx, name); err != nil {
		return err
	}
	_, err = s.routes.AwaitHops(ctx, vip)
	return err
}

// changeOnce makes a planned change of the node that has the VIP or, with routers, of
// each in turn. The state is as before when it returns.
func (s *stage) changeOnce(ctx context.Context, pool string, vip netip.Addr, number, connections int, do func(node string) error) (failed, attempts int, err error) {
	client, rest := "c1", func() (string, error) { return s.Members()[number%len(s.Members())], s.onAll(ctx, vip) }
	if pool == cluster.PoolARP {
		seen, e := s.observe(vip)
		if e != nil {
			return 0, 0, e
		}
		defer func() { err = errors.Join(err, seen.Close()) }()
		client, rest = "c2", func() (string, error) {
			holders, err := observe.AtRest(ctx, seen, []netip.Addr{vip}, nil, nil)
			return holders[vip], err
		}
	}
	node, err := rest()
	if err != nil {
		return 0, 0, err
	}
	t := observe.Send(ctx, s.Node(client), net.JoinHostPort(vip.String(), strconv.Itoa(cluster.Port)), false)
	if err = observe.Pause(ctx, observe.LeadIn); err == nil {
		err = do(node)
	}
	if err == nil {
		_, err = rest()
	}
	if err == nil {
		err = observe.AwaitConnections(ctx, []*observe.Traffic{t}, connections)
	}
	r, e := t.End()
	if err := errors.Join(err, e); err != nil {
		return 0, 0, err
	}
	return r.Failed, r.Total, nil
}

// onAll waits until the router has reached the VIP over all nodes for a moment.
func (s *stage) onAll(ctx context.Context, vip netip.Addr) error {
	var hops []netip.Addr
	for _, m := range s.Members() {
		hops = append(hops, s.Address(m))
	}
	if _, err := s.routes.AwaitHops(ctx, vip, hops...); err != nil {
		return err
	}
	return observe.Pause(ctx, time.Second)
}

// drain takes a node out of service like an administrator before a shutdown: the node
// is labelled, its endpoint ends, its speaker is stopped, and its power goes. Then all
// of it comes back.
func (s *stage) drain(ctx context.Context, node, service string) error {
	for _, step := range []func() error{
		func() error { return s.Exclude(ctx, node, true) },
		func() error { return s.SetEndpoint(ctx, service, node, cluster.Draining()) },
		func() error { return observe.Pause(ctx, 3*time.Second) },
		func() error { return s.Speaker(node).Stop(ctx) },
		func() error { return s.Node(node).PowerOff() },
		func() error { return s.RemoveEndpoint(ctx, service, node) },
		func() error { return observe.Pause(ctx, time.Second) },
		func() error { return s.Node(node).PowerOn(ctx) },
		func() error { return s.Serves(ctx, node) },
		func() error { return s.SetEndpoint(ctx, service, node, cluster.Ready()) },
		func() error { return s.Exclude(ctx, node, false) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// upgrade stops the speaker of a node and starts it again, as a rolling update does.
func (s *stage) upgrade(ctx context.Context, node, _ string) error {
	return errors.Join(s.Speaker(node).Stop(ctx), s.Speaker(node).Boot(ctx))
}
