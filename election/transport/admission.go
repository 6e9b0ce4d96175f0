// Package transport carries packets and connections between the members of an
// election, for memberlist. What comes from elsewhere is counted and not looked at.
package transport

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

const (
	// maxNamed is how many senders of each kind of nonsense are named in the log.
	// The others are counted only: a flood has as many sources as it likes.
	maxNamed = 64
	// strangersPerSecond is how many connections of strangers are looked at, where
	// strangers may join, and how many at once: what they cost to decrypt is bounded.
	strangersPerSecond = 50
)

// Admission decides by its source whether what arrives is looked at, and counts and
// names what is not. It is asked once for each packet, so asking is cheap.
//
// Observers join by a connection, which has to be encrypted with the key. Nothing
// else of a stranger is looked at.
type Admission struct {
	Unknown    atomic.Uint64 // packets and connections from where no member is
	Unreadable atomic.Uint64 // encrypted with another key or not at all, from where it might have been read
	Refused    atomic.Uint64 // claims to be, or vouches for, somebody who is no member

	Open bool // strangers may join: does not change once there are some

	log   *slog.Logger
	limit *rate.Limiter // of connections of strangers

	mu      sync.RWMutex
	packets map[netip.AddrPort]string // the other members, by where their packets come from
	streams map[netip.Addr]string     // and their connections

	strangers  register
	unreadable register
	refused    register
}

// NewAdmission admits nobody yet. If it is open, strangers may connect.
func NewAdmission(log *slog.Logger, open bool) *Admission {
	return &Admission{log: log, Open: open, limit: rate.NewLimiter(strangersPerSecond, strangersPerSecond)}
}

// Replace admits these members from now on and nobody else.
func (a *Admission) Replace(members map[string]netip.AddrPort, self string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.packets, a.streams = make(map[netip.AddrPort]string), make(map[netip.Addr]string)
	for name, at := range members {
		if name != self {
			a.packets[at] = name
			a.streams[at.Addr()] = name
		}
	}
}

// Add admits one more member.
func (a *Admission) Add(name string, at netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.packets[at] = name
	a.streams[at.Addr()] = name
}

// ForgetNamed has what was named named again: the operator has changed something.
func (a *Admission) ForgetNamed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.strangers, a.unreadable, a.refused = nil, nil, nil
}

// AdmitPacket reports whether a packet from there is looked at.
func (a *Admission) AdmitPacket(from netip.AddrPort) bool {
	if a.Knows(from) {
		return true
	}
	a.countStranger(from.Addr())
	return false
}

// admitStream reports whether a connection from there is looked at. It may come from
// any port. Known says that a member is there.
func (a *Admission) admitStream(from netip.Addr) (ok, known bool) {
	a.mu.RLock()
	_, known = a.streams[from]
	a.mu.RUnlock()
	ok = known || a.Open && a.limit.Allow()
	if !ok {
		a.countStranger(from)
	}
	return ok, known
}

// Knows reports whether a member is there.
func (a *Admission) Knows(at netip.AddrPort) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, ok := a.packets[at]
	return ok
}

// countStranger counts and names a source that is no member's.
func (a *Admission) countStranger(from netip.Addr) {
	a.Unknown.Add(1)
	switch first, last := a.name(&a.strangers, from.String()); {
	case last:
		a.log.Warn("further sources of election messages that are no member's are counted, not named")
	case first && a.Open:
		a.log.Info("election messages from an address are dropped until the member that is there has joined", "source", from)
	case first:
		a.log.Warn("election messages from an address that no member has are dropped", "source", from)
	}
}

func (a *Admission) countUnreadable(from netip.Addr) {
	a.Unreadable.Add(1)
	if first, _ := a.name(&a.unreadable, from.String()); !first {
		return
	}
	a.mu.RLock()
	member := a.streams[from]
	a.mu.RUnlock()
	if member != "" {
		a.log.Warn("election messages of a member cannot be read and are dropped: it has another key, or none", "member", member, "source", from)
	} else {
		a.log.Warn("a node cannot join the election: what it sends cannot be read, it has another key, or none", "source", from)
	}
}

// address is where a member's connections come from, the zero address if there is none
// of this name.
func (a *Admission) address(member string) netip.Addr {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for at, name := range a.streams {
		if name == member {
			return at
		}
	}
	return netip.Addr{}
}

// NoteReadable notes that what a member sends can be decrypted.
func (a *Admission) NoteReadable(from netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unreadable, from.String())
}

// IsUnreadable reports whether what a member sends cannot be decrypted.
func (a *Admission) IsUnreadable(from netip.Addr) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.unreadable[from.String()]
}

// CountRefused counts and names a node that is not what the configuration says.
func (a *Admission) CountRefused(name string, at netip.AddrPort, err error) {
	a.Refused.Add(1)
	if first, _ := a.name(&a.refused, name+" "+at.String()); first {
		a.log.Warn("a node is kept out of the election", "node", name, "address", at, "err", err)
	}
}

// register is who was named: maxNamed, and then the empty name for all the rest.
type register map[string]bool

// name reports whether this one is to be named, or is the first of those that are
// not any more.
func (a *Admission) name(named *register, who string) (first, last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if *named == nil {
		*named = make(register)
	}
	r := *named
	switch {
	case r[who]:
		return false, false
	case len(r) < maxNamed:
		r[who] = true
		return true, false
	}
	last = !r[""]
	r[""] = true
	return false, last
}
