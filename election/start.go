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
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/internal/wake"
)

// leaveTimeout is the time limit for the message about leaving.
const leaveTimeout = 500 * time.Millisecond

// Listener listens at this member's address.
type Listener func(at netip.AddrPort, a *transport.Admission) (memberlist.Transport, error)

func start(c *Config, log *slog.Logger, handler Handler, listen Listener, replace func(string, []byte) error) (*node, error) {
	admission := transport.NewAdmission(log, c.observers() > 0)
	n := &node{
		log: log, admission: admission, events: newEventQueue(), handler: handler, replace: replace, config: c, started: time.Now(),
		suspended: wake.Suspended, slept: wake.Suspended(),
		network: network{LogFilter: transport.NewLogFilter(log, admission)}, opened: make(chan struct{}),
		wake: make(chan struct{}, 1), dirty: make(chan struct{}, 1), described: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
	}
	if err := n.assemble(c, listen); err != nil {
		return nil, err
	}
	n.warn(nil)
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.work.Go(func() { n.runMachine(ctx) })
	n.work.Go(func() { wake.Loop(ctx, n.dirty, n.store) }) // so that nothing else waits for the disk
	n.work.Go(func() { n.runMembership(ctx) })
	n.work.Go(func() { n.exchange.Run(ctx) })
	n.notifying.Go(func() {
		wake.Loop(ctx, n.events.some, func() (never time.Time) {
			n.events.deliver(n.handler, n.resume)
			return never
		})
		n.events.deliver(n.handler, n.resume)
	})
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
	arrived := make(chan struct{}, 1)
	n.members = members.New(c.Self, n.admission, n.receive, n.arrived, arrived)
	desired := n.electorate(c, state.Committed.Members)
	n.desired = desired.Members
	options := lease.Options{Self: c.member, Incarnation: incarnation, Electorate: desired, State: state.State, Observers: c.observers()}
	if c.Open() {
		options.Open = new(c.openElectorate())
	}
	if n.machine, err = lease.New(now, options); err != nil {
		return err
	}
	n.members.Describe(func(d *members.Description) {
		d.Identity, d.Standing = electorate.Identity(c.member), n.machine.Standing()
		if at := electorate.Address(c.member); at != c.home() {
			d.Origin = at
		}
	})
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

// network reaches other members through memberlist.
type network struct {
	*transport.LogFilter
	list *memberlist.Memberlist // set before any message
}

// Send sends a message to a member once, without confirmation.
func (n *network) Send(member string, at netip.AddrPort, message []byte) error {
	return n.list.SendToAddress(memberlist.Address{Addr: at.String(), Name: member}, message)
}

// Join exchanges member lists over TCP, so that both sides know each other.
func (n *network) Join(at netip.AddrPort) error {
	_, err := n.list.Join([]string{at.String()})
	return err
}

const (
	// minMTU is the minimum MTU of IPv6 links in bytes (RFC 8200 section 5). headers is the size of the IPv6 and UDP
	// headers.
	minMTU  = 1280
	headers = 40 + 8
	// checksum is the size that memberlist adds to a packet without counting it.
	checksum = 5
)

// settings configures memberlist for a few members at one site. It wakes rarely, because each wake-up costs more than
// its work, and its packets fit any path.
//
// No failover waits for memberlist's failure detector (SWIM): a failover waits for the end of a lease, and lease
// messages, several per lease, show which members are alive. The detector only finds members to rejoin.
func settings(c *Config, ring *memberlist.Keyring, m *members.Members) *memberlist.Config {
	s := memberlist.DefaultLANConfig()
	s.Name = c.Self
	s.BindPort = int(c.home().Port())
	s.Keyring = ring
	s.DelegateProtocolMax = members.AdvertisementProtocol
	s.Delegate, s.Events, s.Alive, s.Merge = m, m, m, m

	s.ProbeInterval = 2 * time.Second
	s.ProbeTimeout = 500 * time.Millisecond
	s.AwarenessMaxMultiplier = 1 // intervals: no one waits for the last probe
	s.SuspicionMult = 2          // intervals: so few members cannot confirm a suspicion (SWIM section 4.2)
	s.DisableTcpPings = true
	s.GossipInterval = 250 * time.Millisecond // half of leaveTimeout
	s.GossipNodes = 6                         // per interval
	s.GossipToTheDeadTime = 10 * time.Second
	s.PushPullInterval = 10 * time.Second
	s.TCPTimeout = time.Second
	s.DeadNodeReclaimTime = time.Second // a member may return at another address

	s.HandoffQueueDepth = 4096 // messages, for bursts about thousands of leases
	s.UDPBufferSize = minMTU - headers - checksum
	s.EnableCompression = false // costs more than it saves on small messages
	return s
}
