package members

import (
	"maps"
	"net/netip"
	"slices"
)

// Recipients returns the other members that understand advertisements, with their addresses: configured ones always,
// others while memberlist considers them alive.
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

// recipient returns a member's address if it is a recipient, else the zero AddrPort. The mutex is held.
func (r *Members) recipient(member string) netip.AddrPort {
	at := r.at(member)
	if _, configured := r.members[member]; member == r.self || !r.capable[member] || !configured && r.alive[member] != at {
		return netip.AddrPort{}
	}
	return at
}

// TakeChanges returns the recipients that have joined, and the members that have left by themselves, since the last
// call.
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

// Find returns the address of a live member with a matching name, or the zero AddrPort.
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
