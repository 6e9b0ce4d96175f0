package secondchance

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
)

// Number is a member's place in the ring. Zero is not used.
type Number uint16

const (
	numbers = 1 << 14 // size of the ring

	// maxMembers limits the members: a packet without an owning member visits each of them.
	maxMembers = 8
)

// NumberOf returns the number of the member with that name. It depends on the name alone, so that all members agree on it.
//
// The number marks packets on their way, and the mark also takes part in routing the tunnel's own packets. So it leaves out the
// bits of kube-proxy (0xc000) and Cilium (0x0f00).
func NumberOf(name string) Number {
	const bits, low = 10, 8
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	n := Number(1 + h.Sum32()%(1<<bits-1))
	return n>>low<<(low+4) | n&(1<<low-1)
}

// Member is a node that packets are passed on to.
type Member struct {
	Name     string
	Number   Number
	Addr     netip.Addr // at which other members reach it
	TimedOut bool       // it does not answer probes
}

// distance returns how far m is ahead of self in the ring.
func distance(self, m Member) Number { return (m.Number - self.Number) % numbers }

// reachableFrom reports whether self can pass packets on to m. It cannot if both have the same number, or addresses of
// different families.
func (m Member) reachableFrom(self Member) bool {
	return distance(self, m) != 0 && m.Addr.Is4() == self.Addr.Is4()
}

// ring returns the members that self can pass packets on to, in the order of the ring: none if there are too many members.
func ring(self Member, others []Member) []Member {
	if len(others) >= maxMembers {
		return nil
	}
	out := slices.DeleteFunc(slices.Clone(others), func(m Member) bool { return m.TimedOut || !m.reachableFrom(self) })
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(distance(self, a), distance(self, b)) })
	return out
}

func names(members []Member) (out []string) {
	for _, m := range members {
		out = append(out, m.Name)
	}
	return out
}

// arc is a range of the ring: the numbers between two, both included, or all others.
type arc struct {
	from, dst Number
	outside   bool
}

// stops returns an arc of ingress members. Self does not pass their packets on to next, which is the ingress member or lies beyond it.
func stops(self, next Number) arc {
	if self < next {
		return arc{self + 1, next, false}
	}
	return arc{next + 1, self, true}
}
