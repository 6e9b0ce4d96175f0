// Package electorate describes the voters and their rules, on which all members must agree.
package electorate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/wire"
)

const (
	// minDuration leaves room for a few round trips and for a loaded machine.
	minDuration = 20 * time.Millisecond
	// MaxDuration limits how long a single message can keep a lease from others.
	MaxDuration = time.Minute
	// maxNames is the maximum size of all members on the wire in bytes, with their lengths: an electorate must fit one
	// message.
	maxNames = 781
	// MaxName is the maximum size of a member in bytes, with its address and identity.
	MaxName = 253
)

// Member returns the name of a voter in an electorate. It is made once and belongs to a disk: its address is where the
// member was when it got the name, and the first place to look for it.
func Member(name string, at netip.AddrPort, identity string) string {
	if identity != "" {
		identity = "#" + identity
	}
	return name + "@" + at.String() + identity
}

// Name returns the name of a member's node.
func Name(member string) string {
	if at := strings.LastIndexByte(member, '@'); at >= 0 {
		return member[:at]
	}
	return member
}

// Address returns the address of a member.
func Address(member string) netip.AddrPort {
	at, _, _ := strings.Cut(member[strings.LastIndexByte(member, '@')+1:], "#")
	parsed, _ := netip.ParseAddrPort(at)
	return parsed
}

// Identity returns the identity of a member; empty if it has none.
func Identity(member string) string {
	_, identity, _ := strings.Cut(member[strings.LastIndexByte(member, '@')+1:], "#")
	return identity
}

// Names returns the names of members' nodes.
func Names(members []string) []string {
	var names []string
	for _, member := range members {
		names = append(names, Name(member))
	}
	return names
}

// Quorum is the number of votes that grant a lease.
type Quorum int

const (
	// Majority requires the votes of more than half of the electorate: at most one member holds a lease, even if
	// members fail.
	Majority Quorum = iota
	// None requires the votes of the reachable members, so that a site of two survives the loss of either. Each side of
	// a partition has a holder. A member without a vote gets no lease.
	None
)

// String returns the rule's name in the configuration.
func (q Quorum) String() string {
	if q == None {
		return "none"
	}
	return "majority"
}

// Electorate is the set of voters and their rules. All members must agree on it.
type Electorate struct {
	Members  []string      // sorted, each in the form of [Member]
	Duration time.Duration // of a lease
	Quorum   Quorum
}

// Committed is an electorate that its members have chosen. Numbers increase by one and are unique within a cluster; the
// greatest one is in force.
type Committed struct {
	// Cluster differs between clusters that began independently, even with the same electorate. With quorum None it is 0.
	Cluster uint64
	Number  uint64 // 1 is the first
	Electorate
}

// UnmarshalJSON reads a stored electorate: there, the quorum is a number, not a name as in [Settings].
func (e *Electorate) UnmarshalJSON(b []byte) error {
	var stored struct {
		Members  []string
		Duration time.Duration
		Quorum   int
	}
	if err := json.Unmarshal(b, &stored); err != nil {
		return err
	}
	*e = Electorate{stored.Members, stored.Duration, Quorum(stored.Quorum)}
	return nil
}

// UnmarshalJSON reads a stored electorate with its cluster and number.
func (r *Committed) UnmarshalJSON(b []byte) error {
	var stored struct{ Cluster, Number uint64 }
	if err := json.Unmarshal(b, &stored); err != nil {
		return err
	}
	r.Cluster, r.Number = stored.Cluster, stored.Number
	return r.Electorate.UnmarshalJSON(b)
}

// First returns the electorate that begins a cluster. Members with the same configuration and seed derive the same one,
// so no vote is needed.
func First(e Electorate, seed uint64) Committed {
	r := Committed{Number: 1, Electorate: e}
	if e.Quorum == Majority {
		r.Cluster = max(wire.Mix(e.Digest()+wire.Mix(seed)), 1)
	}
	return r
}

// Standing tells by TCP how a member stands, for members that its messages do not reach.
type Standing struct {
	Clustered  bool // it has a committed electorate, and hears its voters if they are all on one node
	Bootstraps bool // it has none, and begins a cluster unless it finds one
}

// Leads reports whether e may follow r: their majorities intersect.
func (r Committed) Leads(e Electorate) bool { return e.Validate() == nil && r.adjacent(e) }

// Next returns the committed electorate that replaces r after its members have chosen e. Without a quorum, others may
// have chosen differently: an electorate that gains a quorum begins a cluster of its own.
func (r Committed) Next(e Electorate) Committed {
	next := Committed{Cluster: r.Cluster, Number: r.Number + 1, Electorate: e}
	if r.Quorum == None && e.Quorum == Majority {
		next.Cluster = wire.Mix(e.Digest() + next.Number) // others may have reached e by another number
	}
	return next
}

