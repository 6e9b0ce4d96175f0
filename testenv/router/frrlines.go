package router

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// This file has one method for each line of the grammar that matters. Their
// arguments are those that the pattern names, in order.

func (p *parser) routerBGP(args []string) error {
	asn, err := number(args[0], 1, 1<<32-1)
	if err != nil {
		return err
	}
	if p.cfg.ASN != 0 && p.cfg.ASN != uint32(asn) {
		return fmt.Errorf("this router is already AS %d", p.cfg.ASN)
	}
	p.cfg.ASN = uint32(asn)
	return enter(routerBGP)(p, nil)
}

func (p *parser) routerID(args []string) error {
	id, err := netip.ParseAddr(args[0])
	if err != nil || !id.Is4() {
		return fmt.Errorf("%q is no IPv4 address", args[0])
	}
	p.cfg.RouterID = id
	return nil
}

// defaults sets the timers of FRR's profiles.
func (p *parser) defaults(args []string) error {
	switch args[0] {
	case "traditional":
		p.keepalive, p.hold = 60*time.Second, 180*time.Second
	case "datacenter":
		p.keepalive, p.hold = 3*time.Second, 9*time.Second
	default:
		return fmt.Errorf("unknown profile %q, want traditional or datacenter", args[0])
	}
	return nil
}

func (p *parser) multipathRelax([]string) error  { p.cfg.MultipathRelax = true; return nil }
func (p *parser) requirePolicy([]string) error   { p.requiresPolicy = true; return nil }
func (p *parser) requireNoPolicy([]string) error { p.requiresPolicy = false; return nil }
func (p *parser) noDefaultIPv4([]string) error   { p.defaultIPv4 = false; return nil }

func (p *parser) timers(args []string) (err error) {
	p.keepalive, p.hold, err = parseTimers(args[0], args[1])
	return err
}

// parseTimers reads a keepalive interval and a hold time (RFC 4271, section
// 4.2: at least three seconds, or zero for none).
func parseTimers(keepaliveWord, holdWord string) (keepalive, hold time.Duration, err error) {
	k, err := number(keepaliveWord, 0, 65535)
	if err != nil {
		return 0, 0, err
	}
	h, err := number(holdWord, 3, 65535)
	if err != nil {
		return 0, 0, fmt.Errorf("hold time: %w", err)
	}
	// As in FRR, keepalives are sent at least three times in each hold time.
	k = min(k, h/3)
	return time.Duration(k) * time.Second, time.Duration(h) * time.Second, nil
}

func (p *parser) remoteAS(args []string) error {
	n, err := p.neighbor(args[0])
	if err != nil {
		return err
	}
	asn, err := number(args[1], 1, 1<<32-1)
	if err != nil {
		return err
	}
	n.ASN = uint32(asn)
	return nil
}

func (p *parser) password(args []string) error {
	n, err := p.neighbor(args[0])
	if err != nil {
		return err
	}
	// The kernel's limit for TCP MD5.
	if len(args[1]) > 80 {
		return errors.New("the password is longer than 80 bytes")
	}
	n.Password = args[1]
	return nil
}

func (p *parser) neighborTimers(args []string) error {
	n, err := p.neighbor(args[0])
	if err != nil {
		return err
	}
	n.Keepalive, n.Hold, err = parseTimers(args[1], args[2])
	return err
}

func (p *parser) multihop(args []string) error {
	n, err := p.neighbor(args[0])
	if err != nil {
		return err
	}
	n.Multihop = 255
	if len(args) > 1 {
		ttl, err := number(args[1], 1, 255)
		if err != nil {
			return err
		}
		n.Multihop = uint8(ttl)
	}
	return n.oneTTL()
}

func (p *parser) ttlSecurity(args []string) error {
	n, err := p.neighbor(args[0])
	if err != nil {
		return err
	}
	hops, err := number(args[1], 1, 254)
	if err != nil {
		return err
	}
	n.TTLSecurity = uint8(hops)
	return n.oneTTL()
}

func (n *neighborLines) oneTTL() error {
	if n.Multihop > 0 && n.TTLSecurity > 0 {
		return errors.New("ebgp-multihop and ttl-security exclude each other")
	}
	return nil
}

// family returns the lines of the neighbour for the address family of the context.
func (p *parser) family(address string) (*familyLine, error) {
	n, err := p.neighbor(address)
	if err != nil {
		return nil, err
	}
	return &n.families[p.familyIndex()], nil
}

// familyIndex is 0 below `address-family ipv4` and 1 below `address-family ipv6`.
func (p *parser) familyIndex() int {
	if p.blocks[len(p.blocks)-1] == family6 {
		return 1
	}
	return 0
}

