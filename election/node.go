package election

import (
	"context"
	"log"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/lease"
)

const (
	// rejoin is how often members that are not there are asked to be: memberlist
	// gives up on the dead after a while, so a partition would not heal by itself.
	rejoin = time.Second
	// patience is how long a member may be silent that is alive.
	patience = 2 * time.Second
	// spread is how long a changed card is waited for to be passed on.
	spread = 200 * time.Millisecond
	// farewell is how long leaving may take to be heard of.
	farewell = 500 * time.Millisecond
	// maxWaiting is how many messages wait for the observer to learn of a loss.
	maxWaiting = 1024
	// maxGuests is how many members without a vote there may be.
	maxGuests = 1024
)

// node is one member at work, from its first configuration to its last.
type node struct {
	log      *slog.Logger
	gate     *gate
	journal  *journal
	roster   *roster
	ring     *memberlist.Keyring // nil: no encryption
	list     *memberlist.Memberlist
	news     *news
	offering *offering
	observe  Observer

	started  time.Time
	recalled map[string]netip.AddrPort // members that were there when this node ran last
	written  map[string]netip.AddrPort // who is in the file of those; the join goroutine's own

	wake      chan struct{} // holds a token if the machine is due sooner than it was
	described chan struct{} // holds a token if the card has changed
	arrived   chan struct{} // holds a token if somebody has joined or left

	cancel  context.CancelFunc
	telling sync.WaitGroup // tell
	work    sync.WaitGroup // run, join, and offering's run, search and tell

	mu      sync.Mutex // guards what follows, and sending
	config  *Config
	members map[string]netip.AddrPort // who is heard: as configured, who was until lately, and this one
	seeds   map[string]netip.AddrPort // where a member without a vote looks for others; else nil
	machine *lease.Machine
	due     time.Time        // when the machine wants to be called; zero: never
	waiting []lease.Outgoing // to be sent when the observer knows what is lost
	leaving bool             // the observer is told nothing more
	over    bool             // the machine neither
}

// start makes a node and its goroutines.
func (e *Election) start(c *Config) (*node, error) {
	g := &gate{log: e.log, open: c.guests() > 0}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{
		log: e.log, gate: g, journal: newJournal(e.log, g), news: newNews(), observe: e.observe, config: c,
		started: time.Now(),
		wake:    make(chan struct{}, 1), described: make(chan struct{}, 1), arrived: make(chan struct{}, 1), cancel: cancel,
	}
	n.offering = newOffering(n)
	n.roster = newRoster(c.Self, g, n.receive, n.arrived, n.offering.wake)
	if err := n.open(c, e.open); err != nil {
		cancel()
		return nil, err
	}
	n.warn(nil)
	n.work.Go(func() { n.run(ctx) })
	n.work.Go(func() { n.join(ctx) })
	n.work.Go(func() { n.offering.run(ctx) })
	n.work.Go(func() { n.offering.search(ctx) })
	n.work.Go(func() { n.offering.tell(ctx) })
	n.telling.Go(func() { n.tell(ctx) })
	return n, nil
}

// open makes the machine and memberlist. What memberlist receives at once waits
// until both are there.
func (n *node) open(c *Config, open opener) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offering.mu.Lock()
	defer n.offering.mu.Unlock()
	now := time.Now()
	incarnation, err := newIncarnation(now)
	if err != nil {
		return err
	}
	n.machine, err = lease.New(now, lease.Options{Self: c.Self, Incarnation: incarnation, Electorate: c.electorate(), Guests: c.guests()})
	if err != nil {
		return err
	}
	n.offering.open(c, incarnation)
	if n.recalled, err = recall(c.Remember); err != nil {
		n.log.Warn("only the configured members are asked to join", "err", err)
	}
	n.admit(now)
	if !c.Insecure {
		if n.ring, err = memberlist.NewKeyring(c.Keys, c.Keys[0]); err != nil {
			return err
		}
	}
	transport, err := open(c.home(), n.gate)
	if err != nil {
		return err
	}
	s := settings(c, n.ring, n.roster)
	s.Transport = transport
	s.Logger = log.New(n.journal, "", 0)
	if n.list, err = memberlist.Create(s); err != nil {
		n.over = true
		_ = transport.Shutdown() // what has failed already matters more
	}
	return err
}

// stop leaves the election. First the observer is told that what is still held
// is lost, then the members that they may have it.
func (n *node) stop(leases []string) error {
	n.mu.Lock()
	now := time.Now()
	n.machine.Tick(now)
	n.flush()
	n.leaving = true
	var lost []lease.Event
	for _, l := range n.machine.Status(now).Leases {
		if l.Holder == n.config.Self {
			lost = append(lost, lease.Lost{Lease: l.Lease, Reason: "this node leaves the election"})
		}
	}
	n.news.add(lost)
	n.mu.Unlock()
	n.cancel()
	n.telling.Wait()

	n.resign(leases)
	n.offering.farewell()
	n.mu.Lock()
	n.over = true
	n.mu.Unlock()
	if err := n.list.Leave(farewell); err != nil {
		n.log.Debug("nobody heard that this node leaves the election", "err", err) // they find out
	}
	err := n.list.Shutdown()
	n.work.Wait()
	return err
}
