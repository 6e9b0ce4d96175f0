package router

import (
	"cmp"
	"net/netip"
	"slices"
)

// Policy decides which routes of one address family are accepted from a
// neighbour: those that pass both its inbound prefix-list and its inbound
// route-map.
type Policy struct {
	denyAll bool // an external neighbour without a policy (RFC 8212)
	list    *prefixList
	routes  *routeMap
}

// Accepts reports whether a route to prefix is accepted.
func (p *Policy) Accepts(prefix netip.Prefix) bool {
	switch {
	case p.denyAll:
		return false
	case p.list != nil && !p.list.permits(prefix):
		return false
	case p.routes != nil && !p.routes.permits(prefix):
		return false
	}
	return true
}

// AcceptsNothing reports whether the policy refuses all routes because the
// configuration has none (RFC 8212), which is more often forgotten than meant.
func (p *Policy) AcceptsNothing() bool { return p.denyAll }

// prefixList is an FRR prefix-list: the first rule that matches decides, and
// what no rule matches is denied.
type prefixList struct {
	rules []prefixRule // by seq
}

// prefixRule matches the prefixes within prefix that are least to most bits long.
type prefixRule struct {
	seq         uint64
	permit      bool
	prefix      netip.Prefix
	least, most int
}

// add inserts a rule, in place of the one with the same number if there is one.
func (l *prefixList) add(rule prefixRule) {
	i, found := slices.BinarySearchFunc(l.rules, rule, func(a, b prefixRule) int { return cmp.Compare(a.seq, b.seq) })
	if found {
		l.rules[i] = rule
		return
	}
	l.rules = slices.Insert(l.rules, i, rule)
}

// nextSeq is the number that FRR gives a rule without one.
func (l *prefixList) nextSeq() uint64 {
	if len(l.rules) == 0 {
		return 5
	}
	return (l.rules[len(l.rules)-1].seq/5 + 1) * 5
}

func (l *prefixList) permits(prefix netip.Prefix) bool {
	for _, r := range l.rules {
		if r.prefix.Bits() <= prefix.Bits() && r.prefix.Contains(prefix.Addr()) &&
			r.least <= prefix.Bits() && prefix.Bits() <= r.most {
			return r.permit
		}
	}
	return false
}

// listKey names a prefix-list: both families have names of their own.
func listKey(family int, name string) string {
	return []string{"ip ", "ipv6 "}[family] + name
}

// routeMap is an FRR route-map that only matches prefix-lists: the first entry
// that matches decides, and what no entry matches is denied.
type routeMap struct {
	entries []*routeMapEntry // by seq
}

// routeMapEntry matches a prefix if the lists for all families it names do; an
// entry that names none matches all.
type routeMapEntry struct {
	seq     uint64
	permit  bool
	matches [2]listRef // IPv4, IPv6
}

// listRef is a reference to a prefix-list, resolved once all lines are read.
type listRef struct {
	name string
	line int
	list *prefixList
}

func (m *routeMap) add(e *routeMapEntry) {
	i, _ := slices.BinarySearchFunc(m.entries, e, func(a, b *routeMapEntry) int { return cmp.Compare(a.seq, b.seq) })
	m.entries = slices.Insert(m.entries, i, e)
}

func (m *routeMap) permits(prefix netip.Prefix) bool {
	for _, e := range m.entries {
		if e.match(prefix) {
			return e.permit
		}
	}
	return false
}

func (e *routeMapEntry) match(prefix netip.Prefix) bool {
	for family, ref := range e.matches {
		if ref.list == nil {
			continue
		}
		if (family == 1) != prefix.Addr().Is6() || !ref.list.permits(prefix) {
			return false
		}
	}
	return true
}
