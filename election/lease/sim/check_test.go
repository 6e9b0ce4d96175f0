package sim

import (
	"fmt"
	"time"
)

// A checker knows, to the instant, who holds each lease and who answers for each
// VIP.
type checker struct {
	holds   []history
	answers []history
}

// A history is who had a thing and when; entries of one node do not overlap.
type history struct {
	entries []entry
	last    []int // each node's last entry, -1: none
}

type entry struct {
	node       int
	start, end instant
}

func newChecker(vips, nodes int) checker {
	c := checker{holds: make([]history, vips), answers: make([]history, vips)}
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

// claim notes that a node was granted a lease until the instant given and returns who
// else holds it, -1 for nobody. Only a release ends it earlier: a node that lost its
// majority, or crashed, may answer up to the end.
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

// answer notes that a kernel answers until the instant given, at most, and returns who
// else does.
func (c *checker) answer(v, node int, now, end instant) (other int) {
	return c.answers[v].put(node, now, end)
}

// silence notes that a kernel answers no more, and whether it did.
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

// at is who has the thing at an instant, -1: nobody.
func (l *history) at(t instant) int {
	for _, e := range l.entries {
		if e.start <= t && t < e.end {
			return e.node
		}
	}
	return -1
}

// next is when somebody has it for the first time at or after an instant, and who.
func (l *history) next(t instant) (instant, int) {
	first, node := never, -1
	for _, e := range l.entries {
		if e.end > t && max(e.start, t) < first {
			first, node = max(e.start, t), e.node
		}
	}
	return first, node
}

// steady tells whether one node has it throughout.
func (l *history) steady(start, end instant) bool {
	for _, e := range l.entries {
		if e.start <= start && e.end >= end {
			return true
		}
	}
	return false
}

// gap is the longest time within which nobody has it.
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

// within are the entries of a time.
func (l *history) within(start, end instant) (entries []entry) {
	for _, e := range l.entries {
		if e.start < end && e.end > start {
			entries = append(entries, e)
		}
	}
	return entries
}

func (e entry) String() string { return fmt.Sprintf("%s from %v to %v", pool[e.node], e.start, e.end) }
