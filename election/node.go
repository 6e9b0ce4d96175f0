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

// maxWaiting is how many messages wait for the handler to learn of a loss.
const maxWaiting = 1024

// node is one member at work, from its first configuration to its last. This file
// runs its lease machine.
type node struct {
	log       *slog.Logger
	admission *transport.Admission
	members   *members.Members
	ring      *memberlist.Keyring // nil: no encryption
	network   network
	events    *eventQueue
	exchange  *advertisement.Exchange
	handler   Handler
	unjoined  atomic.Uint64 // lease messages of such that are not known at the address that they name
	malformed atomic.Uint64 // messages that are decrypted, and yet no lease messages

	opened     chan struct{} // closed when all above is there: what is received at once waits for that
	started    time.Time
	remembered map[string]netip.AddrPort // members that were there when this node ran last
	written    map[string]netip.AddrPort // who is in the file of those; the membership goroutine's own
	identity   string                    // on the disk, empty: none
	named      []string                  // the voters by which a list was made the desired; under the mutex

	wake      chan struct{} // holds a token if the machine is due sooner than it was
	described chan struct{} // holds a token if this member describes itself anew
	arrived   chan struct{} // holds a token if somebody has joined or left

	cancel    context.CancelFunc
	notifying sync.WaitGroup // runEvents
	work      sync.WaitGroup // runMachine, runMembership and the exchange of offers

	mu       sync.Mutex // guards what follows, and sending
	config   *Config
	admitted map[string]netip.AddrPort // who is heard: as configured, who was until lately, and this one
	seeds    map[string]netip.AddrPort // where an observer looks for others; of a voter nil
	machine  *lease.Machine
	due      time.Time          // when the machine wants to be called; zero: never
	waiting  []message.Outgoing // to be sent when the handler knows what is lost
	unsaved  *lease.State       // what is to be on the disk before anything is sent, nil: nothing
	mute     string             // why it is not, empty: it is
	saveAt   time.Time          // when that is tried again
	leaving  bool               // the handler is told nothing more
	over     bool               // the machine neither
}

// home is where the others reach this member.
func (n *node) home() netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.config.home()
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

// step tells the machine the time and then whatever else there is, sends what it
// wants to be sent, and passes on what has come of it.
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

// tick tells the machine the time. The mutex is held.
func (n *node) tick() time.Time {
	now := time.Now()
	n.machine.Tick(now)
	return now
}

// flush does what the machine wants. The mutex is held.
func (n *node) flush() {
	saved := n.save()
	messages, events := n.machine.Take()
	if !saved { // this member does not act on what may be forgotten
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

// send sends lease messages, once each, unless what they tell of may be forgotten. The mutex is held.
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

// receive takes a message. What is none, from a later version perhaps, is counted.
func (n *node) receive(b []byte) {
	<-n.opened
	if advertisement.IsMessage(b) {
		n.exchange.Receive(b)
		return
	}
	m, err := message.Parse(b)
	if err != nil {
		n.malformed.Add(1)
		n.network.Warn("a lease message is not understood: " + err.Error())
		return
	}
	name := electorate.Name(m.From)
	if at := n.members.Address(name); !at.IsValid() || electorate.Address(m.From) != at { // it has not joined, or is another by that name
		n.unjoined.Add(1)
		return
	}
	n.step(func(machine *lease.Machine, now time.Time) { machine.Receive(now, m) })
}

// runEvents passes events on to the handler, the last of them when ctx ends.
func (n *node) runEvents(ctx context.Context) {
	wake.Loop(ctx, n.events.some, func() (never time.Time) {
		n.events.deliver(n.handler, n.resume)
		return never
	})
	n.events.deliver(n.handler, n.resume)
}

// resume sends what has waited for the handler to learn of a loss.
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

// resign ends candidacies and releases what is held, and says so at once.
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
