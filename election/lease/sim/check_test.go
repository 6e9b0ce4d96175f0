package sim

import (
	"fmt"
	"time"
)

// checker records the exact holders of each lease and the nodes that answer for each VIP.
type checker struct {
	holds   []history
	answers []history
	records map[[2]uint64]uint64 // digests of electorates, by cluster and number
}

// history records which node had something at which times. Entries of one node do not overlap.
type history struct {
	entries []entry
	last    []int // last entry of each node; -1: none
}

type entry struct {
	node       int
	start, end instant
}

func newChecker(vips, nodes int) checker {
	c := checker{holds: make([]history, vips), answers: make([]history, vips), records: map[[2]uint64]uint64{}}
	for v := range vips {
		c.holds[v], c.answers[v] = newHistory(nodes), newHistory(nodes)
	}
	return c
}

func newHistory(nodes int) history {
	l := history{last: make([]int, nodes)}
	for i := range l.last {
		l.last[i] = -1
	}
	return l
}

// claim records a grant until end and returns another current holder, or -1. Only a release ends it earlier: a node
// that lost its majority, or crashed, may answer until the end.
func (c *checker) claim(v, node int, now, end instant) (other int) {
	if l := &c.holds[v]; l.last[node] >= 0 {
		end = max(end, l.entries[l.last[node]].end)
	}
	if end <= now {
		return -1 // the process was paused for longer: the fence will not open
	}
	return c.holds[v].put(node, now, end)
}

func (c *checker) release(v, node int, now instant) { c.holds[v].end(node, now) }

// answer records that a kernel answers until end at most, and returns another node that does, or -1.
func (c *checker) answer(v, node int, now, end instant) (other int) {
	return c.answers[v].put(node, now, end)
}

// silence records that a kernel stops answering, and reports whether it did answer.
func (c *checker) silence(v, node int, now instant) bool { return c.answers[v].end(node, now) }

func (l *history) put(node int, now, end instant) (other int) {
	other = -1
	for o, i := range l.last {
		if i >= 0 && o != node && l.entries[i].end > now {
			other = o
		}
	}
	if i := l.last[node]; i >= 0 && l.entries[i].end >= now {
		l.entries[i].end = end
		return other
	}
	l.last[node] = len(l.entries)
	l.entries = append(l.entries, entry{node, now, max(end, now)})
	return other
}

func (l *history) end(node int, now instant) bool {
	i := l.last[node]
	if i < 0 || l.entries[i].end <= now {
		return false
	}
	l.entries[i].end = now
	return true
}

// at returns the node at an instant; -1: none.
func (l *history) at(t instant) int {
	for _, e := range l.entries {
		if e.start <= t && t < e.end {
			return e.node
		}
	}
	return -1
}

// next returns the first instant at or after t with a node, and that node.
func (l *history) next(t instant) (instant, int) {
	first, node := never, -1
	for _, e := range l.entries {
		if e.end > t && max(e.start, t) < first {
			first, node = max(e.start, t), e.node
		}
	}
	return first, node
}

// steady reports whether one node covers the whole time.
func (l *history) steady(start, end instant) bool {
	for _, e := range l.entries {
		if e.start <= start && e.end >= end {
			return true
		}
	}
	return false
}

// gap returns the longest time without a node.
func (l *history) gap(start, end instant) time.Duration {
	var longest time.Duration
	for t := start; t < end; {
		next, node := l.next(t)
		longest = max(longest, min(next, end)-t)
		if node < 0 || next >= end {
			break
		}
		t = l.entries[l.last[node]].end
		for _, e := range l.entries {
			if e.node == node && e.start <= next && next < e.end {
				t = e.end
			}
		}
	}
	return longest
}

// within returns the entries that overlap a time.
func (l *history) within(start, end instant) (entries []entry) {
	for _, e := range l.entries {
		if e.start < end && e.end > start {
			entries = append(entries, e)
		}
	}
	return entries
}

func (e entry) String() string { return fmt.Sprintf("%s from %v to %v", pool[e.node], e.start, e.end) }
