package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/election/wire"
)

// maxLeases limits the leases that one process votes on, and the candidacies that it remembers of one member.
const maxLeases = 8192

// peer is this member's view of another one.
type peer struct {
	name        string
	observer    bool   // without a vote
	incarnation uint64 // 0: never received
	received    time.Time
	joined      time.Time // when the caller last reported its presence
	mutual      bool      // it has addressed this process, not an earlier one
	window      wire.Window

	// Contents of its latest message.
	cluster, number uint64 // of its committed electorate
	active, desired uint64 // digests
	abstaining      bool
	heard           bool                   // it hears a majority of its committed electorate
	described       *electorate.Electorate // its committed electorate, else its desired one, by its last description; nil: none
	peerCandidacies

	sequence   uint64 // of the last message to it
	queue      []message.Item
	late       []message.Item  // items that may wait a moment for others
	change     *message.Change // to send about the next electorate
	probe      bool            // send it a full keepalive
	told       bool            // it was sent all candidacies one by one
	asked      time.Time       // for all its candidacies
	introduce  bool            // send it this process's identity
	introduced time.Time
}

// begin discards the state of the peer's earlier process.
func (p *peer) begin(incarnation uint64) {
	*p = peer{
		name: p.name, observer: p.observer, incarnation: incarnation, joined: p.joined,
		sequence: p.sequence, introduced: p.introduced, probe: true,
	}
}

// note records the sender's state from a message and reports whether it has changed.
func (p *peer) note(msg *message.Message) bool {
	current := [...]any{msg.Cluster, msg.Number, msg.Active, msg.Desired, msg.Abstaining, msg.Heard}
	news := current != [...]any{p.cluster, p.number, p.active, p.desired, p.abstaining, p.heard}
	p.cluster, p.number, p.active, p.desired, p.abstaining, p.heard = msg.Cluster, msg.Number, msg.Active, msg.Desired, msg.Abstaining, msg.Heard
	if e := msg.Electorate; e != nil {
		digest := msg.Desired
		if msg.Number > 0 {
			digest = msg.Active
		}
		if e.Digest() == digest {
			news, p.described = true, e
		}
	}
	return news
}

// fresh reports whether the peer was received within d, or within its own Duration: it may send less often while the
// Duration changes.
func (p *peer) fresh(now time.Time, d time.Duration) bool {
	if p.described != nil {
		d = max(d, min(p.described.Duration, electorate.MaxDuration))
	}
	return p.incarnation != 0 && now.Sub(p.received) < d
}

// peerCandidacies are the candidacies of a peer. A Campaign item reports each new or changed one; then a digest
// confirms all of them. Safety does not depend on them.
type peerCandidacies struct {
	byLease map[uint64]*peerCandidacy
	digest  uint64 // of all candidacies
	// confirmed is when the peer last confirmed them, in message number asOf.
	confirmed time.Time
	asOf      uint64
}

// peerCandidacy is one candidacy of a peer.
type peerCandidacy struct {
	priority int
	preempt  bool
	epoch    uint64    // 0: it does not hold the lease
	since    time.Time // unchanged and received without a gap
	seen     time.Time
	sequence uint64 // of the message that reported it
}

func sum(lease uint64, priority int, preempt bool, epoch uint64) uint64 {
	x := wire.Mix(epoch) + uint64(priority)<<1
	if preempt {
		x++
	}
	return wire.Mix(lease ^ wire.Mix(x))
}

func (s *peerCandidacy) sum(lease uint64) uint64 { return sum(lease, s.priority, s.preempt, s.epoch) }

// note records a candidacy and reports whether to consider it.
func (t *peerCandidacies) note(now time.Time, d time.Duration, sequence uint64, it message.Item) bool {
	s := t.byLease[it.Lease]
	switch {
	case sequence < t.asOf || s != nil && s.sequence > sequence:
		return false
	case !it.Campaigning:
		t.drop(it.Lease)
		return s != nil
	case s == nil && len(t.byLease) >= maxLeases:
		return false
	case s == nil:
		if t.byLease == nil {
			t.byLease = map[uint64]*peerCandidacy{}
		}
		s = &peerCandidacy{since: now}
		t.byLease[it.Lease] = s
	default:
		t.digest ^= s.sum(it.Lease)
		if s.priority != it.Priority || s.preempt != it.Preempt || now.Sub(t.last(s)) >= d {
			s.since = now
		}
	}
	s.priority, s.preempt, s.epoch, s.sequence, s.seen = it.Priority, it.Preempt, it.Epoch, sequence, now
	t.digest ^= s.sum(it.Lease)
	return true
}

