package election

import (
	"context"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/election/transport"
)

// leaveTimeout is the time limit for the message about leaving.
const leaveTimeout = 500 * time.Millisecond

// Listener listens at this member's address.
type Listener func(at netip.AddrPort, a *transport.Admission) (memberlist.Transport, error)

func start(c *Config, log *slog.Logger, handler Handler, listen Listener) (*node, error) {
	admission := transport.NewAdmission(log, c.observers() > 0)
	n := &node{
		log: log, admission: admission, events: newEventQueue(), handler: handler, config: c, started: time.Now(),
		network: network{LogFilter: transport.NewLogFilter(log, admission)}, opened: make(chan struct{}),
		wake: make(chan struct{}, 1), described: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
	}
	if err := n.assemble(c, listen); err != nil {
		return nil, err
	}
	n.warn(nil)
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.work.Go(func() { n.runMachine(ctx) })
	n.work.Go(func() { n.runMembership(ctx) })
	n.work.Go(func() { n.exchange.Run(ctx) })
	n.notifying.Go(func() { n.runEvents(ctx) })
	return n, nil
}

// assemble creates the machine, the exchange of advertisements and memberlist. Packets that memberlist receives
// meanwhile wait until all exist.
func (n *node) assemble(c *Config, listen Listener) error {
	defer close(n.opened)
	now := time.Now()
	// The time of day and 16 random bits are unique to this process, and usually greater than before.
	incarnation := uint64(now.UnixNano())&^0xffff | rand.Uint64()&0xffff
	state, err := readState(c.State)
	if err == nil {
		err = n.identify(&state)
	}
	if err != nil {
		return err
	}
	options := lease.Options{Self: c.member(), Incarnation: incarnation, Electorate: c.electorate(state.Committed.Members), State: state.State, Observers: c.observers()}
	if c.Open() {
		options.Open = new(c.openElectorate())
	}
	if n.machine, err = lease.New(now, options); err != nil {
		return err
	}
	arrived := make(chan struct{}, 1)
	n.members = members.New(c.Self, n.admission, n.receive, n.arrived, arrived)
	n.members.Describe(func(d *members.Description) { d.Identity = c.identity })
	n.exchange = advertisement.NewExchange(c.Self, incarnation, c.Lease, n.members, &n.network, arrived, n.handler.MemberStatesChanged)
	if n.remembered, err = members.ReadRemembered(c.Remember); err != nil {
		n.log.Warn("cannot read the remembered members: only configured ones are asked to join", "err", err)
	}
	n.admit(now)
	if !c.Insecure {
		if n.ring, err = memberlist.NewKeyring(c.Keys, c.Keys[0]); err != nil {
			return err
		}
	}
	sockets, err := listen(c.home(), n.admission)
	if err != nil {
		return err
	}
	s := settings(c, n.ring, n.members)
	s.Transport = sockets
	s.Logger = log.New(n.network.LogFilter, "", 0)
	if n.network.list, err = memberlist.Create(s); err != nil {
		n.over = true
		_ = sockets.Shutdown() // the first error matters more
	}
	return err
}

// stop leaves the election. It first reports held leases as lost to the handler, then releases them to the other
// members.
func (n *node) stop(leases []string) error {
	n.mu.Lock()
	now := n.tick()
	n.flush()
	n.leaving = true
	var lost []lease.Event
	for _, l := range n.machine.Status(now).Leases {
		if l.Holder == n.config.Self {
			lost = append(lost, lease.Lost{Lease: l.Lease, Reason: "this node leaves the election"})
		}
	}
	n.events.add(lost)
	n.mu.Unlock()
	n.cancel()
	n.notifying.Wait()

	n.stepDown(leases)
	n.exchange.Leave()
	n.mu.Lock()
	n.over = true
	n.mu.Unlock()
	if err := n.network.list.Leave(leaveTimeout); err != nil {
		n.log.Debug("cannot announce that this node leaves the election", "err", err) // members find out by timeout
	}
	err := n.network.list.Shutdown()
	n.work.Wait()
	return err
}
