package members

import (
	"maps"
	"net/netip"
	"slices"
)

// Recipients are the other members that understand offers, and where they are: those
// configured, whatever memberlist believes of them, and the rest while it holds them
// for alive.
func (r *Members) Recipients() map[string]netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]netip.AddrPort)
	for name := range r.capable {
		if at := r.recipient(name); at.IsValid() {
			all[name] = at
		}
	}
	return all
}

// listener is where a member is that offers are told to, or the zero AddrPort. The mutex is
// held.
func (r *Members) recipient(member string) netip.AddrPort {
	at := r.at(member)
	if _, configured := r.members[member]; member == r.self || !r.capable[member] || !configured && r.alive[member] != at {
		return netip.AddrPort{}
	}
	return at
}

// TakeChanges returns which of the listeners have joined, and which members have left
// by themselves, since the last call.
func (r *Members) TakeChanges() (joined map[string]netip.AddrPort, left []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	joined = make(map[string]netip.AddrPort)
	for name := range r.joining {
		if at := r.recipient(name); at.IsValid() {
			joined[name] = at
		}
	}
	left = slices.Collect(maps.Keys(r.leaving))
	clear(r.joining)
	clear(r.leaving)
	return joined, left
}

// Find returns where the member is that memberlist holds for alive and whose name
// matches, or the zero AddrPort.
func (r *Members) Find(matches func(name string) bool) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	for known, at := range r.alive {
		if matches(known) {
			return at
		}
	}
	return netip.AddrPort{}
}
