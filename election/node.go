package election

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/internal/wake"
)

// maxWaiting limits the messages that wait until the handler has processed a loss.
const maxWaiting = 1024

// suspensionNoise exceeds the usual error of suspended. No computer is suspended for less.
const suspensionNoise = 10 * time.Millisecond

// node is a running member, from its first to its last configuration. This file runs its lease machine.
type node struct {
	log       *slog.Logger
	admission *transport.Admission
	members   *members.Members
	ring      *memberlist.Keyring // nil: no encryption
	network   network
	events    *eventQueue
	exchange  *advertisement.Exchange
	handler   Handler
	replace   func(file string, b []byte) error
	unjoined  atomic.Uint64 // lease messages from senders unknown at the address that they name
	malformed atomic.Uint64 // decrypted messages that are not lease messages

	suspended func() time.Duration // [wake.Suspended]; tests replace it

	opened     chan struct{} // closed when all fields above are set; receivers wait for it
	started    time.Time
	remembered map[string]netip.AddrPort // members at the previous run of this node
	written    map[string]netip.AddrPort // content of the file of these; only the membership goroutine uses it
	identity   string                    // on disk; empty: none
	desired    []string                  // members of the configured list, as their nodes name themselves; guarded by mu

	wake      chan struct{} // holds a token if the machine is due earlier than planned
	dirty     chan struct{} // holds a token if unsaved has changed
	described chan struct{} // holds a token if this member's description has changed
	arrived   chan struct{} // holds a token if a member has joined or left

	cancel    context.CancelFunc
	notifying sync.WaitGroup // delivery of events to the handler; the last ones when it ends
	work      sync.WaitGroup // runMachine, runMembership, storage and the exchange of advertisements

	mu       sync.Mutex                // guards the fields below, and sending
	config   *Config                   // replaced by Apply only
	admitted map[string]netip.AddrPort // admitted members: configured ones, recent voters and this one
	seeds    map[string]netip.AddrPort // where an observer looks for others; nil for a voter
	machine  *lease.Machine
	due      time.Time          // of the machine's next call; zero: never
	waiting  []message.Outgoing // sent once the handler has processed the losses
	unsaved  *lease.State       // to be stored; nil: nothing
	failure  string             // why it is not stored; empty: it is
	slept    time.Duration      // the greatest result of suspended
	leaving  bool               // the handler receives no more events
	over     bool               // nor does the machine
}

// runMachine calls the machine when it is due, until ctx ends.
func (n *node) runMachine(ctx context.Context) {
	wake.Loop(ctx, n.wake, func() time.Time {
		n.step(nil)
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.due
	})
}

// step advances the machine to the current time, calls do, and processes the machine's output.
func (n *node) step(do func(m *lease.Machine, now time.Time)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return
	}
	now := n.tick()
	if do != nil {
		do(n.machine, now)
	}
	n.flush()
}

// tick advances the machine to the current time. The mutex is held.
func (n *node) tick() time.Time {
	now := time.Now()
	s := n.suspended()
	if s > n.slept+suspensionNoise {
		n.machine.Resume(now)
	}
	n.slept = max(n.slept, s)
	n.machine.Unanswered(n.events.waits())
	n.machine.Tick(now)
	return now
}

// flush processes the machine's output. The mutex is held.
func (n *node) flush() {
	if s, changed := n.machine.Unsaved(); changed {
		n.unsaved = &s
		wake.Up(n.dirty)
	}
	messages, events := n.machine.Take()
	if !n.leaving {
		n.events.add(events)
	}
	if n.events.hasLoss() {
		n.waiting = append(n.waiting, messages...)
		n.waiting = n.waiting[max(0, len(n.waiting)-maxWaiting):]
		messages = nil
	}
	n.send(messages)
	if due := n.machine.Next(); !due.Equal(n.due) {
		n.due = due
		wake.Up(n.wake)
	}
}

// send sends lease messages once. The mutex is held.
func (n *node) send(messages []message.Outgoing) {
	for _, m := range messages {
		b, err := m.AppendBinary(nil)
		if err == nil {
			err = n.network.Send(electorate.Name(m.To), n.members.Locate(m.To), b)
		}
		if err != nil {
			n.network.Warn("cannot send lease messages: " + err.Error())
		}
	}
}

// receive handles a message. It counts messages that it cannot parse, perhaps from a later version.
func (n *node) receive(b []byte) {
	<-n.opened
	if advertisement.IsMessage(b) {
		n.exchange.Receive(b)
		return
	}
	m, err := message.Parse(b)
	if err != nil {
		n.malformed.Add(1)
		n.network.Warn("cannot parse a lease message: " + err.Error())
		return
	}
	name := electorate.Name(m.From)
	if at := n.members.Address(name); !at.IsValid() || electorate.Address(m.From) != at && n.members.Member(name) != m.From { // not joined, or a different member of that name
		n.unjoined.Add(1)
		return
	}
	n.step(func(machine *lease.Machine, now time.Time) { machine.Receive(now, m) })
}

