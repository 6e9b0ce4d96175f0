package election

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
)

// maxNamed is how many senders of each kind of nonsense are named in the log.
// The others are counted only: a flood has as many sources as it likes.
const maxNamed = 64

// gate decides by its source whether what arrives is looked at, and counts and
// names what is not. It is asked once for each packet, so asking is cheap.
type gate struct {
	log     *slog.Logger
	members atomic.Pointer[sources]

	unknown     atomic.Uint64 // from where no member is
	unreadable  atomic.Uint64 // from a member's address, encrypted with another key or not at all
	malformed   atomic.Uint64 // decrypted, and yet no lease message
	refused     atomic.Uint64 // claims to be, or vouches for, somebody who is no member
	unsent      atomic.Uint64 // lease messages that this node could not send
	strangers   register
	undecrypted register
	impostors   register
}

// sources are the other members, by where their packets and connections come from.
type sources struct {
	packets map[netip.AddrPort]string
	streams map[netip.Addr]string
}

// admit lets these members in from now on and nobody else.
func (g *gate) admit(members map[string]netip.AddrPort, self string) {
	s := &sources{packets: make(map[netip.AddrPort]string), streams: make(map[netip.Addr]string)}
	for name, at := range members {
		if name != self {
			s.packets[at] = name
			s.streams[at.Addr()] = name
		}
	}
	g.members.Store(s)
	g.forget()
}

// forget has what was named named again: the operator has changed something.
func (g *gate) forget() {
	g.strangers.clear()
	g.undecrypted.clear()
	g.impostors.clear()
}

// packet reports whether a packet from there is looked at.
func (g *gate) packet(from netip.AddrPort) bool {
	if _, ok := g.members.Load().packets[from]; ok {
		return true
	}
	g.stranger(from.Addr())
	return false
}

// stream reports whether a connection from there is looked at. It may come from
// any port.
func (g *gate) stream(from netip.Addr) bool {
	if _, ok := g.members.Load().streams[from]; ok {
		return true
	}
	g.stranger(from)
	return false
}

// knows reports whether somebody is to be sent anything.
func (g *gate) knows(to netip.AddrPort) bool {
	_, ok := g.members.Load().packets[to]
	return ok
}

// stranger counts and names a source that is no member's.
func (g *gate) stranger(from netip.Addr) {
	g.unknown.Add(1)
	switch first, last := g.strangers.add(from.String()); {
	case last:
		g.log.Warn("further sources of election messages that are no member's are counted, not named")
	case first:
		g.log.Warn("election messages from an address that no member has are dropped", "source", from)
	}
}

// locked counts and names a member whose messages cannot be decrypted.
func (g *gate) locked(from netip.Addr) {
	g.unreadable.Add(1)
	if first, _ := g.undecrypted.add(from.String()); first {
		g.log.Warn("election messages of a member cannot be read and are dropped: it has another key, or none",
			"member", g.members.Load().streams[from], "source", from)
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
