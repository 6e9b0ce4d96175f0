// Package electorate describes who votes, and by which rules: a record on which all
// members must agree.
package electorate

import (
	"encoding/binary"
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
	// MaxDuration bounds how long any one message can keep a lease from others.
	MaxDuration = time.Minute
	// maxNames is how many bytes all members take on the wire, with their lengths: an electorate must fit one message.
	maxNames = 700
	// MaxName is how many bytes a member takes at most, with its address and identity.
	MaxName = 253
)

// Member is how an electorate names who votes: a node of the same name at another address is another member, and so is
// one with another identity, if it has any.
func Member(name string, at netip.AddrPort, identity string) string {
	if identity != "" {
		identity = "#" + identity
	}
	return name + "@" + at.String() + identity
}

// Name is that of a member's node.
func Name(member string) string {
	if at := strings.LastIndexByte(member, '@'); at >= 0 {
		return member[:at]
	}
	return member
}

// Address is where a member is.
func Address(member string) netip.AddrPort {
	at, _, _ := strings.Cut(member[strings.LastIndexByte(member, '@')+1:], "#")
	parsed, _ := netip.ParseAddrPort(at)
	return parsed
}

// Names are those of members' nodes.
func Names(members []string) []string {
	var names []string
	for _, member := range members {
		names = append(names, Name(member))
	}
	return names
}

// Quorum is how many votes grant a lease.
type Quorum int

const (
	// Majority needs the votes of more than half of the electorate: at most one
	// member holds a lease, whatever fails.
	Majority Quorum = iota
	// None needs the votes of the members that are heard, so that a site of two
	// goes on after either is gone. A partition has a holder on either side. Who has
	// no vote gets none.
	None
)

// String names the rule as the configuration does.
func (q Quorum) String() string {
	if q == None {
		return "none"
	}
	return "majority"
}

// Electorate is who votes, and by which rules. All members must agree on it.
type Electorate struct {
	Members  []string      // sorted, each as [Member] has it
	Duration time.Duration // of a lease
	Quorum   Quorum
}

// Committed is an electorate that its members have agreed on. Numbers grow by one: of two records of a
// cluster the one with the greater number is in force, and no two have the same one.
type Committed struct {
	// Cluster is the digest of its first electorate, so it differs between clusters that were begun apart. With
	// quorum None, whose members go on alone, it is 0.
	Cluster uint64
	Number  uint64 // 1 is the first
	Electorate
}

// First is the record that a cluster begins with. Members that were given the same electorate make the
// same record of it, so that they need not agree on it.
func First(e Electorate) Committed {
	r := Committed{Number: 1, Electorate: e}
	if e.Quorum == Majority {
		r.Cluster = e.Digest()
	}
	return r
}

// Leads reports whether the record may be followed by one of e: their majorities meet.
func (r Committed) Leads(e Electorate) bool { return e.Validate() == nil && r.Adjacent(e) }

// Next is the record that replaces r when its members have chosen e. Without a quorum others may have chosen
// otherwise: what comes to have one is a cluster of its own.
func (r Committed) Next(e Electorate) Committed {
	next := Committed{Cluster: r.Cluster, Number: r.Number + 1, Electorate: e}
	if r.Quorum == None && e.Quorum == Majority {
		next.Cluster = wire.Mix(e.Digest() + next.Number) // others may have come here by another number
	}
	return next
}

// Replaces reports whether who has the record o is to take r instead. Without a quorum there may be several by one
// number, and any with a quorum comes before them.
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

// Digest identifies the electorate: equal ones have equal digests on every
// member. It is never 0.
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

// Validate reports what is wrong with the electorate, in one sentence.
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
		return fmt.Errorf("the members' names and addresses take %d bytes together: shorten the names, such that they take %d", total, maxNames)
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

// OnNode reports whether all members are, or were, on one node.
func (e Electorate) OnNode(name string) bool {
	return !slices.ContainsFunc(e.Members, func(member string) bool { return Name(member) != name })
}

// Majority is how many members are more than half.
func (e Electorate) Majority() int { return len(e.Members)/2 + 1 }

// Elects reports whether votes grant a lease. The members that are heard matter
// for quorum None only.
func (e Electorate) Elects(votes, heard []string) bool {
	count := 0
	for _, name := range e.Members {
		switch {
		case slices.Contains(votes, name):
			count++
		case e.Quorum == None && slices.Contains(heard, name):
			return false
		}
	}
	return count > 0 && (e.Quorum == None || count >= e.Majority())
}

// Needed is how many votes Elects wants.
func (e Electorate) Needed(heard []string) int {
	if e.Quorum == Majority {
		return e.Majority()
	}
	count := 0
	for _, name := range e.Members {
		if slices.Contains(heard, name) {
			count++
		}
	}
	return count
}

// Adjacent reports whether at most one member is in only one of two electorates.
// Then every majority of the one has a member in common with every majority of
// the other.
func (e Electorate) Adjacent(o Electorate) bool {
	return len(e.without(o))+len(o.without(e)) <= 1
}

// String lists the members, the duration and the quorum.
func (e Electorate) String() string {
	return fmt.Sprintf("[%s; %v, %v]", strings.Join(e.Members, " "), e.Duration, e.Quorum)
}

// Step is the electorate on the way to another that is at most one member away. Who is gone leaves first, as it
// may be needed for a majority; then one comes before another leaves, so that those who are there always have one.
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
