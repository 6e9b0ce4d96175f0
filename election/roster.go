package election

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
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
	receive func([]byte) // takes a lease message, encoded

	mu      sync.Mutex
	members map[string]netip.AddrPort // as configured, with self
	seen    map[string]netip.AddrPort // all that memberlist holds for alive, and where
	cards   map[string]card           // what each was seen with last, alive or not
	streams map[string]time.Time      // who answers by TCP when asked to join, and since when
	card    card                      // this member's own
}

var (
	_ memberlist.Delegate      = (*roster)(nil)
	_ memberlist.EventDelegate = (*roster)(nil)
	_ memberlist.AliveDelegate = (*roster)(nil)
	_ memberlist.MergeDelegate = (*roster)(nil)
)

func newRoster(self string, g *gate, receive func([]byte)) *roster {
	return &roster{self: self, gate: g, receive: receive,
		seen: make(map[string]netip.AddrPort), cards: make(map[string]card), streams: make(map[string]time.Time)}
}

// configure makes these the members.
func (r *roster) configure(members map[string]netip.AddrPort) {
	r.mu.Lock()
	r.members = maps.Clone(members)
	maps.DeleteFunc(r.cards, func(name string, _ card) bool { return !members[name].IsValid() })
	maps.DeleteFunc(r.streams, func(name string, _ time.Time) bool { return !members[name].IsValid() })
	r.mu.Unlock()
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
	return r.members[member]
}

// joined reports whether memberlist holds a member for alive, where it should be.
func (r *roster) joined(member string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[member].IsValid() && r.seen[member] == r.members[member]
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

// NotifyMsg takes a lease message. It serves memberlist.Delegate.
func (r *roster) NotifyMsg(b []byte) { r.receive(b) }

// GetBroadcasts serves memberlist.Delegate: lease messages are never gossiped.
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
	}
	return err
}

// NotifyMerge refuses the list of a node none of whose members is known here:
// of another cluster. What is wrong with single nodes NotifyAlive finds; to refuse
// them all would part good members while a change of the members is under way. It
// serves memberlist.MergeDelegate.
func (r *roster) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if r.check(n.Name, where(n)) == nil {
			return nil
		}
	}
	return fmt.Errorf("none of %d nodes is a member at its configured address", len(nodes))
}

// check says what is wrong with a node.
func (r *roster) check(name string, at netip.AddrPort) error {
	switch want := r.address(name); {
	case !want.IsValid():
		return fmt.Errorf("%q is not among the configured members", name)
	case want != at:
		return fmt.Errorf("%q is at %v in the configuration, not at %v", name, want, at)
	}
	return nil
}

// NotifyJoin serves memberlist.EventDelegate.
func (r *roster) NotifyJoin(n *memberlist.Node) { r.see(n) }

// NotifyUpdate serves memberlist.EventDelegate.
func (r *roster) NotifyUpdate(n *memberlist.Node) { r.see(n) }

// NotifyLeave serves memberlist.EventDelegate.
func (r *roster) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	delete(r.seen, n.Name)
	r.mu.Unlock()
}

// see remembers a node that is alive. A card that is not understood, of a later
// version perhaps, is an empty one.
func (r *roster) see(n *memberlist.Node) {
	c, _ := parseCard(n.Meta)
	r.mu.Lock()
	r.seen[n.Name] = where(n)
	r.cards[n.Name] = c
	r.mu.Unlock()
	r.gate.heard(where(n).Addr())
}

// where is a node's address.
func where(n *memberlist.Node) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(net.IP(n.Addr))
	return netip.AddrPortFrom(addr.Unmap(), n.Port)
}
