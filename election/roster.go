package election

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// roster is who should be in the election and who is. It serves memberlist's
// delegates, which memberlist calls while it holds its own lock: so nothing here
// calls memberlist, or waits for anybody who does.
type roster struct {
	self    string
	gate    *gate
	receive func([]byte)    // takes a message, encoded
	changed []chan struct{} // each gets a token when somebody joins or leaves

	mu      sync.Mutex
	members map[string]netip.AddrPort // as configured, with self
	guests  map[string]netip.AddrPort // those that are not, and have joined
	seeds   map[string]netip.AddrPort // where to look for members, of a node without a vote: as configured
	seen    map[string]netip.AddrPort // all that memberlist holds for alive, and where
	cards   map[string]card           // what each was seen with last, alive or not
	streams map[string]time.Time      // who answers by TCP when asked to join, and since when
	hearing map[string]bool           // who understands offers
	joining map[string]bool           // who has joined since this was last asked, and
	leaving map[string]bool           // who has left by itself
	card    card                      // this member's own
}

var (
	_ memberlist.Delegate      = (*roster)(nil)
	_ memberlist.EventDelegate = (*roster)(nil)
	_ memberlist.AliveDelegate = (*roster)(nil)
	_ memberlist.MergeDelegate = (*roster)(nil)
)

func newRoster(self string, g *gate, receive func([]byte), changed ...chan struct{}) *roster {
	return &roster{self: self, gate: g, receive: receive, changed: changed, guests: make(map[string]netip.AddrPort),
		seen: make(map[string]netip.AddrPort), cards: make(map[string]card), streams: make(map[string]time.Time),
		hearing: make(map[string]bool), joining: make(map[string]bool), leaving: make(map[string]bool)}
}

// configure makes these the members, beside those that have joined without being
// configured, and has the gate let them in. Seeds are only where to look for members:
// who is found may have another name or be elsewhere, and then that counts.
func (r *roster) configure(members, seeds map[string]netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members, r.seeds = maps.Clone(members), maps.Clone(seeds)
	taken := make(map[netip.AddrPort]bool)
	for _, at := range members {
		taken[at] = true
	}
	if r.gate.open {
		maps.Copy(r.guests, r.seen) // who has a vote no more goes on without
	}
	maps.DeleteFunc(r.guests, func(name string, at netip.AddrPort) bool { return members[name].IsValid() || taken[at] })
	all := make(map[string]netip.AddrPort)
	for _, known := range []map[string]netip.AddrPort{seeds, members, r.guests} {
		maps.Copy(all, known)
	}
	maps.DeleteFunc(r.cards, func(name string, _ card) bool { return !all[name].IsValid() })
	maps.DeleteFunc(r.streams, func(name string, _ time.Time) bool { return !all[name].IsValid() })
	maps.DeleteFunc(r.hearing, func(name string, _ bool) bool { return !all[name].IsValid() })
	r.gate.admit(all, r.self)
	for name, at := range seeds {
		if !r.gate.knows(at) {
			r.gate.let(name, at)
		}
	}
}

// keep drops those without a vote that memberlist does not hold for alive, unless
// they are known otherwise. It reports whether there were any.
func (r *roster) keep(known map[string]bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.guests)
	maps.DeleteFunc(r.guests, func(name string, at netip.AddrPort) bool { return !known[name] && r.seen[name] != at })
	return len(r.guests) < before
}

// present are those without a vote that memberlist holds for alive.
func (r *roster) present() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, at := range r.guests {
		if r.seen[name] == at {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// describe makes this the card of the node itself. It reports whether that
// differs from the one before.
func (r *roster) describe(change func(*card)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.card.append(nil, memberlist.MetaMaxSize)
	change(&r.card)
	return string(before) != string(r.card.append(nil, memberlist.MetaMaxSize))
}

// address is where a member is, or the zero AddrPort.
func (r *roster) address(member string) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(member)
}

// at is address, while the mutex is held.
func (r *roster) at(member string) netip.AddrPort {
	for _, known := range []map[string]netip.AddrPort{r.members, r.guests} {
		if at, ok := known[member]; ok {
			return at
		}
	}
	return r.seeds[member]
}

// alone reports whether memberlist holds nobody else for alive.
func (r *roster) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen) == 0 || len(r.seen) == 1 && r.seen[r.self].IsValid()
}

// standing is for how many leases this member stands.
func (r *roster) standing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.card.Standing
}

// joined reports whether memberlist holds a member for alive, where it should be.
func (r *roster) joined(member string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(member).IsValid() && r.seen[member] == r.at(member)
}

// answers notes at now whether a member answers by TCP when it is asked to join.
func (r *roster) answers(now time.Time, member string, does bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !does {
		delete(r.streams, member)
	} else if r.streams[member].IsZero() {
		r.streams[member] = now
	}
}

// last is what a member has said last, and since when it answers by TCP when it is
// asked to join; the zero time if it does not, or is not asked.
func (r *roster) last(member string) (said card, answers time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cards[member], r.streams[member]
}

