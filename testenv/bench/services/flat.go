package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/holders"
	cluster "github.com/herald-vip/herald/testenv/services"
)

const (
	// flatServices is the number of Services on the segment.
	flatServices = 6
	// partitions bounds the number of partitions.
	partitions = 3
	// takenWithin bounds the time that a VIP may lack a holder.
	takenWithin = 30 * time.Second
)

// arpPart measures a flat layer 2: the loss of a node, a partition of the nodes, and planned
// changes.
func (s *stage) arpPart(ctx context.Context) error {
	var vips []netip.Addr
	for i := range flatServices {
		name := fmt.Sprintf("flat%d", i)
		if err := s.Create(ctx, cluster.Service{Name: name, Pool: cluster.PoolARP, Endpoints: s.Members()}); err != nil {
			return err
		}
		vip, err := s.AddressOf(ctx, name)
		if err != nil {
			return err
		}
		vips = append(vips, vip)
	}
	if err := s.flatTrials(ctx, s.faults, "node loses power, ARP", "node loses power, ARP", vips, s.losePower); err != nil {
		return err
	}
	if err := s.flatTrials(ctx, min(s.faults, partitions), "nodes parted, ARP", "nodes parted and healed, ARP", vips, s.part); err != nil {
		return err
	}
	return s.planned(ctx, cluster.PoolARP)
}

// flatTrials makes a fault on the holder of the first VIP. It records when the VIPs
// were taken over, the client's outage, and how long there were two holders. It
// records a trial that was disturbed from outside as such, and repeats it.
func (s *stage) flatTrials(ctx context.Context, trials int, name, whole string, vips []netip.Addr, fault func(ctx context.Context, node string) (heal func() error, err error)) error {
	for done := 0; done < trials; {
		var t observe.Seen
		err := observe.Undisturbed(func() (err error) { t, err = s.flatTrial(ctx, vips, fault); return err })
		if errors.Is(err, observe.ErrDisturbed) {
			s.rec.Discard(s.result(name+": until another answers", 0), err)
			continue
		}
		if err != nil {
			return err
		}
		done++
		s.note(name+": until another answers", flatServices, "s", t.Taken.Seconds())
		s.note(name+": outage of a client", flatServices, "s", max(t.Outage, *t.After).Seconds())
		s.note(whole+": two nodes answer", flatServices, "s", t.Split.Seconds())
	}
	return nil
}

// observe starts observing the holders of the VIPs. The caller ends it.
func (s *stage) observe(vips ...netip.Addr) (*holders.Observer, error) {
	target := holders.Target{Link: "eth1", VIPs: vips, Senders: []netip.Addr{netip.MustParseAddr("10.5.0.128")}, Masters: make(map[string]net.HardwareAddr)}
	for _, m := range s.Members() {
		target.Masters[m] = s.Link(m, cluster.LAN).MAC(m)
	}
	return holders.Observe(s.Node("o1"), target)
}

func (s *stage) flatTrial(ctx context.Context, vips []netip.Addr, fault func(context.Context, string) (func() error, error)) (t observe.Seen, err error) {
	seen, err := s.observe(vips...)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, seen.Close()) }()
	holders, err := observe.AtRest(ctx, seen, vips, nil, nil)
	if err != nil {
		return t, err
	}
	victim := holders[vips[0]]
	lost := slices.DeleteFunc(slices.Clone(vips), func(vip netip.Addr) bool { return holders[vip] != victim })
	client := observe.Send(ctx, s.Node("c2"), net.JoinHostPort(vips[0].String(), strconv.Itoa(cluster.Port)), true)
	var began time.Duration
	var healed time.Time
	err = func() error {
		if err := observe.Pause(ctx, observe.LeadIn); err != nil {
			return err
		}
		began = seen.Clock()
		heal, err := fault(ctx, victim)
		if err != nil {
			return err
		}
		deadline := time.Now().Add(takenWithin)
		if t.Taken, err = observe.AwaitTaken(ctx, seen, lost, victim, began, deadline); err != nil {
			return err
		}
		if t.Taken == nil {
			t.Taken = new(takenWithin)
		}
		if err := observe.AwaitQuiet(ctx, []*observe.Traffic{client}, time.Now().Add(takenWithin)); err != nil {
			return err
		}
		healed = time.Now()
		if err := heal(); err != nil {
			return err
		}
		_, err = observe.AtRest(ctx, seen, vips, nil, nil)
		return err
	}()
	result, e := client.End()
	if err := errors.Join(err, e); err != nil {
		return t, err
	}
	t.AddHolders(seen.Trace(), began)
	t.AddClients([]*probe.Result{result}, healed)
	return t, nil
}

// losePower takes a node's power.
func (s *stage) losePower(ctx context.Context, node string) (heal func() error, err error) {
	return func() error { return s.Node(node).PowerOn(ctx) }, s.Node(node).PowerOff()
}

// part separates a node and the others for a while. API server, client and observer
// receive everything.
func (s *stage) part(ctx context.Context, node string) (heal func() error, err error) {
	others := slices.DeleteFunc(s.Members(), func(m string) bool { return m == node })
	if err := s.Part(cluster.LAN, []string{node}, others); err != nil {
		return nil, err
	}
	until := time.Now().Add(s.parted)
	return func() error {
		if err := observe.Pause(ctx, time.Until(until)); err != nil {
			return err
		}
		if err := s.Part(cluster.LAN); err != nil {
			return err
		}
		return observe.Pause(ctx, s.healed)
	}, nil
}
