package lease

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

const (
	// minDuration leaves room for a few round trips and for a loaded machine.
	minDuration = 20 * time.Millisecond
	// maxDuration bounds how long any one message can keep a lease from others.
	maxDuration = time.Minute
	// maxNames is how many bytes the names of all members take on the wire, with
	// their lengths: two electorates must fit one message.
	maxNames = 400
	// maxName is how many bytes a member's name has at most (RFC 1035 section 2.3.4).
	maxName = 253
)

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
	Members  []string      // names, sorted
	Duration time.Duration // of a lease
	Quorum   Quorum
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
	return max(mix(h.Sum64()), 1)
}

// Validate reports what is wrong with the electorate, in one sentence.
func (e Electorate) Validate() error {
	if len(e.Members) == 0 {
		return errors.New("the electorate has no members")
	}
	total := 0
	for i, name := range e.Members {
		switch {
		case name == "" || len(name) > maxName:
			return fmt.Errorf("member name %q: want 1 to %d bytes", name, maxName)
		case i > 0 && name == e.Members[i-1]:
			return fmt.Errorf("member %q occurs twice", name)
		case i > 0 && name < e.Members[i-1]:
			return fmt.Errorf("members are not sorted: %q is after %q", name, e.Members[i-1])
		}
		total += 1 + len(name)
	}
	switch {
	case total > maxNames:
		return fmt.Errorf("the members' names take %d bytes together, each with its length: shorten them to %d", total, maxNames)
	case e.Duration < minDuration || e.Duration > maxDuration:
		return fmt.Errorf("lease duration %v: want %v to %v", e.Duration, minDuration, maxDuration)
	case e.Quorum != Majority && e.Quorum != None:
		return fmt.Errorf("unknown quorum %d", e.Quorum)
	}
	return nil
}

// has reports whether name is a member.
func (e Electorate) has(name string) bool {
	_, found := slices.BinarySearch(e.Members, name)
	return found
}

// majority is how many members are more than half.
func (e Electorate) majority() int { return len(e.Members)/2 + 1 }

// elects reports whether votes grant a lease. The members that are heard matter
// for quorum None only.
func (e Electorate) elects(votes, heard []string) bool {
	count := 0
	for _, name := range e.Members {
		switch {
		case slices.Contains(votes, name):
			count++
		case e.Quorum == None && slices.Contains(heard, name):
			return false
		}
	}
	return count > 0 && (e.Quorum == None || count >= e.majority())
}

// needed is how many votes elects wants.
func (e Electorate) needed(heard []string) int {
	if e.Quorum == Majority {
		return e.majority()
	}
	count := 0
	for _, name := range e.Members {
		if slices.Contains(heard, name) {
			count++
		}
	}
	return count
}

// adjacent reports whether at most one member is in only one of two electorates.
// Then every majority of the one has a member in common with every majority of
// the other.
func (e Electorate) adjacent(o Electorate) bool {
	return len(e.without(o))+len(o.without(e)) <= 1
}

// without lists the members of e that are not in o.
func (e Electorate) without(o Electorate) []string {
	var names []string
	for _, name := range e.Members {
		if !o.has(name) {
			names = append(names, name)
		}
	}
	return names
}

// roll is an electorate with its digest at hand, and never modified.
type roll struct {
	Electorate
	digest uint64
}

func newRoll(e Electorate) *roll {
	e.Members = slices.Clone(e.Members)
	return &roll{Electorate: e, digest: e.Digest()}
}

// sum is the digest of a roll that may be missing.
func (r *roll) sum() uint64 {
	if r == nil {
		return 0
	}
	return r.digest
}

// describe returns the electorate of a roll that may be missing.
func (r *roll) describe() *Electorate {
	if r == nil {
		return nil
	}
	e := r.Electorate
	e.Members = slices.Clone(e.Members)
	return &e
}