// hardware is where the VIPs of the members may be seen, as each has said itself
// last: who is heard no more may hold one nevertheless.
func (r *roster) hardware() map[string][]net.HardwareAddr {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string][]net.HardwareAddr)
	for name, card := range r.cards {
		all[name] = card.Hardware
	}
	return all
}

// NodeMeta serves memberlist.Delegate.
func (r *roster) NodeMeta(limit int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.card.append(nil, limit)
}

// NotifyMsg takes a message. It serves memberlist.Delegate.
func (r *roster) NotifyMsg(b []byte) { r.receive(b) }

// GetBroadcasts serves memberlist.Delegate: no message of the members' own is gossiped.
func (r *roster) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState serves memberlist.Delegate: there is none beside the nodes.
func (r *roster) LocalState(bool) []byte { return nil }

// MergeRemoteState serves memberlist.Delegate.
func (r *roster) MergeRemoteState([]byte, bool) {}

// NotifyAlive keeps out who is no member, or not where it should be. It serves
// memberlist.AliveDelegate, which is asked about every node from every source.
func (r *roster) NotifyAlive(n *memberlist.Node) error {
	at := where(n)
	err := r.check(n.Name, at)
	if err != nil {
		r.gate.impostor(n.Name, at, err)
		return err
	}
	if n.DMax >= offersDelegate { // a release that has replaced another at once does not join anew
		r.mu.Lock()
		r.hearing[n.Name] = true
		r.mu.Unlock()
	}
	return nil
}

// NotifyMerge refuses the list of a node none of whose members is known here, and
// none of which could be without a vote: of another cluster. One without a vote takes
// any that has somebody in it who could be a member: where it looks was configured. What is wrong with single nodes
// NotifyAlive finds; to refuse them all would part good members while a change of the
// members is under way. It serves memberlist.MergeDelegate.
func (r *roster) NotifyMerge(nodes []*memberlist.Node) error {
	wrong := 0
	for _, n := range nodes {
		switch err := r.check(n.Name, where(n)); {
		case err != nil:
			wrong++
		case r.seeds != nil || r.configured(n.Name):
			return nil
		}
	}
	if wrong == 0 {
		return nil
	}
	return fmt.Errorf("none of %d nodes is a member at its configured address", len(nodes))
}

// configured reports whether a member is in the configuration.
func (r *roster) configured(member string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[member].IsValid()
}

// check says what is wrong with a node. With the key, one that is not configured is a
// member without a vote.
func (r *roster) check(name string, at netip.AddrPort) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, configured := r.members[name]
	switch {
	case configured && want != at:
		return fmt.Errorf("%q is at %v in the configuration, not at %v", name, want, at)
	case configured:
		return nil
	case !r.gate.open:
		return fmt.Errorf("%q is not among the configured members", name)
	case name == "" || !at.IsValid() || at.Port() == 0 || at.Addr().Is4() != r.members[r.self].Addr().Is4():
		return fmt.Errorf("%q, which is not configured, is at %v: that cannot be", name, at)
	case r.guests[name] == at:
		return nil
	case len(r.guests) >= maxGuests:
		return fmt.Errorf("%q is one too many: %d members without a vote are there already", name, maxGuests)
	}
	for other, taken := range r.members {
		if taken == at {
			return fmt.Errorf("%q is not among the configured members, and at %v, where %q should be", name, at, other)
		}
	}
	return nil
}

// NotifyJoin serves memberlist.EventDelegate.
func (r *roster) NotifyJoin(n *memberlist.Node) {
	r.mu.Lock()
	r.hearing[n.Name] = n.DMax >= offersDelegate
	r.joining[n.Name] = true
	delete(r.leaving, n.Name)
	r.mu.Unlock()
	r.see(n)
}

// NotifyUpdate serves memberlist.EventDelegate.
func (r *roster) NotifyUpdate(n *memberlist.Node) { r.see(n) }

// NotifyLeave serves memberlist.EventDelegate.
func (r *roster) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	delete(r.seen, n.Name)
	delete(r.joining, n.Name)
	if n.State == memberlist.StateLeft {
		r.leaving[n.Name] = true
	}
	r.mu.Unlock()
	r.ring()
}

// ring has those who are there looked through.
func (r *roster) ring() {
	for _, changed := range r.changed {
		signal(changed)
	}
}

// see remembers a node that is alive. A card that is not understood, of a later
// version perhaps, is an empty one.
func (r *roster) see(n *memberlist.Node) {
	c, _ := parseCard(n.Meta)
	at := where(n)
	r.mu.Lock()
	r.seen[n.Name] = at
	r.cards[n.Name] = c
	if _, configured := r.members[n.Name]; !configured && r.gate.open {
		r.guests[n.Name] = at
		r.gate.let(n.Name, at)
	}
	r.mu.Unlock()
	r.gate.heard(at.Addr())
	r.ring()
}

// where is a node's address.
func where(n *memberlist.Node) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(net.IP(n.Addr))
	return netip.AddrPortFrom(addr.Unmap(), n.Port)
}
