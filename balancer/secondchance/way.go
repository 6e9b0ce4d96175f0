package secondchance

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
)

// Number is a member's place in the circle. 0 is nobody's.
type Number uint16

const (
	numbers = 1 << 14 // behind them the circle begins anew

	// most is how many members there may be: a packet that nobody owns costs each of them one.
	most = 8
)

// NumberOf is the number of the member of that name. All members come to the same one, whatever else they believe.
//
// It is the mark of packets on their way, by which the kernel also finds the route of what the tunnel sends. So it has no
// bits of which others' rules take notice: kube-proxy's 0xc000, and Cilium's 0x0f00.
func NumberOf(name string) Number {
	const bits, low = 10, 8
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	n := Number(1 + h.Sum32()%(1<<bits-1))
	return n>>low<<(low+4) | n&(1<<low-1)
}

// Member is a node that packets are passed on to.
type Member struct {
	Name   string
	Number Number
	Addr   netip.Addr // where others reach it
	Silent bool       // it does not answer
}

func ahead(self, m Member) Number { return (m.Number - self.Number) % numbers }

// reachableFrom reports whether self may pass packets on to m: one of the same number cannot be told from self, and one of another
// family is not to be reached.
func (m Member) reachableFrom(self Member) bool {
	return ahead(self, m) != 0 && m.Addr.Is4() == self.Addr.Is4()
}

// way are the members that self passes packets on to, one after the other: nobody if there are too many.
func way(self Member, others []Member) []Member {
	if len(others) >= most {
		return nil
	}
	out := slices.DeleteFunc(slices.Clone(others), func(m Member) bool { return m.Silent || !m.reachableFrom(self) })
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(ahead(self, a), ahead(self, b)) })
	return out
}

func names(members []Member) (out []string) {
	for _, m := range members {
		out = append(out, m.Name)
	}
	return out
}

// arc is a part of the circle: the numbers from one to another, or all others.
type arc struct {
	from, to Number
	outside  bool
}

// stops are the origins of packets that self does not pass on to the next one, as they would come to their origin or
// past it.
func stops(self, next Number) arc {
	if self < next {
		return arc{self + 1, next, false}
	}
	return arc{next + 1, self, true}
}
