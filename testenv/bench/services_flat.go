package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/segment"
	"github.com/herald-vip/herald/testenv/services"
)

const (
	// flatServices is how many Services there are on the segment.
	flatServices = 6
	// partitions is how often nodes are parted at most.
	partitions = 3
	// takenWithin is how long a VIP may be without a holder.
	takenWithin = 30 * time.Second
)

// arpPart measures what there is to measure on a flat layer 2: the loss of a node, a
// partition of the nodes, and planned changes.
func (s *stage) arpPart(ctx context.Context) error {
	var vips []netip.Addr
	for i := range flatServices {
		name := fmt.Sprintf("flat%d", i)
		if err := s.create(ctx, services.Service{Name: name, Pool: services.PoolARP, Endpoints: s.Members()}); err != nil {
			return err
		}
		vip, err := s.AddressOf(ctx, name)
		if err != nil {
			return err
		}
		vips = append(vips, vip)
	}
	var power, parted []Trial
	for len(power) < s.faults {
		if err := s.flatTrial(ctx, vips, &power, s.losePower); err != nil {
			return err
		}
	}
	s.noteTrials(power, PowerLossTaken, PowerLossOutage, PowerLossSplit)
	for len(parted) < min(s.faults, partitions) {
		if err := s.flatTrial(ctx, vips, &parted, s.part); err != nil {
			return err
		}
	}
	s.noteTrials(parted, PartitionTaken, PartitionOutage, PartitionSplit)
	return s.planned(ctx, services.PoolARP)
}

// noteTrials notes when the VIPs were taken over, the clients' outages, and for how
// long there were two holders.
func (s *stage) noteTrials(trials []Trial, taken, outage, split Measure) {
	values := make(map[Measure][]float64)
	for _, t := range trials {
		values[taken] = append(values[taken], t.Taken.Seconds())
		values[outage] = append(values[outage], max(t.Outage, *t.After).Seconds())
		values[split] = append(values[split], t.Split.Seconds())
	}
	for _, m := range []Measure{taken, outage, split} {
		s.note(m, flatServices, values[m]...)
	}
}

// observe begins to watch who answers for the VIPs. The caller ends it.
func (s *stage) observe(vips ...netip.Addr) (*segment.Observer, error) {
	target := segment.Target{Link: "eth1", VIPs: vips, Senders: []netip.Addr{netip.MustParseAddr("10.5.0.128")}, Masters: make(map[string]net.HardwareAddr)}
	for _, m := range s.Members() {
		target.Masters[m] = s.Link(m, services.Segment).MAC(m)
	}
	return segment.Observe(s.Node("o1"), target)
}

// atRest waits until each VIP has had the same holder for a while, and returns them.
func (s *stage) atRest(ctx context.Context, seen *segment.Observer, vips []netip.Addr) (map[netip.Addr]string, error) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	var since time.Time
	var before map[netip.Addr]string
	for {
		now := make(map[netip.Addr]string)
		for _, vip := range vips {
			if holder, _ := seen.Holder(vip); holder != "" {
				now[vip] = holder
			}
		}
		if len(now) < len(vips) || !maps.Equal(now, before) {
			before, since = now, time.Now()
		}
		if time.Since(since) > holding {
			return now, nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the segment did not come to rest; %v: %w", now, err)
		}
	}
}

// flatTrial makes a fault on the holder of the first VIP, and adds what came of it,
// unless it was disturbed from outside.
func (s *stage) flatTrial(ctx context.Context, vips []netip.Addr, trials *[]Trial, fault func(ctx context.Context, node string) (heal func() error, err error)) error {
	full, err := neighbourOverflows()
	if err != nil {
		return err
	}
	seen, err := s.observe(vips...)
	if err != nil {
		return err
	}
	t, results, err := s.flatFault(ctx, seen, vips, fault)
	trace := seen.Trace()
	if err := errors.Join(err, seen.Close()); err != nil {
		return err
	}
	now, err := neighbourOverflows()
	if err != nil {
		return err
	}
	if now != full {
		fmt.Fprintln(s.bench.out, "  a trial is made again: the kernel's table of neighbours was full")
		return nil
	}
	t.judge(trace, t.began)
	t.tellBoth([]*probe.Result{results}, t.healedAt)
	*trials = append(*trials, t.Trial)
	return nil
}

// flatTold is a trial before it is judged.
type flatTold struct {
	Trial
	began    time.Duration
	healedAt time.Time
}

func (s *stage) flatFault(ctx context.Context, seen *segment.Observer, vips []netip.Addr, fault func(context.Context, string) (func() error, error)) (t flatTold, r *probe.Result, err error) {
	holders, err := s.atRest(ctx, seen, vips)
	if err != nil {
		return t, nil, err
	}
	victim := holders[vips[0]]
	lost := slices.DeleteFunc(slices.Clone(vips), func(vip netip.Addr) bool { return holders[vip] != victim })
	client := send(ctx, s.Node("c2"), net.JoinHostPort(vips[0].String(), strconv.Itoa(services.Port)), true)
	defer func() {
		var e error
		r, e = client.end()
		err = errors.Join(err, e)
	}()
	if err := pause(ctx, leadIn); err != nil {
		return t, nil, err
	}
	t.began = seen.Clock()
	heal, err := fault(ctx, victim)
	if err != nil {
		return t, nil, err
	}
	for deadline := time.Now().Add(takenWithin); ; {
		at, ok := taken(seen.Trace(), lost, victim, t.began)
		if ok || time.Now().After(deadline) {
			at = cmp.Or(at, takenWithin)
			t.Taken = &at
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return t, nil, err
		}
	}
	if err := quiet(ctx, []*traffic{client}, time.Now().Add(takenWithin)); err != nil {
		return t, nil, err
	}
	t.healedAt = time.Now()
	if err := heal(); err != nil {
		return t, nil, err
	}
	_, err = s.atRest(ctx, seen, vips)
	return t, nil, err
}

// losePower takes a node's power.
func (s *stage) losePower(ctx context.Context, node string) (heal func() error, err error) {
	return func() error { return s.Node(node).PowerOn(ctx) }, s.Node(node).PowerOff()
}

// part has a node and the others hear nothing of each other for a while. API server,
// client and observer hear all.
func (s *stage) part(ctx context.Context, node string) (heal func() error, err error) {
	others := slices.DeleteFunc(s.Members(), func(m string) bool { return m == node })
	if err := s.Part(services.Segment, []string{node}, others); err != nil {
		return nil, err
	}
	until := time.Now().Add(s.parted)
	return func() error {
		if err := pause(ctx, time.Until(until)); err != nil {
			return err
		}
		if err := s.Part(services.Segment); err != nil {
			return err
		}
		return pause(ctx, s.healed)
	}, nil
}
