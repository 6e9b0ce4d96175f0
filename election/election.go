// Package election decides, among a few configured members, who holds which
// lease: it runs the machine of package lease over memberlist, which encrypts,
// finds out who is alive, and spreads what members tell of themselves.
//
// Lease messages go straight to a member's configured address, whatever
// memberlist believes of it. The machine has no clock: whoever has something for
// it, a message, a wish or a time that has come, first tells it what time it is, so
// that a process that was paused learns what it has lost before it acts on what was
// waiting for it.
package election

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/lease"
)

// ErrClosed is the result of applying a configuration to a closed election.
var ErrClosed = errors.New("the election is closed")

// Election takes part in an election, once it has a configuration.
type Election struct {
	log     *slog.Logger
	observe Observer
	open    opener

	applying sync.Mutex // one Apply or Close at a time

	mu          sync.Mutex // guards what follows; held while the machine is told, never while the observer is
	node        *node      // nil while there is no configuration
	candidacies map[string]lease.Candidacy
	resigned    map[string]bool // leases of interest that this member is no candidate for
	hardware    []net.HardwareAddr
	offer       *Offer // nil: none yet
	closed      bool
}

// opener listens at this member's address.
type opener func(at netip.AddrPort, g *gate) (memberlist.NodeAwareTransport, error)

// New makes an election that does nothing until Apply.
func New(log *slog.Logger, observe Observer) *Election {
	return &Election{
		log: log, observe: observe, open: openSockets,
		candidacies: make(map[string]lease.Candidacy), resigned: make(map[string]bool),
	}
}

// Apply makes this the configuration; nil is none, and leaves the election. Keys,
// members, lease and quorum change in place, within what lease.Machine's
// Reconfigure allows; Self, Bind and whether there is encryption at all cannot
// change while the election runs. An error is one sentence that says what is
// wrong, and means that nothing has changed. Apply must not be called by the
// observer.
func (e *Election) Apply(c *Config) error {
	e.applying.Lock()
	defer e.applying.Unlock()
	e.mu.Lock()
	running, closed := e.node, e.closed
	e.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if c == nil {
		return e.leave()
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("election: %w", err)
	}
	c = c.clone()
	if running != nil {
		if err := running.reconfigure(c); err != nil {
			return fmt.Errorf("election: %w", err)
		}
		return nil
	}
	started, err := e.start(c)
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.node = started
	started.resign(slices.Collect(maps.Keys(e.resigned)))
	started.stand(slices.Collect(maps.Values(e.candidacies)))
	started.describe(e.card)
	if e.offer != nil {
		started.offering.offer(*e.offer)
	}
	return nil
}

// Stand makes this member a candidate, for which it must be able to serve. A
// candidacy for a lease that it stands for replaces the one before. It holds
// across Apply. Stand never blocks.
func (e *Election) Stand(candidacies ...lease.Candidacy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range candidacies {
		e.candidacies[c.Lease] = c
		delete(e.resigned, c.Lease)
	}
	if e.node != nil {
		e.node.stand(candidacies)
		e.node.describe(e.card)
	}
}

// Resign ends candidacies. A lease that is held is released at once: when Resign
// returns, the messages that say so have been given to the kernel, so whatever
// must end before somebody else may begin is to be ended before. The observer is
// told nothing of what it has resigned, but a call that is already under way may
// still tell of a grant. The lease remains in the status, which it enters by this
// if it was not there, until Forget. Resign never blocks.
func (e *Election) Resign(leases ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range leases {
		delete(e.candidacies, name)
		e.resigned[name] = true
	}
	if e.node != nil {
		e.node.resign(leases)
		e.node.describe(e.card)
	}
}

// Forget is Resign, and removes the leases from the status.
func (e *Election) Forget(leases ...string) {
	e.Resign(leases...)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range leases {
		delete(e.resigned, name)
	}
	if e.node != nil {
		e.node.forget(leases)
	}
}

// Describe tells the other members at which hardware addresses this one's VIPs
// may be seen, so that they do not take them for a stranger's.
func (e *Election) Describe(hardware []net.HardwareAddr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hardware = slices.Clone(hardware)
	if e.node != nil {
		e.node.describe(e.card)
	}
}

// Close leaves the election, which takes up to a second, and returns when nothing
// is left running. The observer is told of leases that were still held, and then
// they are released. Close must not be called by the observer.
func (e *Election) Close() error {
	e.applying.Lock()
	defer e.applying.Unlock()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	return e.leave()
}

// leave stops the node, if there is one.
func (e *Election) leave() error {
	e.mu.Lock()
	running := e.node
	e.node = nil
	standing := slices.Sorted(maps.Keys(e.candidacies))
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.stop(standing)
}

// card fills in what the others may know of this member. The mutex is held.
func (e *Election) card(c *card) {
	c.Hardware = e.hardware
	c.Standing = len(e.candidacies)
}
