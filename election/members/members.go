// Package members knows who should take part in an election and who does, from the
// configuration and from memberlist: voters, and observers, which join with the key.
package members

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/internal/wake"
)

const (
	// MaxObservers is how many observers there may be.
	MaxObservers = 1024
	// AdvertisementProtocol is the least version of the members' own messages, the highest that
	// a member says it understands, which includes offers: to others, of earlier
	// releases, none is sent.
	AdvertisementProtocol = 1
)

// Members is who should be in the election and who is. It serves memberlist's
// delegates, which memberlist calls while it holds its own lock: so nothing here
// calls memberlist, or waits for anybody who does.
type Members struct {
	self      string
	admission *transport.Admission
	receive   func([]byte)    // takes a message, encoded
	changed   []chan struct{} // each gets a token when somebody joins or leaves

	mu        sync.Mutex
	members   map[string]netip.AddrPort // as configured, with self
	observers map[string]netip.AddrPort // those that are not, and have joined
	seeds     map[string]netip.AddrPort // where to look for members, of an observer: as configured
	alive     map[string]netip.AddrPort // all that memberlist holds for alive, and where
	described map[string]Description    // what each was seen with last, alive or not
	streams   map[string]time.Time      // who answers by TCP when asked to join, and since when
	capable   map[string]bool           // who understands offers
	joining   map[string]bool           // who has joined since this was last asked, and
	leaving   map[string]bool           // who has left by itself
	own       Description               // this member's own
}

var (
	_ memberlist.Delegate      = (*Members)(nil)
	_ memberlist.EventDelegate = (*Members)(nil)
	_ memberlist.AliveDelegate = (*Members)(nil)
	_ memberlist.MergeDelegate = (*Members)(nil)
)

// New knows of nobody yet. Whatever members send each other is received, and each
// channel gets a token when somebody joins or leaves.
func New(self string, a *transport.Admission, receive func([]byte), changed ...chan struct{}) *Members {
	return &Members{self: self, admission: a, receive: receive, changed: changed, observers: make(map[string]netip.AddrPort),
		alive: make(map[string]netip.AddrPort), described: make(map[string]Description), streams: make(map[string]time.Time),
		capable: make(map[string]bool), joining: make(map[string]bool), leaving: make(map[string]bool)}
}

// Configure makes these the members, beside those that have joined without being
// configured, and has them admitted. Seeds are only where to look for members:
// who is found may have another name or be elsewhere, and then that counts.
func (r *Members) Configure(members, seeds map[string]netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members, r.seeds = maps.Clone(members), maps.Clone(seeds)
	taken := make(map[netip.AddrPort]bool)
	for _, at := range members {
		taken[at] = true
	}
	if r.admission.Open {
		maps.Copy(r.observers, r.alive) // who has a vote no more goes on without
	}
	maps.DeleteFunc(r.observers, func(name string, at netip.AddrPort) bool { return members[name].IsValid() || taken[at] })
	all := make(map[string]netip.AddrPort)
	for _, known := range []map[string]netip.AddrPort{seeds, members, r.observers} {
		maps.Copy(all, known)
	}
	maps.DeleteFunc(r.described, func(name string, _ Description) bool { return !all[name].IsValid() })
	maps.DeleteFunc(r.streams, func(name string, _ time.Time) bool { return !all[name].IsValid() })
	maps.DeleteFunc(r.capable, func(name string, _ bool) bool { return !all[name].IsValid() })
	r.admission.Replace(all, r.self)
	for name, at := range seeds {
		if !r.admission.Knows(at) {
			r.admission.Add(name, at)
		}
	}
}

// Retain drops observers that memberlist does not hold for alive, unless they are
// known otherwise. It reports whether there were any.
func (r *Members) Retain(known map[string]bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.observers)
	maps.DeleteFunc(r.observers, func(name string, at netip.AddrPort) bool { return !known[name] && r.alive[name] != at })
	return len(r.observers) < before
}

// Observers are those that memberlist holds for alive.
func (r *Members) Observers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for name, at := range r.observers {
		if r.alive[name] == at {
			all = append(all, electorate.Member(name, at, r.described[name].Identity))
		}
	}
	slices.Sort(all)
	return all
}

// Describe changes how this member describes itself. It reports whether that
// differs from the one before.
func (r *Members) Describe(change func(*Description)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.own.append(nil, memberlist.MetaMaxSize)
	change(&r.own)
	return string(before) != string(r.own.append(nil, memberlist.MetaMaxSize))
}

// Address is where a member is, or the zero AddrPort.
func (r *Members) Address(member string) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(member)
}

// at is address, while the mutex is held.
func (r *Members) at(member string) netip.AddrPort {
	return cmp.Or(r.members[member], r.observers[member], r.seeds[member])
}

// Alone reports whether memberlist holds nobody else for alive.
func (r *Members) Alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.alive) == 0 || len(r.alive) == 1 && r.alive[r.self].IsValid()
}

// Campaigns is for how many leases this member stands.
func (r *Members) Campaigns() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own.Campaigns
}

// Joined reports whether memberlist holds a member, as the electorate has it, for alive, where it should be.
func (r *Members) Joined(member string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := electorate.Name(member)
	at := r.at(name)
	return at.IsValid() && r.alive[name] == at && electorate.Member(name, at, r.described[name].Identity) == member
}