// confirm records that all candidacies are unchanged, and reports whether they are known. Earlier messages that arrive
// later are void.
func (t *peerCandidacies) confirm(now time.Time, d time.Duration, sequence, digest uint64) bool {
	if t.digest != digest {
		return false
	}
	if now.Sub(t.confirmed) >= d {
		for _, s := range t.byLease {
			if now.Sub(t.last(s)) >= d {
				s.since = now
			}
		}
	}
	t.confirmed, t.asOf = now, sequence
	return true
}

func (t *peerCandidacies) drop(lease uint64) {
	if s := t.byLease[lease]; s != nil {
		t.digest ^= s.sum(lease)
		delete(t.byLease, lease)
	}
}

func (t *peerCandidacies) last(s *peerCandidacy) time.Time { return later(s.seen, t.confirmed) }

func (p *peer) candidacy(now time.Time, d time.Duration, lease uint64) *peerCandidacy {
	if s := p.byLease[lease]; s != nil && p.fresh(now, d) && now.Sub(p.last(s)) < d {
		return s
	}
	return nil
}

// An observer is a member without a vote. It campaigns for leases and requests votes like any other, and grants
// nothing. Observers are in no electorate. They follow the voters' committed electorate, and are known as long as
// messages of them are received.

const (
	// observerMemory is how long a timed-out observer is remembered.
	observerMemory = 10 * time.Minute
	// farKeepalives is the interval, in keepalives, between peers that need little of each other.
	farKeepalives = 15
)

// addObserver adds an unknown member as an observer. It returns nil if there is no room.
func (m *Machine) addObserver(name string) *peer {
	if name == m.self.member || name == "" || len(name) > electorate.MaxName || !m.makeRoom() {
		return nil
	}
	p := m.known[name]
	if p == nil {
		p = &peer{name: name, sequence: m.forgotten}
		m.known[name] = p
	}
	p.observer, p.probe, p.queue, p.late, p.joined = true, true, nil, nil, time.Time{}
	m.insert(p)
	return p
}

func (m *Machine) insert(p *peer) {
	at, _ := slices.BinarySearchFunc(m.peers, p.name, byName)
	m.peers = slices.Insert(m.peers, at, p)
}

func byName(p *peer, name string) int { return strings.Compare(p.name, name) }

// makeRoom reports whether there is room for another observer. If necessary, it forgets the observer that timed out
// first, if that was long enough ago.
func (m *Machine) makeRoom() bool {
	observers, silent := 0, (*peer)(nil)
	for _, p := range m.peers {
		if !p.observer {
			continue
		}
		if observers++; silent == nil || p.present().Before(silent.present()) {
			silent = p
		}
	}
	if observers < m.maxObservers {
		return true
	}
	if silent == nil || m.now.Sub(silent.present()) < 2*farKeepalives*m.duration() {
		return false
	}
	m.forgetObservers(func(p *peer) bool { return p == silent })
	return true
}

// forgetObservers removes observers. It keeps the greatest sequence number, so that messages to an observer that returns are
// newer than all earlier ones.
func (m *Machine) forgetObservers(which func(*peer) bool) {
	m.peers = slices.DeleteFunc(m.peers, func(p *peer) bool {
		if !p.observer || !which(p) {
			return false
		}
		m.forgotten = max(m.forgotten, p.sequence)
		delete(m.known, p.name)
		return true
	})
}

// present returns the time of the last sign of a peer.
func (p *peer) present() time.Time { return later(p.received, p.joined) }

// lag describes the difference between an observer's configured electorate and the voters'; empty if there is none.
func (m *Machine) lag() string {
	switch mine := m.configured; {
	case !m.inForce() || !m.observer() || m.desired.digest == m.digest:
		return ""
	case m.open != nil && (m.open.Observer || mine.Duration == m.active().Duration && mine.Quorum == m.active().Quorum):
		return ""
	case m.open != nil:
		return fmt.Sprintf("this node asks for a vote with lease %v and quorum %v, the voters have %v and %v: make them the same",
			mine.Duration, mine.Quorum, m.active().Duration, m.active().Quorum)
	}
	return fmt.Sprintf("the electorate in force is %s, this member is configured with %s: give it the configuration of the voters", m.active(), m.desired)
}
