// Package election decides which member holds which lease. It runs the machine of package lease over memberlist, which
// encrypts, detects failed members (SWIM), and distributes members' descriptions.
//
// Lease messages go directly to a member's node, at its configured address or the address that it joined with. The
// machine has no clock: it receives the time before each message and each call. So a process that was paused learns of
// lost leases before it handles waiting messages.
//
// Its subpackages: transport carries packets and connections, members tracks the participants, and advertisement
// distributes the state of members' servers.
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
	"github.com/herald-vip/herald/internal/disk"
)

// ErrClosed is returned when a configuration is applied to a closed election.
var ErrClosed = errors.New("the election is closed")

// Users of an election need not import the packages of these types.
type (
	Advertisement = advertisement.Advertisement
	MemberState   = advertisement.MemberState
	Member        = lease.Member
)

// Election takes part in an election once it has a configuration.
type Election struct {
	log     *slog.Logger
	handler Handler
	listen  Listener
	replace func(file string, b []byte) error // returns once b is on disk

	applying sync.Mutex // one Apply or Close at a time

	mu            sync.Mutex // guards the fields below; held during calls of the machine, never of the handler
	node          *node      // nil: no configuration
	candidacies   map[string]lease.Candidacy
	steppedDown   map[string]bool // leases in the status without a candidacy of this member
	hardware      []net.HardwareAddr
	advertisement *advertisement.Advertisement // nil: none
	closed        bool
}

// New returns an election that does nothing until Apply.
func New(log *slog.Logger, handler Handler) *Election {
	return NewOver(log, transport.Listen, handler)
}

// NewOver is New with a network other than the host's.
func NewOver(log *slog.Logger, listen Listener, handler Handler) *Election {
	return &Election{
		log: log, handler: handler, listen: listen, replace: disk.Replace,
		candidacies: make(map[string]lease.Candidacy), steppedDown: make(map[string]bool),
	}
}

// Apply sets the configuration; nil leaves the election. Keys, members, lease and quorum change while it runs, the
// latter three once the members have agreed. Self, Bind, the use of encryption, and the choice between listed and open
// membership cannot change. On an error, nothing has changed. The handler must not call Apply.
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
			c.Bind = running.config.home()
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
	started, err := start(c, e.log, e.handler, e.listen, e.replace)
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

// Campaign makes this member a candidate: it must be able to serve. A new candidacy for the same lease replaces the
// previous one and survives Apply. Campaign never blocks.
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

// StepDown ends candidacies and releases held leases at once. When it returns, the kernel has the release messages, so
// the caller must end its use of the leases before. The handler receives no events for these leases, except from a call
// already in progress. The leases stay in the status, or enter it, until Forget. StepDown never blocks.
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

// Forget steps down and removes the leases from the status.
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

// Describe publishes the hardware addresses at which this member's VIPs may appear, so that other members do not report
// them as conflicts.
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

// Status returns the current state of the election.
func (e *Election) Status() Status {
	if n := e.running(); n != nil {
		return n.status()
	}
	return Status{}
}

// Lease returns the current state of one lease.
func (e *Election) Lease(name string) lease.LeaseStatus {
	s := lease.LeaseStatus{Lease: name, Why: "no election: the file of this node has no election section"}
	if n := e.running(); n != nil {
		n.step(func(m *lease.Machine, now time.Time) { s = m.Lease(now, name) })
	}
	return s
}

// Hardware returns the hardware addresses at which each member's VIPs may appear, by its last description since this
// process started. It includes members that have timed out.
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

// removeAgain is the interval at which Remove repeats its request to the voters.
const removeAgain = 200 * time.Millisecond

// Remove takes the vote of a timed-out node at once and returns when the voters have agreed. An error gives the
// obstacle.
func (e *Election) Remove(ctx context.Context, name string) error {
	n := e.running()
	if n == nil {
		return errors.New("this node takes part in no election: its file has no election section")
	}
	for voter := ""; ; {
		gone, err := false, error(nil)
		n.step(func(m *lease.Machine, now time.Time) {
			voters := n.voters()
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
			return fmt.Errorf("the voters have not agreed to remove %s: check with herald status that a majority of them is alive: %w", name, ctx.Err())
		case <-time.After(removeAgain):
		}
	}
}

// Close leaves the election, which takes up to a second, and returns when all goroutines have ended. It reports held
// leases as lost to the handler, then releases them. The handler must not call Close.
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

// describe fills in the description of this member. The mutex is held.
func (e *Election) describe(d *members.Description) {
	d.Hardware = e.hardware
	d.Campaigns = 0
	for _, c := range e.candidacies {
		if c.After == "" {
			d.Campaigns++
		}
	}
}
