package services

import (
	"context"
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
	"github.com/herald-vip/herald/testenv/step"
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
func (s *stage) arpPart(ctx context.Context) {
	var vips []netip.Addr
	for i := range flatServices {
		vips = append(vips, s.create(ctx, cluster.Service{Name: fmt.Sprintf("flat%d", i), Pool: cluster.PoolARP, Endpoints: s.Members()}))
	}
	s.flatTrials(ctx, s.faults, "node loses power, ARP", "node loses power, ARP", vips, s.losePower)
	s.flatTrials(ctx, min(s.faults, partitions), "nodes parted, ARP", "nodes parted and healed, ARP", vips, s.part)
	s.planned(ctx, cluster.PoolARP)
}

// flatTrials makes a fault on the holder of the first VIP. It records when the VIPs
// were taken over, the client's outage, and how long there were two holders.
func (s *stage) flatTrials(ctx context.Context, trials int, name, whole string, vips []netip.Addr, fault func(ctx context.Context, node string) (heal func())) {
	observe.Trials(s.rec, s.result(name+": until another answers", 0), trials, func() func() {
		t := s.flatTrial(ctx, vips, fault)
		return func() {
			s.note(name+": until another answers", flatServices, "s", t.Taken.Seconds())
			s.note(name+": outage of a client", flatServices, "s", max(t.Outage, *t.After).Seconds())
			s.note(whole+": two nodes answer", flatServices, "s", t.Split.Seconds())
		}
	})
}

// observe starts observing the holders of the VIPs. The caller ends it.
func (s *stage) observe(vips ...netip.Addr) *holders.Observer {
	return step.Get(holders.Observe(s.Node("o1"), holders.On(s.Lab.Lab, s.Members(), vips, netip.MustParseAddr("10.5.0.128"))))
}

// send starts a client on a node that connects to a VIP.
func (s *stage) send(ctx context.Context, node string, vip netip.Addr, identify bool) *observe.Traffic {
	return observe.Send(ctx, s.Node(node), net.JoinHostPort(vip.String(), strconv.Itoa(cluster.Port)), identify)
}

func (s *stage) flatTrial(ctx context.Context, vips []netip.Addr, fault func(context.Context, string) func()) (t observe.Seen) {
	seen := s.observe(vips...)
	defer step.Close(seen.Close)
	holders := observe.AtRest(ctx, seen, vips, nil, nil)
	victim := holders[vips[0]]
	lost := slices.DeleteFunc(slices.Clone(vips), func(vip netip.Addr) bool { return holders[vip] != victim })
	client := s.send(ctx, "c2", vips[0], true)
	defer client.Stop()
	step.Pause(ctx, observe.LeadIn)
	began := seen.Clock()
	heal := fault(ctx, victim)
	if t.Taken = observe.AwaitTaken(ctx, seen, lost, victim, began, time.Now().Add(takenWithin)); t.Taken == nil {
		t.Taken = new(takenWithin)
	}
	observe.AwaitQuiet(ctx, time.Now().Add(takenWithin), client)
	healed := time.Now()
	heal()
	observe.AtRest(ctx, seen, vips, nil, nil)
	t.AddClients([]*probe.Result{client.End()}, healed)
	t.AddHolders(seen.Trace(), began)
	return t
}

// losePower takes a node's power.
func (s *stage) losePower(ctx context.Context, node string) (heal func()) {
	step.Do(s.Node(node).PowerOff())
	return func() { step.Do(s.Node(node).PowerOn(ctx)) }
}

// part separates a node and the others for a while. API server, client and observer
// receive everything.
func (s *stage) part(ctx context.Context, node string) (heal func()) {
	others := slices.DeleteFunc(s.Members(), func(m string) bool { return m == node })
	step.Do(s.Part(cluster.LAN, []string{node}, others))
	until := time.Now().Add(s.parted)
	return func() {
		step.Pause(ctx, time.Until(until))
		step.Do(s.Part(cluster.LAN))
		step.Pause(ctx, s.healed)
	}
}