// Replaces reports whether r supersedes o. Without a quorum, several may share a number, and any with a quorum precedes
// them.
func (r Committed) Replaces(o Committed) bool {
	switch {
	case o.Number == 0:
		return true
	case o.Quorum == Majority:
		return r.Cluster == o.Cluster && r.Number > o.Number
	case r.Quorum == Majority:
		return r.Cluster != o.Cluster || r.Number > o.Number
	}
	return r.Number > o.Number || r.Number == o.Number && r.Digest() > o.Digest()
}

// Digest identifies the electorate, equally on every member. It is never 0.
func (e Electorate) Digest() uint64 {
	h := fnv.New64a()
	var b [9]byte
	binary.BigEndian.PutUint64(b[:], uint64(e.Duration))
	b[8] = byte(e.Quorum)
	h.Write(b[:])
	for _, name := range e.Members {
		h.Write([]byte{byte(len(name))})
		h.Write([]byte(name))
	}
	return max(wire.Mix(h.Sum64()), 1)
}

// Validate describes the first mistake in the electorate.
func (e Electorate) Validate() error {
	if len(e.Members) == 0 {
		return errors.New("the electorate has no members")
	}
	total := 0
	for i, name := range e.Members {
		switch {
		case name == "" || len(name) > MaxName:
			return fmt.Errorf("member %q: want 1 to %d bytes with its address and identity", name, MaxName)
		case i > 0 && name == e.Members[i-1]:
			return fmt.Errorf("member %q occurs twice", name)
		case i > 0 && name < e.Members[i-1]:
			return fmt.Errorf("members are not sorted: %q is after %q", name, e.Members[i-1])
		}
		total += 1 + len(name)
	}
	switch {
	case total > maxNames:
		return fmt.Errorf("the members' names, addresses and identities take %d bytes together, at most %d fit: shorten the names", total, maxNames)
	case e.Duration < minDuration || e.Duration > MaxDuration:
		return fmt.Errorf("lease duration %v: want %v to %v", e.Duration, minDuration, MaxDuration)
	case e.Quorum != Majority && e.Quorum != None:
		return fmt.Errorf("unknown quorum %d", e.Quorum)
	}
	return nil
}

// Has reports whether name is a member.
func (e Electorate) Has(name string) bool {
	_, found := slices.BinarySearch(e.Members, name)
	return found
}

// OnNode reports whether all members belong to one node.
func (e Electorate) OnNode(name string) bool {
	return !slices.ContainsFunc(e.Members, func(member string) bool { return Name(member) != name })
}

// Majority returns the smallest number of members that is more than half.
func (e Electorate) Majority() int { return len(e.Members)/2 + 1 }

// Elects reports whether votes grant a lease. reachable matters for quorum None only.
func (e Electorate) Elects(votes, reachable []string) bool {
	count := 0
	for _, name := range e.Members {
		switch {
		case slices.Contains(votes, name):
			count++
		case e.Quorum == None && slices.Contains(reachable, name):
			return false
		}
	}
	return count > 0 && (e.Quorum == None || count >= e.Majority())
}

// Needed returns the number of votes that Elects requires.
func (e Electorate) Needed(reachable []string) int {
	if e.Quorum == Majority {
		return e.Majority()
	}
	count := 0
	for _, name := range e.Members {
		if slices.Contains(reachable, name) {
			count++
		}
	}
	return count
}

// adjacent reports whether at most one member is in only one of two electorates. Then every majority of one shares a
// member with every majority of the other.
func (e Electorate) adjacent(o Electorate) bool {
	return len(e.without(o))+len(o.without(e)) <= 1
}

// String lists the members, the duration and the quorum.
func (e Electorate) String() string {
	return fmt.Sprintf("[%s; %v, %v]", strings.Join(e.Members, " "), e.Duration, e.Quorum)
}

// Step returns the electorate on the way to target that differs by at most one member. Members that have gone leave
// first, as their votes may be missing for a majority. Otherwise one joins before another leaves, so that the present
// members always form a majority. If that does not fit a message, one leaves first. So between valid electorates, each
// step is valid and brings the target closer by one member.
func (e Electorate) Step(target Electorate, gone []string) Electorate {
	leave, join := e.without(target), target.without(e)
	leaves := slices.IndexFunc(leave, func(name string) bool { return slices.Contains(gone, name) })
	grow := leaves < 0 && len(join) > 0 && len(e.Members) <= len(target.Members)
	grown, shrunk := target, target
	grown.Members = slices.Sorted(slices.Values(slices.Concat(e.Members, join[:min(1, len(join))])))
	shrunk.Members = slices.DeleteFunc(slices.Clone(e.Members), func(name string) bool { return len(leave) > 0 && name == leave[max(leaves, 0)] })
	if len(leave) == 0 || len(shrunk.Members) == 0 || grow && grown.Validate() == nil {
		return grown
	}
	return shrunk
}

func (e Electorate) without(o Electorate) []string {
	var names []string
	for _, name := range e.Members {
		if !o.Has(name) {
			names = append(names, name)
		}
	}
	return names
}