func (p *parser) activate(args []string) error   { return p.setActive(args[0], true) }
func (p *parser) deactivate(args []string) error { return p.setActive(args[0], false) }

func (p *parser) setActive(address string, active bool) error {
	f, err := p.family(address)
	if err != nil {
		return err
	}
	f.active = &active
	return nil
}

func (p *parser) prefixListIn(args []string) error {
	f, err := p.family(args[0])
	if err != nil {
		return err
	}
	f.list = listRef{name: args[1], line: p.line}
	return nil
}

func (p *parser) routeMapIn(args []string) error {
	f, err := p.family(args[0])
	if err != nil {
		return err
	}
	f.routes, f.routesLine = args[1], p.line
	return nil
}

func (p *parser) maximumPaths(args []string) error {
	n, err := number(args[0], 1, 256)
	if err != nil {
		return err
	}
	if p.familyIndex() == 0 {
		p.cfg.MaximumPaths4 = int(n)
	} else {
		p.cfg.MaximumPaths6 = int(n)
	}
	return nil
}

func (p *parser) prefixList4(args []string) error { return p.prefixList(0, args) }
func (p *parser) prefixList6(args []string) error { return p.prefixList(1, args) }

// prefixList reads `[seq N] permit|deny PREFIX|any [ge N] [le N]` after the
// list's name.
func (p *parser) prefixList(family int, args []string) error {
	key := listKey(family, args[0])
	list := p.lists[key]
	if list == nil {
		list = &prefixList{}
		p.lists[key] = list
	}
	words := args[1:]
	next := func() (word string) {
		if len(words) > 0 {
			word, words = words[0], words[1:]
		}
		return word
	}
	word := next()
	if word == "description" {
		return nil
	}
	rule := prefixRule{seq: list.nextSeq()}
	if word == "seq" {
		seq, err := number(next(), 1, 1<<32-2)
		if err != nil {
			return fmt.Errorf("seq: %w", err)
		}
		rule.seq, word = seq, next()
	}
	var err error
	if rule.permit, err = permits(word); err != nil {
		return err
	}
	bits := []int{32, 128}[family]
	if word = next(); word == "any" {
		rule.prefix = netip.PrefixFrom([]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}[family], 0)
		rule.least, rule.most = 0, bits
	} else {
		rule.prefix, err = netip.ParsePrefix(word)
		if err != nil || rule.prefix.Addr().BitLen() != bits {
			return fmt.Errorf("%q is no prefix of this address family", word)
		}
		rule.prefix = rule.prefix.Masked()
		rule.least, rule.most = rule.prefix.Bits(), rule.prefix.Bits()
	}
	var ge, le bool
	for len(words) > 0 {
		bound := next()
		n, err := number(next(), uint64(rule.prefix.Bits()), uint64(bits))
		if err != nil {
			return fmt.Errorf("%s: %w", bound, err)
		}
		switch {
		case bound == "ge" && !ge:
			rule.least, ge = int(n), true
		case bound == "le" && !le:
			rule.most, le = int(n), true
		default:
			return fmt.Errorf("unexpected %q, want ge or le, once each", bound)
		}
	}
	if ge && !le {
		rule.most = bits
	}
	if rule.least > rule.most {
		return fmt.Errorf("no prefix is at least %d and at most %d bits long", rule.least, rule.most)
	}
	list.add(rule)
	return nil
}

func permits(word string) (bool, error) {
	switch word {
	case "permit":
		return true, nil
	case "deny":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither permit nor deny", word)
}

func (p *parser) routeMap(args []string) error {
	permit, err := permits(args[1])
	if err != nil {
		return err
	}
	seq, err := number(args[2], 1, 65535)
	if err != nil {
		return err
	}
	m := p.maps[args[0]]
	if m == nil {
		m = &routeMap{}
		p.maps[args[0]] = m
	}
	i := slices.IndexFunc(m.entries, func(e *routeMapEntry) bool { return e.seq == seq })
	if i < 0 {
		p.entry = &routeMapEntry{seq: seq}
		m.add(p.entry)
	} else {
		p.entry = m.entries[i]
	}
	p.entry.permit = permit
	return enter(inRouteMap)(p, nil)
}

func (p *parser) match4(args []string) error { return p.matchList(0, args[0]) }
func (p *parser) match6(args []string) error { return p.matchList(1, args[0]) }

func (p *parser) matchList(family int, name string) error {
	p.entry.matches[family] = listRef{name: name, line: p.line}
	return nil
}
