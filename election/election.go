// Package election decides, among a few members, who holds which
// lease: it runs the machine of package lease over memberlist, which encrypts,
// finds out who is alive, and spreads what members tell of themselves.
//
// Lease messages go straight to the address by which the electorate has a member, whatever
// memberlist believes of it. The machine has no clock: before each message and each
// desired it is told the time, so that a process that was paused learns what it has lost
// before it acts on what was waiting for it.
//
// Below it, transport carries packets and connections, members knows who takes part,
// and offer has members tell each other what they serve.
package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/election/transport"
)

// ErrClosed is the result of applying a configuration to a closed election.
var ErrClosed = errors.New("the election is closed")

// What members offer is a package of its own, which users of an election need not know.
type (
	Advertisement = advertisement.Advertisement
	MemberState   = advertisement.MemberState
)

// Election takes part in an election, once it has a configuration.
type Election struct {
	log     *slog.Logger
	handler Handler
	listen  Listener

	applying sync.Mutex // one Apply or Close at a time

	mu            sync.Mutex // guards what follows; held while the machine is told, never while the handler is
	node          *node      // nil while there is no configuration
	candidacies   map[string]lease.Candidacy
	steppedDown   map[string]bool // leases of interest that this member is no candidate for
	hardware      []net.HardwareAddr
	advertisement *advertisement.Advertisement // nil: none yet
	closed        bool
}

// New makes an election that does nothing until Apply.
func New(log *slog.Logger, handler Handler) *Election {
	return NewOver(log, transport.Listen, handler)
}

// NewOver is New over another network than that of the host.
func NewOver(log *slog.Logger, listen Listener, handler Handler) *Election {
	return &Election{
		log: log, handler: handler, listen: listen,
		candidacies: make(map[string]lease.Candidacy), steppedDown: make(map[string]bool),
	}
}

// Apply makes this the configuration; nil is none, and leaves the election. Keys,
// members, lease and quorum change in place, the latter three when the members have agreed
// on it; Self, Bind, whether there is encryption at all and whether members are listed cannot
// change while the election runs. An error is one sentence that says what is
// wrong, and means that nothing has changed. Apply must not be called by the
// handler.
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
	c = c.clone()
	if !c.votes() && !c.Bind.IsValid() && len(c.Members)+len(c.Join) > 0 {
		var err error
		if running != nil {
			c.Bind = running.home()
		} else {
			c.Bind = c.homeBefore()
		}
		if !c.Bind.IsValid() {
			if c.Bind, err = c.reachFrom(); err != nil {
				return fmt.Errorf("election: %w", err)
			}
		}
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("election: %w", err)
	}
	if running != nil {
		if err := running.reconfigure(c); err != nil {
			return fmt.Errorf("election: %w", err)
		}
		return nil
	}
	started, err := start(c, e.log, e.handler, e.listen)
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.node = started
	started.stepDown(slices.Collect(maps.Keys(e.steppedDown)))
	started.campaign(slices.Collect(maps.Values(e.candidacies)))
	started.describe(e.describe)
	if e.advertisement != nil {
		started.exchange.Advertise(*e.advertisement)
	}
	return nil
}

// Stand makes this member a candidate, for which it must be able to serve. A
// candidacy for a lease that it stands for replaces the one before. It holds
// across Apply. Stand never blocks.
func (e *Election) Campaign(candidacies ...lease.Candidacy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range candidacies {
		e.candidacies[c.Lease] = c
		delete(e.steppedDown, c.Lease)
	}
	if e.node != nil {
		e.node.campaign(candidacies)
		e.node.describe(e.describe)
	}
}

// Resign ends candidacies. A lease that is held is released at once: when Resign
// returns, the messages that say so have been given to the kernel, so whatever
// must end before somebody else may begin is to be ended before. The handler is
// told nothing of what it has steppedDown, but a call that is already under way may
// still tell of a grant. The lease remains in the status, which it enters by this
// if it was not there, until Forget. Resign never blocks.
func (e *Election) StepDown(leases ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range leases {
		delete(e.candidacies, name)
		e.steppedDown[name] = true
	}
	if e.node != nil {
		e.node.stepDown(leases)
		e.node.describe(e.describe)
	}
}

