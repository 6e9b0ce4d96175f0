package advertisement

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/internal/wake"
)

// Network reaches other members.
type Network interface {
	Send(member string, at netip.AddrPort, message []byte) error
	// Join exchanges member lists over a connection, so that both sides know each other.
	Join(at netip.AddrPort) error
	// Warn logs recurring trouble at a limited rate.
	Warn(text string)
}

// Exchange sends this member's advertisement, receives the others', and reports changes. It never waits for leases.
type Exchange struct {
	members *members.Members
	network Network
	updated func([]MemberState)

	wake      chan struct{}       // holds a token if work is due earlier than planned
	missing   chan netip.AddrPort // members to ask for their member lists
	changed   chan struct{}       // holds a token if there may be a change to report
	malformed atomic.Uint64

	mu    sync.Mutex
	table *table
}

// NewExchange returns the exchange of a member that advertises nothing yet. process is its incarnation. A token in wake
// reports that a member has joined or left. updated is called on its own goroutine with the result of [Exchange.List]
// whenever that changes.
func NewExchange(self string, process uint64, lease time.Duration, m *members.Members, n Network, wake chan struct{}, updated func([]MemberState)) *Exchange {
	return &Exchange{members: m, network: n, updated: updated, wake: wake, missing: make(chan netip.AddrPort, 1),
		changed: make(chan struct{}, 1), table: newTable(self, process, lease, rand.Uint64)}
}

// Run sends advertisements, detects timeouts, looks for missing members, and reports changes, until ctx ends.
func (e *Exchange) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { e.seek(ctx) })
	work.Go(func() { e.publish(ctx) })
	wake.Loop(ctx, e.wake, e.sendDue)
}

// sendDue performs due work and returns the time of the next.
func (e *Exchange) sendDue() (due time.Time) {
	recipients := e.members.Recipients()
	joined, left := e.members.TakeChanges()

	e.mu.Lock()
	now := time.Now()
	e.table.retain(func(name string) bool { return e.members.Address(name).IsValid() })
	for _, name := range left {
		e.table.markLeft(name)
	}
	e.table.expire(now)
	m, ok := e.table.broadcast(now, len(recipients))
	if !ok && len(joined) > 0 && e.table.own != nil {
		m, ok, recipients = e.table.nextMessage(), true, joined
	}
	due = e.table.due()
	e.mu.Unlock()

	wake.Up(e.changed)
	if ok {
		e.send(m, recipients)
	}
	return due
}

func (e *Exchange) send(m message, recipients map[string]netip.AddrPort) {
	b, omitted := m.append(nil)
	if omitted > 0 {
		e.network.Warn(fmt.Sprintf(
			"cannot advertise %d of %d checks of this node: they do not fit, or have names of more than %d bytes: give them shorter names",
			omitted, len(m.Advertisement.Checks), maxCheckName))
	}
	for name, at := range recipients {
		if err := e.network.Send(name, at, b); err != nil {
			e.network.Warn("cannot send advertisements: " + err.Error())
		}
	}
}

// Advertise sets this member's advertisement. It never blocks.
func (e *Exchange) Advertise(own Advertisement) {
	e.mu.Lock()
	changed := e.table.setOwn(time.Now(), own)
	e.mu.Unlock()
	if changed {
		wake.Up(e.wake)
		wake.Up(e.changed)
	}
}

// SetLease sets the length of leases.
func (e *Exchange) SetLease(lease time.Duration) {
	e.mu.Lock()
	if lease < e.table.lease {
		e.table.next = time.Now()
	}
	e.table.lease = lease
	e.mu.Unlock()
	wake.Up(e.wake)
}

// Receive processes a message of this package.
func (e *Exchange) Receive(b []byte) {
	m, err := parse(b)
	if err != nil {
		e.malformed.Add(1)
		e.network.Warn(err.Error())
		return
	}
	at := e.members.Address(m.From)
	e.mu.Lock()
	if !at.IsValid() {
		e.table.ignored++
		e.mu.Unlock()
		return
	}
	result := e.table.receive(time.Now(), m)
	e.mu.Unlock()
	if result.changed {
		wake.Up(e.changed)
		wake.Up(e.wake) // the others must know, and its timeout may come first
	}
	if result.reply != nil {
		e.send(*result.reply, map[string]netip.AddrPort{m.From: at})
	}
	for _, hash := range result.seek {
		there := at // the sender knows the address of a member that it receives
		if known := e.members.Find(func(name string) bool { return hashed(name) == hash }); known.IsValid() {
			there = known
		}
		select {
		case e.missing <- there:
		default: // a later message repeats the search
		}
	}
}

// seek exchanges member lists over connections, because gossip reaches a few members late.
func (e *Exchange) seek(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-e.missing:
			_ = e.network.Join(at) // the search is repeated
		}
	}
}

// Dropped counts malformed messages, and ignored ones: old, repeated or from no member.
func (e *Exchange) Dropped() (malformed, ignored uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.malformed.Load(), e.table.ignored
}

// Leave informs the others that this member leaves.
func (e *Exchange) Leave() {
	recipients := e.members.Recipients()
	e.mu.Lock()
	m, ok := e.table.farewell()
	e.mu.Unlock()
	if ok {
		e.send(m, recipients)
	}
}

// List returns the states of all members, this one included, sorted by name. The caller must not modify the maps of
// checks.
func (e *Exchange) List() []MemberState {
	e.mu.Lock()
	all := e.table.list(time.Now())
	e.mu.Unlock()
	for i := range all {
		all[i].Address = e.members.Address(all[i].Member)
	}
	return slices.DeleteFunc(all, func(s MemberState) bool { return !s.Address.IsValid() })
}

// publish calls updated with the states of the members after each change.
func (e *Exchange) publish(ctx context.Context) {
	var last []MemberState
	wake.Loop(ctx, e.changed, func() (never time.Time) {
		if all := e.List(); !slices.EqualFunc(all, last, MemberState.same) {
			last = all
			e.updated(slices.Clone(all))
		}
		return never
	})
}
