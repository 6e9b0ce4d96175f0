package members

import (
	"maps"
	"net/netip"
	"slices"
)

// Listeners are the other members that understand offers, and where they are: those
// configured, whatever memberlist believes of them, and the rest while it holds them
// for alive.
func (r *Members) Listeners() map[string]netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]netip.AddrPort)
	for name := range r.hearing {
		if at := r.listener(name); at.IsValid() {
			all[name] = at
		}
	}
	return all
}

// listener is where a member is that offers are told to, or the zero AddrPort. The mutex is
// held.
func (r *Members) listener(member string) netip.AddrPort {
	at := r.at(member)
	if _, configured := r.members[member]; member == r.self || !r.hearing[member] || !configured && r.seen[member] != at {
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
		if at := r.listener(name); at.IsValid() {
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
	for known, at := range r.seen {
		if matches(known) {
			return at
		}
	}
	return netip.AddrPort{}
}