// NoteAnswer notes at now whether a member answers by TCP when it is asked to join.
func (r *Members) NoteAnswer(now time.Time, member string, does bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !does {
		delete(r.streams, member)
	} else if r.streams[member].IsZero() {
		r.streams[member] = now
	}
}

// Last is what a member has said last, and since when it answers by TCP when it is
// asked to join; the zero time if it does not, or is not asked.
func (r *Members) Last(member string) (said Description, answers time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.described[member], r.streams[member]
}

// Hardware is where the VIPs of the members may be seen, as each has said itself
// last: who is heard no more may hold one nevertheless.
func (r *Members) Hardware() map[string][]net.HardwareAddr {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string][]net.HardwareAddr)
	for name, d := range r.described {
		all[name] = d.Hardware
	}
	return all
}

// NodeMeta serves memberlist.Delegate.
func (r *Members) NodeMeta(limit int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own.append(nil, limit)
}

// NotifyMsg takes a message. It serves memberlist.Delegate.
func (r *Members) NotifyMsg(b []byte) { r.receive(b) }

// GetBroadcasts serves memberlist.Delegate: no message of the members' own is gossiped.
func (r *Members) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState serves memberlist.Delegate: there is none beside the nodes.
func (r *Members) LocalState(bool) []byte { return nil }

// MergeRemoteState serves memberlist.Delegate.
func (r *Members) MergeRemoteState([]byte, bool) {}

// NotifyAlive keeps out who is no member, or not where it should be. It serves
// memberlist.AliveDelegate, which is asked about every node from every source.
func (r *Members) NotifyAlive(n *memberlist.Node) error {
	at := where(n)
	err := r.check(n.Name, at)
	if err != nil {
		r.admission.CountRefused(n.Name, at, err)
		return err
	}
	if n.DMax >= AdvertisementProtocol { // a release that has replaced another at once does not join anew
		r.mu.Lock()
		r.capable[n.Name] = true
		r.mu.Unlock()
	}
	return nil
}

// NotifyMerge refuses the list of another cluster, in which nobody is known here and
// somebody could not even be an observer. An observer takes any in which somebody could
// be a member, as it was configured where to look. NotifyAlive refuses single nodes; to
// refuse a whole list for one would part good members while members change. It serves
// memberlist.MergeDelegate.
func (r *Members) NotifyMerge(nodes []*memberlist.Node) error {
	wrong := 0
	for _, n := range nodes {
		switch err := r.check(n.Name, where(n)); {
		case err != nil:
			wrong++
		case r.seeds != nil || r.isConfigured(n.Name):
			return nil
		}
	}
	if wrong == 0 {
		return nil
	}
	return fmt.Errorf("none of %d nodes is a member at its configured address", len(nodes))
}

func (r *Members) isConfigured(member string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[member].IsValid()
}

// check says what is wrong with a node. With the key, one that is not configured is an
// observer.
func (r *Members) check(name string, at netip.AddrPort) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, configured := r.members[name]
	switch {
	case configured && want != at:
		return fmt.Errorf("%q is at %v in the configuration, not at %v", name, want, at)
	case configured:
		return nil
	case !r.admission.Open:
		return fmt.Errorf("%q is not among the configured members", name)
	case name == "" || !at.IsValid() || at.Port() == 0 || at.Addr().Is4() != r.members[r.self].Addr().Is4():
		return fmt.Errorf("%q, which is not configured, is at %v: that cannot be", name, at)
	case r.observers[name] == at:
		return nil
	case len(r.observers) >= MaxObservers:
		return fmt.Errorf("%q is one too many: %d members without a vote are there already", name, MaxObservers)
	}
	for other, taken := range r.members {
		if taken == at {
			return fmt.Errorf("%q is not among the configured members, and at %v, where %q should be", name, at, other)
		}
	}
	return nil
}

// NotifyJoin serves memberlist.EventDelegate.
func (r *Members) NotifyJoin(n *memberlist.Node) {
	r.mu.Lock()
	r.capable[n.Name] = n.DMax >= AdvertisementProtocol
	r.joining[n.Name] = true
	delete(r.leaving, n.Name)
	r.mu.Unlock()
	r.see(n)
}

// NotifyUpdate serves memberlist.EventDelegate.
func (r *Members) NotifyUpdate(n *memberlist.Node) { r.see(n) }

// NotifyLeave serves memberlist.EventDelegate.
func (r *Members) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	delete(r.alive, n.Name)
	delete(r.joining, n.Name)
	if n.State == memberlist.StateLeft {
		r.leaving[n.Name] = true
	}
	r.mu.Unlock()
	r.notify()
}

func (r *Members) notify() {
	for _, changed := range r.changed {
		wake.Up(changed)
	}
}

// see remembers a node that is alive. A description that is not understood, of a later
// version perhaps, is an empty one.
func (r *Members) see(n *memberlist.Node) {
	d, _ := parseDescription(n.Meta)
	at := where(n)
	r.mu.Lock()
	r.alive[n.Name] = at
	r.described[n.Name] = d
	if _, configured := r.members[n.Name]; !configured && r.admission.Open {
		r.observers[n.Name] = at
		r.admission.Add(n.Name, at)
	}
	r.mu.Unlock()
	r.admission.NoteReadable(at.Addr())
	r.notify()
}

func where(n *memberlist.Node) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(net.IP(n.Addr))
	return netip.AddrPortFrom(addr.Unmap(), n.Port)
}