// Forget is Resign, and removes the leases from the status.
func (e *Election) Forget(leases ...string) {
	e.StepDown(leases...)
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.steppedDown, func(name string, _ bool) bool { return slices.Contains(leases, name) })
	if e.node != nil {
		e.node.step(func(m *lease.Machine, now time.Time) {
			for _, name := range leases {
				m.Forget(now, name)
			}
		})
	}
}

// Describe tells the other members at which hardware addresses this one's VIPs
// may be seen, so that they do not take them for a stranger's.
func (e *Election) Describe(hardware []net.HardwareAddr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hardware = slices.Clone(hardware)
	if e.node != nil {
		e.node.describe(e.describe)
	}
}

// Advertise sends a to all members that are alive: at once, periodically, and whenever a member joins.
// It replaces the previous advertisement and survives Apply; before the first call, the member advertises nothing.
// An advertisement carries at most 32 checks, in the order of their names, with names of up to 63 bytes, as far as they
// fit into one packet. Advertise never blocks.
func (e *Election) Advertise(a advertisement.Advertisement) {
	a.Checks = maps.Clone(a.Checks)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advertisement = &a
	if e.node != nil {
		e.node.exchange.Advertise(a)
	}
}

// MemberStates lists the last advertisement of each member, this one included, sorted by name. It is empty
// while the election has no configuration. [Handler.MemberStatesChanged] reports changes. The caller must not modify the
// maps of checks.
func (e *Election) MemberStates() []advertisement.MemberState {
	if n := e.running(); n != nil {
		return n.exchange.List()
	}
	return nil
}

// Status describes the election at this moment.
func (e *Election) Status() Status {
	if n := e.running(); n != nil {
		return n.status()
	}
	return Status{}
}

// Lease describes one lease at this moment.
func (e *Election) Lease(name string) lease.LeaseStatus {
	s := lease.LeaseStatus{Lease: name, Why: "the election has not begun, which takes an election section in the file of this node"}
	if n := e.running(); n != nil {
		n.step(func(m *lease.Machine, now time.Time) { s = m.Lease(now, name) })
	}
	return s
}

// Hardware is where the VIPs of each member may be seen, as it has said itself
// since this one was started, those that are heard no more included.
func (e *Election) Hardware() map[string][]net.HardwareAddr {
	if n := e.running(); n != nil {
		return n.members.Hardware()
	}
	return nil
}

func (e *Election) running() *node {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.node
}

// removeAgain is how often voters are asked to remove another until they agree.
const removeAgain = 200 * time.Millisecond

// Remove takes the vote of a node that is silent, without waiting until it is forgotten, and returns when the voters have
// agreed on that. An error says what is in the way.
func (e *Election) Remove(ctx context.Context, name string) error {
	n := e.running()
	if n == nil {
		return errors.New("this node takes part in no election: its file has no election section")
	}
	for voter := ""; ; {
		gone, err := false, error(nil)
		n.step(func(m *lease.Machine, now time.Time) {
			var voters []string
			if active, _ := m.Electorates(); active != nil {
				voters = active.Members
			}
			if gone = voter != "" && !slices.Contains(voters, voter); gone {
				return
			}
			if i := slices.Index(electorate.Names(voters), name); i >= 0 {
				voter = voters[i]
			}
			err = m.Remove(now, name)
		})
		if err != nil || gone {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the voters have not agreed to remove %s: see by herald status whether a majority of them is heard: %w", name, ctx.Err())
		case <-time.After(removeAgain):
		}
	}
}

// Close leaves the election, which takes up to a second, and returns when nothing
// is left running. The handler is told of leases that were still held, and then
// they are released. Close must not be called by the handler.
func (e *Election) Close() error {
	e.applying.Lock()
	defer e.applying.Unlock()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	return e.leave()
}

func (e *Election) leave() error {
	e.mu.Lock()
	running := e.node
	e.node = nil
	campaigning := slices.Sorted(maps.Keys(e.candidacies))
	e.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.stop(campaigning)
}

// describe fills in what the others may know of this member. The mutex is held.
func (e *Election) describe(d *members.Description) {
	d.Hardware = e.hardware
	d.Campaigns = len(e.candidacies)
}
