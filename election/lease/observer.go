package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

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
