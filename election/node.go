package election

import (
	"context"
	"log/slog"
	"net/netip"
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
	notifying sync.WaitGroup // runEvents
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

// runEvents delivers events to the handler; the last ones when ctx ends.
func (n *node) runEvents(ctx context.Context) {
	wake.Loop(ctx, n.events.some, func() (never time.Time) {
		n.events.deliver(n.handler, n.resume)
		return never
	})
	n.events.deliver(n.handler, n.resume)
}

// resume sends messages that waited for the handler to process a loss.
func (n *node) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.events.hasLoss() {
		n.send(n.waiting)
		n.waiting = nil
	}
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
