// Package transport carries packets and connections between the members of an election, for memberlist. It counts and
// drops all others.
package transport

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

const (
	// maxNamed is the maximum number of senders logged per kind of rejected traffic. Others are only counted, as a
	// flood has any number of sources.
	maxNamed = 64
	// unknownPerSecond limits the rate and the burst of connections from unknown addresses, where these may join: it
	// bounds the cost of decryption.
	unknownPerSecond = 50
)

// Admission decides by the source whether to process a packet or connection, and counts and logs rejected sources. It
// is asked for each packet and must be cheap.
//
// Observers join over a connection, which must be encrypted with the key. All other traffic from unknown addresses is
// dropped.
type Admission struct {
	Unknown    atomic.Uint64 // packets and connections from addresses of no member
	Unreadable atomic.Uint64 // encrypted with another key or not at all, from an admitted address
	Refused    atomic.Uint64 // claims to be, or introduces, a node that is not a member

	Open bool // unknown addresses may connect; fixed once used

	log   *slog.Logger
	limit *rate.Limiter // for connections from unknown addresses

	mu      sync.RWMutex
	packets map[netip.AddrPort]string // the other members, by source of their packets
	streams map[netip.Addr]string     // by source of their connections

	unknown    register
	unreadable register
	refused    register
}

// NewAdmission returns an admission without members. If open, unknown addresses may connect.
func NewAdmission(log *slog.Logger, open bool) *Admission {
	return &Admission{log: log, Open: open, limit: rate.NewLimiter(unknownPerSecond, unknownPerSecond)}
}

// Replace sets the admitted members.
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

// ForgetNamed logs rejected sources anew, after the operator has changed something.
func (a *Admission) ForgetNamed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unknown, a.unreadable, a.refused = nil, nil, nil
}

// AdmitPacket reports whether to process a packet from an address.
func (a *Admission) AdmitPacket(from netip.AddrPort) bool {
	if a.Knows(from) {
		return true
	}
	a.countUnknown(from.Addr())
	return false
}

// admitStream reports whether to process a connection from an address, with any port. known reports whether it is a
// member's.
func (a *Admission) admitStream(from netip.Addr) (ok, known bool) {
	a.mu.RLock()
	_, known = a.streams[from]
	a.mu.RUnlock()
	ok = known || a.Open && a.limit.Allow()
	if !ok {
		a.countUnknown(from)
	}
	return ok, known
}

// Knows reports whether an address is a member's.
func (a *Admission) Knows(at netip.AddrPort) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, ok := a.packets[at]
	return ok
}

// countUnknown counts and logs a source that is no member's.
func (a *Admission) countUnknown(from netip.Addr) {
	a.Unknown.Add(1)
	switch first, last := a.name(&a.unknown, from.String()); {
	case last:
		a.log.Warn("further unknown sources of election messages are counted, not logged")
	case first && a.Open:
		a.log.Info("election messages from the address of a member are dropped until it has joined", "source", from)
	case first:
		a.log.Warn("election messages from an unknown address are dropped", "source", from)
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
		a.log.Warn("election messages of a member cannot be decrypted and are dropped: it has another key, or none", "member", member, "source", from)
	} else {
		a.log.Warn("a node cannot join the election: its messages cannot be decrypted, it has another key, or none", "source", from)
	}
}

// address returns the source of a member's connections, or the zero address if the name is unknown.
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

// NoteReadable records that messages of a member can be decrypted.
func (a *Admission) NoteReadable(from netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unreadable, from.String())
}

// IsUnreadable reports whether messages of a member cannot be decrypted.
func (a *Admission) IsUnreadable(from netip.Addr) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.unreadable[from.String()]
}

// CountRefused counts and logs a node that contradicts the configuration.
func (a *Admission) CountRefused(name string, at netip.AddrPort, err error) {
	a.Refused.Add(1)
	if first, _ := a.name(&a.refused, name+" "+at.String()); first {
		a.log.Warn("a node is rejected from the election", "node", name, "address", at, "err", err)
	}
}

// register holds the logged sources: up to maxNamed, then the empty name for all others.
type register map[string]bool

// name reports whether to log a source, or whether it is the first of those not logged.
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
