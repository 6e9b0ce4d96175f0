package election

import (
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
	"github.com/herald-vip/herald/internal/disk"
	"github.com/herald-vip/herald/internal/wake"
)

// maxWaiting limits the messages that wait until the handler has processed a loss.
const maxWaiting = 1024

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
	unjoined  atomic.Uint64 // lease messages from senders unknown at the address that they name
	malformed atomic.Uint64 // decrypted messages that are not lease messages

	opened     chan struct{} // closed when all fields above are set; receivers wait for it
	started    time.Time
	remembered map[string]netip.AddrPort // members at the previous run of this node
	written    map[string]netip.AddrPort // content of the file of these; only the membership goroutine uses it
	identity   string                    // on disk; empty: none
	named      []string                  // voters that gave the configured list its identities; guarded by mu

	wake      chan struct{} // holds a token if the machine is due earlier than planned
	described chan struct{} // holds a token if this member's description has changed
	arrived   chan struct{} // holds a token if a member has joined or left

	cancel    context.CancelFunc
	notifying sync.WaitGroup // delivery of events to the handler; the last ones when it ends
	work      sync.WaitGroup // runMachine, runMembership and the exchange of advertisements

	mu       sync.Mutex                // guards the fields below, and sending
	config   *Config                   // replaced by Apply only
	admitted map[string]netip.AddrPort // admitted members: configured ones, recent voters and this one
	seeds    map[string]netip.AddrPort // where an observer looks for others; nil for a voter
	machine  *lease.Machine
	due      time.Time          // of the machine's next call; zero: never
	waiting  []message.Outgoing // sent once the handler has processed the losses
	unsaved  *lease.State       // to be stored before anything is sent; nil: nothing
	mute     string             // why it is not stored; empty: it is
	saveAt   time.Time          // of the next attempt to store it
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
	n.machine.Unanswered(n.events.waits())
	n.machine.Tick(now)
	return now
}

// flush processes the machine's output. The mutex is held.
func (n *node) flush() {
	saved := n.save()
	messages, events := n.machine.Take()
	if !saved { // do not act on state that may be forgotten
		events = slices.DeleteFunc(events, func(e lease.Event) bool { _, granted := e.(lease.Granted); return granted })
	}
	if !n.leaving {
		n.events.add(events)
	}
	if n.events.hasLoss() {
		n.waiting = append(n.waiting, messages...)
		n.waiting = n.waiting[max(0, len(n.waiting)-maxWaiting):]
		messages = nil
	}
	n.send(messages)
	due := n.machine.Next()
	if !saved {
		due = wake.Earlier(due, n.saveAt)
	}
	if !due.Equal(n.due) {
		n.due = due
		wake.Up(n.wake)
	}
}

// send sends lease messages once, unless they depend on state that is not on disk. The mutex is held.
func (n *node) send(messages []message.Outgoing) {
	if n.unsaved != nil {
		return
	}
	for _, m := range messages {
		b, err := m.AppendBinary(nil)
		if err == nil {
			err = n.network.Send(electorate.Name(m.To), electorate.Address(m.To), b)
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
	if at := n.members.Address(name); !at.IsValid() || electorate.Address(m.From) != at { // not joined, or a different member of that name
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

// saveAgain is the pause before another attempt to store the state.
const saveAgain = time.Second

// saved is the content of the state file.
type saved struct {
	// Identity distinguishes this member of an open electorate from all others, even of the same name. It is created at
	// the first start, so a member that has lost its disk is a different one.
	Identity string `json:",omitempty"`
	lease.State
}

// identify sets the identity of this member: the stored one or a new one. A committed member keeps its form, with an
// identity or without, as its file named it then.
func (n *node) identify(s *saved) error {
	c := n.config
	if c.Open() && s.Identity == "" && !s.Committed.Has(c.member()) {
		s.Identity = fmt.Sprintf("%08x", rand.Uint32())
		if err := s.write(c.State); err != nil {
			return err
		}
	}
	n.identity = s.Identity
	known := electorate.Member(c.Self, c.home(), s.Identity)
	if !s.Committed.Has(c.member()) && (c.Open() || s.Committed.Has(known)) {
		c.identity = s.Identity
	}
	return nil
}

func (s saved) write(file string) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return disk.Replace(file, append(b, '\n'))
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

// save stores the machine's state before any message that depends on it, and reports whether it is on disk. Until then,
// this member sends nothing. The mutex is held.
func (n *node) save() bool {
	if s, changed := n.machine.Unsaved(); changed {
		n.unsaved = &s
	}
	if n.unsaved == nil {
		return true
	}
	now := time.Now()
	if now.Before(n.saveAt) {
		return false
	}
	if err := (saved{n.identity, *n.unsaved}).write(n.config.State); err != nil {
		n.saveAt = now.Add(saveAgain)
		n.mute = fmt.Sprintf("the electorate cannot be written to disk, so this node sends nothing: %v", err)
		n.network.Warn(n.mute)
		return false
	}
	n.unsaved, n.mute, n.saveAt = nil, "", time.Time{}
	return true
}
