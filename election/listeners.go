package election

import "net/netip"

// listener is a member that offers are told to.
type listener struct {
	name string
	at   netip.AddrPort
}

// listeners are the other members that understand offers: those configured, whatever
// memberlist believes of them, and the rest while it holds them for alive.
func (r *roster) listeners() []listener {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []listener
	for name := range r.hearing {
		if at := r.hears(name); at.IsValid() {
			all = append(all, listener{name, at})
		}
	}
	return all
}

// hears is where a member is that offers are told to, or the zero AddrPort. The mutex is
// held.
func (r *roster) hears(member string) netip.AddrPort {
	at := r.at(member)
	if _, configured := r.members[member]; member == r.self || !r.hearing[member] || !configured && r.seen[member] != at {
		return netip.AddrPort{}
	}
	return at
}

// turnout is who of the listeners has joined, and which members have left by
// themselves, since the last call.
func (r *roster) turnout() (joined []listener, left []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.joining {
		if at := r.hears(name); at.IsValid() {
			joined = append(joined, listener{name, at})
		}
	}
	for name := range r.leaving {
		left = append(left, name)
	}
	clear(r.joining)
	clear(r.leaving)
	return joined, left
}

// find is where a member is that memberlist holds for alive, by the hash of its name, or
// the zero AddrPort.
func (r *roster) find(name uint32) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	for known, at := range r.seen {
		if hashed(known) == name {
			return at
		}
	}
	return netip.AddrPort{}
}
