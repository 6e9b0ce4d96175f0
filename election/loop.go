package election

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/lease"
)

// run calls the machine when it is due.
func (n *node) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-timer.C:
			n.step(nil)
		}
		n.mu.Lock()
		due := n.due
		n.mu.Unlock()
		if timer.Stop(); !due.IsZero() {
			timer.Reset(time.Until(due))
		}
	}
}

// step tells the machine the time and then whatever else there is, sends what it
// wants to be sent, and passes on what has come of it.
func (n *node) step(do func(m *lease.Machine, now time.Time)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return
	}
	now := time.Now()
	n.machine.Tick(now)
	if do != nil {
		do(n.machine, now)
	}
	n.flush()
}

// flush does what the machine wants. The mutex is held.
func (n *node) flush() {
	messages, events := n.machine.Take()
	if !n.leaving {
		n.news.add(events)
	}
	if n.news.loss() {
		n.waiting = append(n.waiting, messages...)
		n.waiting = n.waiting[max(0, len(n.waiting)-maxWaiting):]
		messages = nil
	}
	n.send(messages)
	if due := n.machine.Next(); !due.Equal(n.due) {
		n.due = due
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

// send sends lease messages, once each.
func (n *node) send(messages []lease.Outgoing) {
	for _, m := range messages {
		to := n.roster.address(m.To)
		if !to.IsValid() {
			continue // a member until a moment ago
		}
		b, err := m.AppendBinary(nil)
		if err == nil {
			err = n.list.SendToAddress(memberlist.Address{Addr: to.String(), Name: m.To}, b)
		}
		if err != nil {
			n.gate.unsent.Add(1)
			n.journal.warn("cannot send lease messages: " + err.Error())
		}
	}
}

// receive takes a message. What is none, from a later version perhaps, is counted.
func (n *node) receive(b []byte) {
	if offers(b) {
		n.offering.receive(b)
		return
	}
	m, err := lease.ParseMessage(b)
	if err != nil {
		n.gate.malformed.Add(1)
		n.journal.warn("a lease message is not understood: " + err.Error())
		return
	}
	n.step(func(machine *lease.Machine, now time.Time) { machine.Receive(now, m) })
}

// join asks members that are not there to be, again and again, and lets go of
// those that are members no more.
func (n *node) join(ctx context.Context) {
	tick := time.NewTicker(rejoin)
	defer tick.Stop()
	told := newBulletin(n.log)
	for more := true; more; more = n.update(ctx, tick.C) {
		n.meet()
		s := n.status()
		if time.Since(n.started) >= rejoin { // at first nobody has been heard
			told.post(s)
		}
		n.ask(ctx, s)
		n.remember()
	}
}

// ask asks those to join that are not there, all at the same time, as each may take long
// to be found dead. Who has no vote asks those that have one, and, while it knows of
// nobody else, wherever it may look for somebody.
func (n *node) ask(ctx context.Context, s Status) {
	absent := make(map[netip.AddrPort]string)
	if n.roster.alone() {
		n.mu.Lock()
		for name, at := range n.seeds {
			absent[at] = name
		}
		n.mu.Unlock()
	}
	for _, m := range s.Members {
		if m.Voter && !(m.Alive && n.roster.joined(m.Name)) && m.Address.IsValid() {
			absent[m.Address] = m.Name
		} else {
			n.roster.answers(time.Now(), m.Name, false)
		}
	}
	var asking sync.WaitGroup
	for at, name := range absent {
		asking.Go(func() {
			if ctx.Err() == nil {
				_, err := n.list.Join([]string{at.String()}) // by TCP; that it is gone has been said
				n.roster.answers(time.Now(), name, err == nil)
			}
		})
	}
	asking.Wait()
}

// meet looks through who is there.
func (n *node) meet() {
	n.step(func(m *lease.Machine, now time.Time) {
		m.Meet(now, n.roster.present()...)
		n.admit(now)
	})
	n.news.meet(n.alive())
}

// update tells the others what this member's card says, whenever that changes,
// until the next tick. It reports false when ctx ends.
func (n *node) update(ctx context.Context, tick <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-n.arrived:
			n.meet()
		case <-n.described:
			_ = n.list.UpdateNode(spread) // what is late goes with the next exchange of lists
		}
	}
}

// tell passes news on to the observer, the last of it when ctx ends.
func (n *node) tell(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-n.news.some:
		}
		n.news.tell(n.observe, n.resume)
	}
	n.news.tell(n.observe, n.resume)
}

// resume sends what has waited for the observer to learn of a loss.
func (n *node) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.news.loss() {
		n.send(n.waiting)
		n.waiting = nil
	}
}

// stand makes this member a candidate.
func (n *node) stand(candidacies []lease.Candidacy) {
	n.step(func(m *lease.Machine, now time.Time) {
		for _, c := range candidacies {
			m.Stand(now, c)
		}
	})
}

// resign ends candidacies and releases what is held, and says so at once.
func (n *node) resign(leases []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return
	}
	now := time.Now()
	n.machine.Tick(now)
	n.flush()
	for _, name := range leases {
		n.machine.Resign(now, name)
		n.news.drop(name)
	}
	messages, _ := n.machine.Take()
	n.send(messages)
	n.flush()
}

// forget removes leases from the status.
func (n *node) forget(leases []string) {
	n.step(func(m *lease.Machine, now time.Time) {
		for _, name := range leases {
			m.Forget(now, name)
		}
	})
}

// describe changes this member's card.
func (n *node) describe(change func(*card)) {
	if !n.roster.describe(change) {
		return
	}
	select {
	case n.described <- struct{}{}:
	default:
	}
}
