package election

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxNamed is how many senders of each kind of nonsense are named in the log.
	// The others are counted only: a flood has as many sources as it likes.
	maxNamed = 64
	// knocks is how many connections of strangers are looked at in a second, where
	// strangers may join: what they cost to decrypt is bounded.
	knocks = 50
)

// gate decides by its source whether what arrives is looked at, and counts and
// names what is not. It is asked once for each packet, so asking is cheap.
//
// Where members without a vote may join, they do so by a connection, which has to be
// encrypted with the key. Nothing else of a stranger is looked at.
type gate struct {
	log  *slog.Logger
	open bool // strangers may join: never changes

	mu      sync.RWMutex
	packets map[netip.AddrPort]string // the other members, by where their packets come from
	streams map[netip.Addr]string     // and their connections
	door    bucket

	unknown     atomic.Uint64 // from where no member is
	unreadable  atomic.Uint64 // encrypted with another key or not at all, from where it might have been read
	malformed   atomic.Uint64 // decrypted, and yet no message of the members'
	refused     atomic.Uint64 // claims to be, or vouches for, somebody who is no member
	unsent      atomic.Uint64 // messages that this node could not send
	strangers   register
	undecrypted register
	impostors   register
}

// admit lets these members in from now on and nobody else.
func (g *gate) admit(members map[string]netip.AddrPort, self string) {
	g.mu.Lock()
	g.packets, g.streams = make(map[netip.AddrPort]string), make(map[netip.Addr]string)
	for name, at := range members {
		if name != self {
			g.packets[at] = name
			g.streams[at.Addr()] = name
		}
	}
	g.mu.Unlock()
}

// let lets one more member in.
func (g *gate) let(name string, at netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.packets[at] = name
	g.streams[at.Addr()] = name
}

// forget has what was named named again: the operator has changed something.
func (g *gate) forget() {
	g.strangers.clear()
	g.undecrypted.clear()
	g.impostors.clear()
}

// packet reports whether a packet from there is looked at.
func (g *gate) packet(from netip.AddrPort) bool {
	if g.knows(from) {
		return true
	}
	g.stranger(from.Addr())
	return false
}

// stream reports whether a connection from there is looked at. It may come from
// any port. Known says that a member is there.
func (g *gate) stream(from netip.Addr) (ok, known bool) {
	g.mu.Lock()
	_, known = g.streams[from]
	ok = known || g.open && g.door.take(time.Now())
	g.mu.Unlock()
	if !ok {
		g.stranger(from)
	}
	return ok, known
}

// knows reports whether somebody is to be sent anything.
func (g *gate) knows(to netip.AddrPort) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, ok := g.packets[to]
	return ok
}

// name is the member at an address, empty if there is none.
func (g *gate) name(at netip.Addr) string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.streams[at]
}

// bucket lets through knocks in a second, and as many at once.
type bucket struct {
	level float64 // how many were let through, and have not been made up for
	last  time.Time
}

func (b *bucket) take(now time.Time) bool {
	b.level = max(0, b.level-now.Sub(b.last).Seconds()*knocks)
	b.last = now
	if b.level > knocks-1 {
		return false
	}
	b.level++
	return true
}

// stranger counts and names a source that is no member's.
func (g *gate) stranger(from netip.Addr) {
	g.unknown.Add(1)
	switch first, last := g.strangers.add(from.String()); {
	case last:
		g.log.Warn("further sources of election messages that are no member's are counted, not named")
	case first && g.open:
		g.log.Info("election messages from an address are dropped until the member that is there has joined", "source", from)
	case first:
		g.log.Warn("election messages from an address that no member has are dropped", "source", from)
	}
}

// locked counts and names a member whose messages cannot be decrypted.
func (g *gate) locked(from netip.Addr) {
	g.unreadable.Add(1)
	if first, _ := g.undecrypted.add(from.String()); !first {
		return
	}
	if member := g.name(from); member != "" {
		g.log.Warn("election messages of a member cannot be read and are dropped: it has another key, or none", "member", member, "source", from)
	} else {
		g.log.Warn("a node cannot join the election: what it sends cannot be read, it has another key, or none", "source", from)
	}
}

// heard has a member named again should it once more not be understood.
func (g *gate) heard(from netip.Addr) { g.undecrypted.remove(from.String()) }

// mute reports whether what a member sends cannot be decrypted.
func (g *gate) mute(from netip.Addr) bool { return g.undecrypted.has(from.String()) }

// impostor counts and names a node that is not what the configuration says.
func (g *gate) impostor(name string, at netip.AddrPort, err error) {
	g.refused.Add(1)
	if first, _ := g.impostors.add(name + " " + at.String()); first {
		g.log.Warn("a node is kept out of the election", "node", name, "address", at, "err", err)
	}
}

// register remembers who was named, up to maxNamed.
type register struct {
	mu    sync.Mutex
	named map[string]bool
	full  bool
}

// add reports whether this one is to be named, or is the first of those that
// are not any more.
func (r *register) add(who string) (first, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.named[who] {
		return false, false
	}
	if len(r.named) >= maxNamed {
		last = !r.full
		r.full = true
		return false, last
	}
	if r.named == nil {
		r.named = make(map[string]bool)
	}
	r.named[who] = true
	return true, false
}

func (r *register) has(who string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.named[who]
}

func (r *register) remove(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.named, who)
}

func (r *register) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.named, r.full = nil, false
}