// resume runs after each call of the handler. It sends messages that waited for the handler to process a loss, and lets
// the machine renew leases again.
func (n *node) resume() {
	n.step(func(*lease.Machine, time.Time) {
		if !n.events.hasLoss() {
			n.send(n.waiting)
			n.waiting = nil
		}
	})
}

func (n *node) campaign(candidacies []lease.Candidacy) {
	n.step(func(m *lease.Machine, now time.Time) {
		for _, c := range candidacies {
			m.Campaign(now, c)
		}
	})
}

// stepDown ends candidacies, releases held leases, and sends the releases at once.
func (n *node) stepDown(leases []string) {
	n.step(func(m *lease.Machine, now time.Time) {
		n.flush()
		for _, name := range leases {
			m.StepDown(now, name)
			n.events.drop(name)
		}
		messages, _ := m.Take()
		n.send(messages)
	})
}

// storeAgain is the pause before another attempt to store the state.
const storeAgain = time.Second

// store stores the machine's latest state, and returns the time of the next attempt if that fails.
func (n *node) store() (again time.Time) {
	n.mu.Lock()
	state, file, member := n.unsaved, n.config.State, n.config.member
	n.mu.Unlock()
	if state == nil {
		return time.Time{}
	}
	err := n.write(file, saved{n.identity, member, *state})
	n.step(func(m *lease.Machine, now time.Time) {
		switch {
		case err != nil:
			again = now.Add(storeAgain)
			n.failure = fmt.Sprintf("the electorate cannot be written to disk, so this node takes no part in changing it: %v", err)
			n.network.Warn(n.failure)
		case n.unsaved == state:
			n.unsaved, n.failure = nil, ""
			m.Stored(now)
		}
	})
	return again
}

// saved is the content of the state file.
type saved struct {
	// Identity distinguishes this member of an open electorate from all others, even of the same name. It is created at
	// the first start, so a member that has lost its disk is a different one.
	Identity string `json:",omitempty"`
	// Member is the member as which this disk takes part.
	Member string `json:",omitempty"`
	lease.State
}

// before returns the member as which this disk took part, if the node still has that name; else the empty string.
// Earlier releases did not store it. Then before returns the voter of that name with the stored identity, or without one.
func (s *saved) before(name string) string {
	was := append([]string{s.Member}, s.Committed.Members...)
	i := slices.IndexFunc(was, func(member string) bool {
		at := electorate.Address(member)
		return member == s.Member && electorate.Name(member) == name ||
			s.Member == "" && (member == electorate.Member(name, at, s.Identity) || member == electorate.Member(name, at, ""))
	})
	if i < 0 {
		return ""
	}
	return was[i]
}

// identify names this member. A disk that votes, or may vote, stays the same member at any address. If it stores neither
// an identity nor the member's name, it does so only at the member's own address. Any other member is new.
func (n *node) identify(s *saved) error {
	c, before := n.config, *s
	was := s.before(c.Self)
	votes := s.Committed.Has(was) && (s.Member != "" || electorate.Identity(was) != "" || electorate.Address(was) == c.home())
	mayVote := c.Open() && !c.Observer && electorate.Identity(was) != "" // and may not know it yet
	switch s.Member = was; {
	case votes || mayVote:
	case c.Open():
		s.Identity = cmp.Or(s.Identity, fmt.Sprintf("%08x", rand.Uint32()))
		s.Member = electorate.Member(c.Self, c.home(), s.Identity)
	default:
		s.Member = electorate.Member(c.Self, c.home(), "")
	}
	n.identity, c.member = s.Identity, s.Member
	created := s.Identity != before.Identity
	if created || s.Committed.Number > 0 && s.Member != before.Member {
		if err := n.write(c.State, *s); err != nil && created {
			return err
		}
	}
	return nil
}

func (n *node) write(file string, s saved) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return n.replace(file, append(b, '\n'))
}

// readState reads the state file. A missing file is an empty state. Invalid content is an error, because a member that
// forgets its votes can cause two holders.
func readState(file string) (s saved, err error) {
	if file == "" {
		return s, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && (s.Identity == "" || s.Committed.Number > 0) {
		err = s.Validate()
	}
	if err != nil {
		return s, fmt.Errorf("cannot read the committed electorate from %[2]s: %[1]w: with join, remove %[2]s; with members, first take this node out of the list on the others, and add it again afterwards", err, file)
	}
	return s, nil
}
