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
	maxNames = 700
	// MaxName is the maximum size of a member in bytes, with its address and identity.
	MaxName = 253
)

// Member returns the name of a voter in an electorate. A node with another address, or with another identity if it has
// one, is a different member.
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
	// Cluster is the digest of the first electorate, so that it differs between independent clusters. With quorum None
	// it is 0.
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

// First returns the electorate that begins a cluster. Members with the same configuration derive the same one, so no
// vote is needed.
func First(e Electorate) Committed {
	r := Committed{Number: 1, Electorate: e}
	if e.Quorum == Majority {
		r.Cluster = e.Digest()
	}
	return r
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
			return fmt.Errorf("member %q: want 1 to %d bytes with its address", name, MaxName)
		case i > 0 && name == e.Members[i-1]:
			return fmt.Errorf("member %q occurs twice", name)
		case i > 0 && name < e.Members[i-1]:
			return fmt.Errorf("members are not sorted: %q is after %q", name, e.Members[i-1])
		}
		total += 1 + len(name)
	}
	switch {
	case total > maxNames:
		return fmt.Errorf("the members' names and addresses take %d bytes together, at most %d fit: shorten the names", total, maxNames)
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
// members always form a majority.
func (e Electorate) Step(target Electorate, gone []string) Electorate {
	leave, join := e.without(target), target.without(e)
	leaves := slices.IndexFunc(leave, func(name string) bool { return slices.Contains(gone, name) })
	grow := len(e.Members) <= len(target.Members)
	target.Members = slices.Clone(e.Members)
	switch {
	case leaves < 0 && len(join) > 0 && (grow || len(leave) == 0):
		target.Members = append(target.Members, join[0])
		slices.Sort(target.Members)
	case len(leave) > 0:
		target.Members = slices.DeleteFunc(target.Members, func(name string) bool { return name == leave[max(leaves, 0)] })
	}
	return target
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
