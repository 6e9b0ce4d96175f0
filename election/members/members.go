// Package members tracks the configured and the present participants of an election, from the configuration and from
// memberlist: voters, and observers, which join with the key.
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
	// MaxObservers is the maximum number of observers.
	MaxObservers = 1024
	// AdvertisementProtocol is the minimum delegate protocol version of members that understand advertisements. Members
	// of earlier releases receive none.
	AdvertisementProtocol = 1
)

// Members holds the configured and the present members. It implements memberlist's delegates, which memberlist calls
// while holding its own lock. So no method calls memberlist or waits for a caller of memberlist.
type Members struct {
	self      string
	admission *transport.Admission
	receive   func([]byte)    // handles an encoded message
	changed   []chan struct{} // each gets a token when a member joins or leaves

	mu        sync.Mutex
	members   map[string]netip.AddrPort // configured, with self
	observers map[string]netip.AddrPort // joined without being configured
	seeds     map[string]netip.AddrPort // an observer's configured addresses for finding members
	alive     map[string]netip.AddrPort // alive by memberlist, with addresses
	described map[string]Description    // last description of each, alive or not
	named     map[string]string         // the member that each said to be in it
	streams   map[string]time.Time      // since when each answers by TCP when asked to join
	capable   map[string]bool           // understands advertisements
	joining   map[string]bool           // joined since the last TakeChanges
	leaving   map[string]bool           // left by themselves since the last TakeChanges
	own       Description               // of this member
}

var (
	_ memberlist.Delegate      = (*Members)(nil)
	_ memberlist.EventDelegate = (*Members)(nil)
	_ memberlist.AliveDelegate = (*Members)(nil)
	_ memberlist.MergeDelegate = (*Members)(nil)
)

// New returns an empty Members. receive handles the members' messages, and each channel gets a token when a member
// joins or leaves.
func New(self string, a *transport.Admission, receive func([]byte), changed ...chan struct{}) *Members {
	return &Members{self: self, admission: a, receive: receive, changed: changed, observers: make(map[string]netip.AddrPort),
		alive: make(map[string]netip.AddrPort), described: make(map[string]Description), named: make(map[string]string), streams: make(map[string]time.Time),
		capable: make(map[string]bool), joining: make(map[string]bool), leaving: make(map[string]bool)}
}

// Configure sets the members, in addition to observers, and admits them. Seeds are only addresses for finding members:
// the found members' own names and addresses count.
func (r *Members) Configure(members, seeds map[string]netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.named, func(name, _ string) bool { return r.members[name].IsValid() && r.members[name] != members[name] })
	r.members, r.seeds = maps.Clone(members), maps.Clone(seeds)
	taken := make(map[netip.AddrPort]bool)
	for _, at := range members {
		taken[at] = true
	}
	if r.admission.Open {
		maps.Copy(r.observers, r.alive) // a former voter stays as an observer
	}
	maps.DeleteFunc(r.observers, func(name string, at netip.AddrPort) bool { return members[name].IsValid() || taken[at] })
	all := make(map[string]netip.AddrPort)
	for _, known := range []map[string]netip.AddrPort{seeds, members, r.observers} {
		maps.Copy(all, known)
	}
	maps.DeleteFunc(r.described, func(name string, _ Description) bool { return !all[name].IsValid() })
	maps.DeleteFunc(r.named, func(name, _ string) bool { return !all[name].IsValid() })
	maps.DeleteFunc(r.streams, func(name string, _ time.Time) bool { return !all[name].IsValid() })
	maps.DeleteFunc(r.capable, func(name string, _ bool) bool { return !all[name].IsValid() })
	r.admission.Replace(all, r.self)
	for name, at := range seeds {
		if !r.admission.Knows(at) {
			r.admission.Add(name, at)
		}
	}
}

// Retain removes observers that are not alive by memberlist, unless known says otherwise. It reports whether there were
// any.
func (r *Members) Retain(known map[string]bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.observers)
	maps.DeleteFunc(r.observers, func(name string, at netip.AddrPort) bool { return !known[name] && r.alive[name] != at })
	return len(r.observers) < before
}

// Observers returns the observers that are alive by memberlist.
func (r *Members) Observers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for name, at := range r.observers {
		if r.alive[name] == at {
			all = append(all, r.named[name])
		}
	}
	slices.Sort(all)
	return all
}

// Describe changes this member's description and reports whether it differs.
func (r *Members) Describe(change func(*Description)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.own.append(nil, memberlist.MetaMaxSize)
	change(&r.own)
	return string(before) != string(r.own.append(nil, memberlist.MetaMaxSize))
}

// Address returns a member's address, or the zero AddrPort.
func (r *Members) Address(member string) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(member)
}

// Member returns the member of the electorate that a node said to be; empty before it has joined at its present address.
func (r *Members) Member(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.named[name]
}

// Locate returns where to find a member of the electorate. That is the address of its node. If the node said to be
// another member, it is the address in the member's name.
func (r *Members) Locate(member string) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := electorate.Name(member)
	if at := r.at(name); at.IsValid() && cmp.Or(r.named[name], member) == member {
		return at
	}
	return electorate.Address(member)
}

// at is Address with the mutex held.
func (r *Members) at(member string) netip.AddrPort {
	return cmp.Or(r.members[member], r.observers[member], r.seeds[member])
}

// Alone reports whether memberlist considers no other member alive.
func (r *Members) Alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.alive) == 0 || len(r.alive) == 1 && r.alive[r.self].IsValid()
}

// Campaigns returns the number of this member's candidacies.
func (r *Members) Campaigns() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own.Campaigns
}