// Settings configure how members find each other, advertise their health, and agree on the holder of each VIP with `announce: arp`. A holder needs a lease that a majority grants.
type Settings struct {
	// Bind is the address and port of this node's gossip and votes, UDP and TCP. Default: the node's own of `members`; for a node that is not listed, the address from which it reaches the members, with their port.
	Bind netip.AddrPort `yaml:"bind"`
	// Members are all nodes that vote, by nodeName, each with its address and port; the same on every node. An unlisted node with a `services` section, `balancers` or a `bind` takes part without a vote. The members agree on a changed list once all members it names have it. Required unless `join` or `bootstrap` is given.
	Members map[string]netip.AddrPort `yaml:"members"`
	// Join lists where this node looks for members, each an address and port, in place of `members`: the voters then come and go by themselves. A node with VIPs by `announce: arp` gets a vote once it campaigns for one, as its checks pass, if that makes an odd number of voters, up to seven.
	Join []netip.AddrPort `yaml:"join"`
	// Bootstrap makes this node begin the cluster that others join, if it has never been in one and finds none at `join`: on one node only. Default: false.
	Bootstrap bool `yaml:"bootstrap"`
	// Forget is how long a voter may be silent before it loses its vote, 1m to 720h, or a minute if another member can replace it. It keeps the vote while an even number would remain. `herald member remove` does not wait. With `join` or `bootstrap` only. Default: 4h.
	Forget *time.Duration `yaml:"forget" want:"1m to 720h"`
	// KeyFile holds the key that encrypts the members' messages, as `herald keygen` writes it: base64 of 16, 24 or 32 bytes. Of several lines the first encrypts and all decrypt: a new key becomes the second line on all nodes, then the first, then the only one. It is read again when it changes. Required unless `insecure: true`.
	KeyFile string `yaml:"keyFile"`
	// Keys are the content of KeyFile, never part of the file itself. No two are the same.
	Keys [][]byte `yaml:"-"`
	// Insecure sends all messages in the clear and believes every sender: anybody on the network can take the VIP. Default: false.
	Insecure bool `yaml:"insecure"`
	// Lease is how long a holder that falls silent keeps its VIP, 150ms to 10s, the same on every node. It is renewed at a third of it; below 500ms with `realtime: true`. Default: 600ms.
	Lease time.Duration `yaml:"lease" default:"600ms" want:"150ms to 10s"`
	// Quorum selects the votes that a holder needs: `majority`, more than half of all members, or `none`, all members it can reach. With `none`, two nodes that cannot reach each other both hold the VIP. It is for sites of two that prefer that to no holder. Default: majority.
	Quorum Quorum `yaml:"quorum"`
}

// Widest returns the listed members, or this one if the electorate is open, each with an identity: they may have one. No
// electorate of the same names and addresses is larger.
func (s *Settings) Widest(self string, home netip.AddrPort) Electorate {
	e := Electorate{Duration: s.Lease, Quorum: s.Quorum}
	for name, at := range s.Members {
		e.Members = append(e.Members, Member(name, at, "00000000"))
	}
	if len(s.Members) == 0 && s.Open() {
		e.Members = append(e.Members, Member(self, home, "00000000"))
	}
	slices.Sort(e.Members)
	return e
}

// Open reports whether members come and go by themselves, in place of a list.
func (s *Settings) Open() bool { return len(s.Join) > 0 || s.Bootstrap }

// UnmarshalJSON reads the name of a quorum, as the file has it and [Quorum.String] writes it. The state on disk holds a
// number instead: [Electorate] and [Committed] read it.
func (q *Quorum) UnmarshalJSON(b []byte) error {
	var name string
	if err := json.Unmarshal(b, &name); err != nil || name != Majority.String() && name != None.String() {
		return errors.New("want majority or none")
	}
	*q = Majority
	if name == None.String() {
		*q = None
	}
	return nil
}

// most is the maximum number of voters of an open electorate. Other members stand by.
const most = 7

// Choose returns an open electorate with other members: the voters that do not leave, and the first candidates of join
// that make an odd number. An even voter would raise the majority and add no tolerance. A voter leaves once that makes
// an odd number.
func (e Electorate) Choose(leave, join []string) Electorate {
	fits := func(members []string) bool {
		e.Members = slices.Sorted(slices.Values(members))
		return len(members) <= most && e.Validate() == nil
	}
	stay := slices.DeleteFunc(slices.Clone(e.Members), func(name string) bool { return slices.Contains(leave, name) })
	voters := stay
	for _, name := range join {
		if more := append(slices.Clip(voters), name); fits(more) {
			voters = more
		}
	}
	switch {
	case len(voters)%2 == 1:
	case len(voters) > len(stay):
		voters = voters[:len(voters)-1]
	case len(leave) > 0:
		voters = append(voters, leave[0])
	}
	e.Members = slices.Sorted(slices.Values(voters))
	return e
}