// Joined reports whether memberlist considers a member of the electorate alive, at its expected address.
func (r *Members) Joined(member string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := electorate.Name(member)
	at := r.at(name)
	return at.IsValid() && r.alive[name] == at && r.named[name] == member
}

// NoteAnswer records whether a member answers by TCP when asked to join.
func (r *Members) NoteAnswer(now time.Time, member string, does bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !does {
		delete(r.streams, member)
	} else if r.streams[member].IsZero() {
		r.streams[member] = now
	}
}

// Last returns a member's last description, and since when it answers by TCP when asked to join; zero if it does not
// answer or is not asked.
func (r *Members) Last(member string) (said Description, answers time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.described[member], r.streams[member]
}

// Hardware returns the hardware addresses of each member by its last description. A timed-out member is included, as it
// may still hold a VIP.
func (r *Members) Hardware() map[string][]net.HardwareAddr {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string][]net.HardwareAddr)
	for name, d := range r.described {
		all[name] = d.Hardware
	}
	return all
}

// Standings returns what other nodes say of themselves by their last descriptions, by name. A timed-out node is
// included: memberlist loses nodes that answer by TCP only.
func (r *Members) Standings() map[string]electorate.Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]electorate.Standing)
	for name, d := range r.described {
		if name != r.self {
			all[name] = d.Standing
		}
	}
	return all
}

// NodeMeta implements memberlist.Delegate.
func (r *Members) NodeMeta(limit int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own.append(nil, limit)
}

// NotifyMsg receives a message. It implements memberlist.Delegate.
func (r *Members) NotifyMsg(b []byte) { r.receive(b) }

// GetBroadcasts implements memberlist.Delegate: members gossip no messages of their own.
func (r *Members) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate: there is no state besides the nodes.
func (r *Members) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (r *Members) MergeRemoteState([]byte, bool) {}

// NotifyAlive rejects nodes that are not members or not at their address. It implements memberlist.AliveDelegate, which
// is called for every node from every source.
func (r *Members) NotifyAlive(n *memberlist.Node) error {
	at := where(n)
	if _, err := r.check(n.Name, at); err != nil {
		r.admission.CountRefused(n.Name, at, err)
		return err
	}
	if n.DMax >= AdvertisementProtocol { // a release that replaces another at once does not join anew
		r.mu.Lock()
		r.capable[n.Name] = true
		r.mu.Unlock()
	}
	return nil
}

// NotifyMerge rejects the list of another cluster: no node in it is known here, and one could not even be an observer.
// An observer accepts any list with a possible member, because its configuration only says where to look. NotifyAlive
// rejects single nodes; rejecting whole lists for them would separate members during a change. It implements
// memberlist.MergeDelegate.
func (r *Members) NotifyMerge(nodes []*memberlist.Node) error {
	wrong := 0
	for _, n := range nodes {
		switch known, err := r.check(n.Name, where(n)); {
		case err != nil:
			wrong++
		case known:
			return nil
		}
	}
	if wrong == 0 {
		return nil
	}
	return fmt.Errorf("no node of %d is a member at its configured address", len(nodes))
}

// check returns an error if a node is not acceptable. With the key, an unconfigured node is an observer. known reports
// that the node is configured, or may be a member that an observer does not know.
func (r *Members) check(name string, at netip.AddrPort) (known bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, configured := r.members[name]
	switch {
	case configured && want != at:
		return false, fmt.Errorf("%q is at %v in the configuration, not at %v", name, want, at)
	case configured:
		return true, nil
	case !r.admission.Open:
		return false, fmt.Errorf("%q is not among the configured members", name)
	case name == "" || !at.IsValid() || at.Port() == 0 || at.Addr().Is4() != r.members[r.self].Addr().Is4():
		return false, fmt.Errorf("%q is not configured and has the invalid address %v", name, at)
	case r.observers[name] == at:
		return r.seeds != nil, nil
	case len(r.observers) >= MaxObservers:
		return false, fmt.Errorf("%q exceeds the limit of %d members without a vote", name, MaxObservers)
	}
	for other, taken := range r.members {
		if taken == at {
			return false, fmt.Errorf("%q is not among the configured members, and has the address %v of %q", name, at, other)
		}
	}
	return r.seeds != nil, nil
}

// NotifyJoin implements memberlist.EventDelegate.
func (r *Members) NotifyJoin(n *memberlist.Node) {
	r.mu.Lock()
	r.capable[n.Name] = n.DMax >= AdvertisementProtocol
	r.joining[n.Name] = true
	delete(r.leaving, n.Name)
	r.mu.Unlock()
	r.see(n)
}

// NotifyUpdate implements memberlist.EventDelegate.
func (r *Members) NotifyUpdate(n *memberlist.Node) { r.see(n) }

// NotifyLeave implements memberlist.EventDelegate.
func (r *Members) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	delete(r.alive, n.Name)
	delete(r.joining, n.Name)
	if n.State == memberlist.StateLeft {
		r.leaving[n.Name] = true
		r.described[n.Name] = Description{Hardware: r.described[n.Name].Hardware, Identity: r.described[n.Name].Identity}
	}
	r.mu.Unlock()
	r.notify()
}

func (r *Members) notify() {
	for _, changed := range r.changed {
		wake.Up(changed)
	}
}

// see records a live node. An unreadable description, perhaps of a later version, counts as empty.
func (r *Members) see(n *memberlist.Node) {
	d, _ := parseDescription(n.Meta)
	at := where(n)
	r.mu.Lock()
	r.alive[n.Name] = at
	r.described[n.Name] = d
	r.named[n.Name] = electorate.Member(n.Name, cmp.Or(d.Origin, at), d.Identity)
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
