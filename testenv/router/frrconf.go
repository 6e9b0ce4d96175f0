package router

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is what the router takes from an frr.conf.
type Config struct {
	// ASN is the router's own autonomous system number.
	ASN uint32
	// RouterID is its BGP identifier, an IPv4 address.
	RouterID netip.Addr
	// MultipathRelax lets paths share the load whose AS paths are equal only in length.
	MultipathRelax bool
	// MaximumPaths4 and MaximumPaths6 bound the next hops of one prefix; 0 is no bound.
	MaximumPaths4, MaximumPaths6 int
	// Neighbors are the BGP neighbours, in the order of the file.
	Neighbors []*Neighbor
}

// Neighbor is one BGP neighbour.
type Neighbor struct {
	// Address is the neighbour's address; a link-local one has its interface as zone.
	Address netip.Addr
	// ASN is the neighbour's autonomous system number.
	ASN uint32
	// Password is the TCP MD5 password (RFC 2385); empty is none.
	Password string
	// Keepalive and Hold are the BGP timers offered.
	Keepalive, Hold time.Duration
	// Multihop is the TTL for a neighbour that is not on a shared link; 0 is directly connected.
	Multihop uint8
	// TTLSecurity is how many hops away the neighbour may be under GTSM (RFC 5082); 0 is off.
	TTLSecurity uint8
	// IPv4 and IPv6 are the policies on routes from the neighbour; nil if the family is not active.
	IPv4, IPv6 *Policy
}

// ParseConfig reads the subset of FRR's frr.conf that a router needs which
// learns host routes from BGP speakers and passes nothing on. It applies FRR's
// defaults, RFC 8212 among them: without an import policy nothing is accepted
// from an external neighbour, unless `no bgp ebgp-requires-policy` is set.
// A line that would change what the router does but is not supported is an
// error; name is the file's, for errors.
func ParseConfig(name string, r io.Reader) (*Config, error) {
	p := &parser{
		cfg:            &Config{},
		lists:          make(map[string]*prefixList),
		maps:           make(map[string]*routeMap),
		keepalive:      60 * time.Second,
		hold:           180 * time.Second,
		defaultIPv4:    true,
		requiresPolicy: true,
	}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		p.line = n
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "!") || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := p.run(words); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, p.line+1, err)
	}
	p.line = 0
	if err := p.finish(); err != nil {
		if p.line > 0 {
			name = fmt.Sprintf("%s:%d", name, p.line)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p.cfg, nil
}

// parser is the state between two lines.
type parser struct {
	cfg    *Config
	line   int
	blocks []block // that are open, innermost last

	lists map[string]*prefixList // by family and name: "ip NAME"
	maps  map[string]*routeMap
	entry *routeMapEntry // of the route-map block

	keepalive, hold time.Duration // of neighbours without timers of their own
	defaultIPv4     bool
	requiresPolicy  bool
	neighbors       []*neighborLines
}

// neighborLines is a neighbour while its lines are being read.
type neighborLines struct {
	Neighbor
	line     int           // where it was first named
	families [2]familyLine // IPv4, IPv6
}

// familyLine is what the file says of one address family of a neighbour.
type familyLine struct {
	active     *bool
	list       listRef // the inbound prefix-list
	routes     string  // name of the inbound route-map
	routesLine int     // where routes was named
}

// block is where in the file a line stands.
type block string

const (
	top        block = ""
	routerBGP  block = "router bgp"
	family4    block = "address-family ipv4"
	family6    block = "address-family ipv6"
	inRouteMap block = "route-map"
	inBFD      block = "bfd"
	inBFDPeer  block = "bfd peer"
)

// command is one line of the grammar. In its pattern, words in capitals stand
// for one argument each and a final "..." for anything.
type command struct {
	pattern string
	run     func(p *parser, args []string) error // nil: the line does not matter here
}

// grammar lists the lines known in a block. What does not matter: what FRR
// tells of itself and logs, how it would send routes, what it would do on BFD,
// and that it should wait for connections, which this router always does.
func grammar(b block) []command {
	switch b {
	case top:
		return []command{
			{"router bgp ASN", (*parser).routerBGP},
			{"ip prefix-list NAME ...", (*parser).prefixList4},
			{"ipv6 prefix-list NAME ...", (*parser).prefixList6},
			{"route-map NAME ACTION SEQ", (*parser).routeMap},
			{"frr defaults PROFILE", (*parser).defaults},
			{"bfd", enter(inBFD)},
			{"frr version ...", nil},
			{"hostname NAME", nil},
			{"log ...", nil},
			{"debug ...", nil},
			{"service ...", nil},
			{"line vty", nil},
			{"password ...", nil},
			{"enable password ...", nil},
			{"ip forwarding", nil},
			{"ipv6 forwarding", nil},
			{"ip nht resolve-via-default", nil},
			{"ipv6 nht resolve-via-default", nil},
			{"exit", nil},
			{"end", nil},
		}
	case routerBGP:
		return []command{
			{"bgp router-id ADDRESS", (*parser).routerID},
			{"bgp bestpath as-path multipath-relax", (*parser).multipathRelax},
			{"bgp ebgp-requires-policy", (*parser).requirePolicy},
			{"no bgp ebgp-requires-policy", (*parser).requireNoPolicy},
			{"no bgp default ipv4-unicast", (*parser).noDefaultIPv4},
			{"timers bgp KEEPALIVE HOLD", (*parser).timers},
			{"neighbor ADDRESS remote-as ASN", (*parser).remoteAS},
			{"neighbor ADDRESS password WORD", (*parser).password},
			{"neighbor ADDRESS timers connect SECONDS", nil},
			{"neighbor ADDRESS timers delayopen SECONDS", nil},
			{"neighbor ADDRESS timers KEEPALIVE HOLD", (*parser).neighborTimers},
			{"neighbor ADDRESS ebgp-multihop", (*parser).multihop},
			{"neighbor ADDRESS ebgp-multihop TTL", (*parser).multihop},
			{"neighbor ADDRESS ttl-security hops HOPS", (*parser).ttlSecurity},
			{"address-family ipv4 unicast", enter(family4)},
			{"address-family ipv6 unicast", enter(family6)},
			{"bgp log-neighbor-changes", nil},
			{"no bgp network import-check", nil},
			{"no bgp suppress-duplicates", nil},
			{"bgp graceful-restart-disable", nil},
			{"neighbor ADDRESS description ...", nil},
			{"neighbor ADDRESS passive", nil},
			{"neighbor ADDRESS bfd ...", nil},
			{"neighbor ADDRESS update-source ...", nil},
			{"neighbor ADDRESS advertisement-interval SECONDS", nil},
			{"exit", (*parser).leave},
		}
	case family4, family6:
		return []command{
			{"neighbor ADDRESS activate", (*parser).activate},
			{"no neighbor ADDRESS activate", (*parser).deactivate},
			{"neighbor ADDRESS prefix-list NAME in", (*parser).prefixListIn},
			{"neighbor ADDRESS route-map NAME in", (*parser).routeMapIn},
			{"maximum-paths N", (*parser).maximumPaths},
			{"neighbor ADDRESS prefix-list NAME out", nil},
			{"neighbor ADDRESS route-map NAME out", nil},
			{"neighbor ADDRESS next-hop-self ...", nil},
			{"neighbor ADDRESS soft-reconfiguration inbound", nil},
			{"exit-address-family", (*parser).leave},
			{"exit", (*parser).leave},
		}
	case inRouteMap:
		return []command{
			{"match ip address prefix-list NAME", (*parser).match4},
			{"match ipv6 address prefix-list NAME", (*parser).match6},
			{"description ...", nil},
			{"exit", (*parser).leave},
		}
	case inBFD:
		return []command{
			{"profile NAME", enter(inBFDPeer)},
			{"peer ...", enter(inBFDPeer)},
			{"exit", (*parser).leave},
		}
	case inBFDPeer:
		return []command{
			{"detect-multiplier N", nil},
			{"receive-interval MS", nil},
			{"transmit-interval MS", nil},
			{"echo-mode", nil},
			{"echo-interval MS", nil},
			{"echo transmit-interval MS", nil},
			{"echo receive-interval MS", nil},
			{"no echo-mode", nil},
			{"minimum-ttl N", nil},
			{"passive-mode", nil},
			{"shutdown", nil},
			{"no shutdown", nil},
			{"exit", (*parser).leave},
		}
	}
	return nil
}

// run finds and runs the command of a line. As in FRR, a line that the current
// block does not know ends it and is looked up in the one around it.
func (p *parser) run(words []string) error {
	for depth := len(p.blocks); depth >= 0; depth-- {
		b := top
		if depth > 0 {
			b = p.blocks[depth-1]
		}
		for _, cmd := range grammar(b) {
			args, ok := match(strings.Fields(cmd.pattern), words)
			if !ok {
				continue
			}
			p.blocks = p.blocks[:depth]
			if cmd.run == nil {
				return nil
			}
			if err := cmd.run(p, args); err != nil {
				return fmt.Errorf("%s: %w", strings.Join(words, " "), err)
			}
			return nil
		}
	}
	where := ""
	if len(p.blocks) > 0 {
		where = fmt.Sprintf(" below `%s`", p.blocks[len(p.blocks)-1])
	}
	return fmt.Errorf("the embedded router does not know `%s`%s; use FRR or leave the line out", strings.Join(words, " "), where)
}

// match compares a line with a pattern and returns its arguments.
func match(pattern, words []string) (args []string, ok bool) {
	for i, want := range pattern {
		switch {
		case want == "...":
			return append(args, words[i:]...), true
		case i >= len(words):
			return nil, false
		case want == strings.ToUpper(want):
			args = append(args, words[i])
		case want != words[i]:
			return nil, false
		}
	}
	return args, len(pattern) == len(words)
}

// enter returns a command that opens a block of lines.
func enter(b block) func(*parser, []string) error {
	return func(p *parser, _ []string) error {
		p.blocks = append(p.blocks, b)
		return nil
	}
}

func (p *parser) leave([]string) error {
	p.blocks = p.blocks[:len(p.blocks)-1]
	return nil
}

// finish resolves what the lines refer to, once all are read. An error that is
// about one of them leaves its number in p.line.
func (p *parser) finish() error {
	if p.cfg.ASN == 0 {
		return fmt.Errorf("`router bgp ASN` is missing")
	}
	if !p.cfg.RouterID.IsValid() {
		return fmt.Errorf("`bgp router-id ADDRESS` is missing")
	}
	for _, name := range slices.Sorted(maps.Keys(p.maps)) {
		for _, e := range p.maps[name].entries {
			for family := range e.matches {
				if err := p.resolve(family, &e.matches[family]); err != nil {
					return err
				}
			}
		}
	}
	for _, n := range p.neighbors {
		if n.ASN == 0 {
			p.line = n.line
			return fmt.Errorf("neighbor %v has no remote-as", n.Address)
		}
		if n.Hold == 0 && n.Keepalive == 0 {
			n.Keepalive, n.Hold = p.keepalive, p.hold
		}
		for i, policy := range []**Policy{&n.IPv4, &n.IPv6} {
			var err error
			if *policy, err = p.policy(n, i); err != nil {
				return err
			}
		}
		p.cfg.Neighbors = append(p.cfg.Neighbors, &n.Neighbor)
	}
	return nil
}

// policy returns the import policy of one address family of a neighbour.
func (p *parser) policy(n *neighborLines, family int) (*Policy, error) {
	f := n.families[family]
	active := family == 0 && p.defaultIPv4
	if f.active != nil {
		active = *f.active
	}
	if !active {
		return nil, nil
	}
	policy := &Policy{denyAll: p.requiresPolicy && n.ASN != p.cfg.ASN && f.list.name == "" && f.routes == ""}
	if err := p.resolve(family, &f.list); err != nil {
		return nil, err
	}
	policy.list = f.list.list
	if f.routes != "" {
		if policy.routes = p.maps[f.routes]; policy.routes == nil {
			p.line = f.routesLine
			return nil, fmt.Errorf("there is no route-map %s", f.routes)
		}
	}
	return policy, nil
}

// resolve looks up the prefix-list that ref names, if it names one.
func (p *parser) resolve(family int, ref *listRef) error {
	if ref.name == "" {
		return nil
	}
	if ref.list = p.lists[listKey(family, ref.name)]; ref.list == nil {
		p.line = ref.line
		return fmt.Errorf("there is no prefix-list %s", ref.name)
	}
	return nil
}

// neighbor returns the neighbour named in a line, made at its first mention.
func (p *parser) neighbor(address string) (*neighborLines, error) {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address; peer groups and unnumbered neighbours are not supported", address)
	}
	i := slices.IndexFunc(p.neighbors, func(n *neighborLines) bool { return n.Address == addr })
	if i < 0 {
		i = len(p.neighbors)
		p.neighbors = append(p.neighbors, &neighborLines{Neighbor: Neighbor{Address: addr}, line: p.line})
	}
	return p.neighbors[i], nil
}

// number parses a decimal number of at most limit.
func number(word string, least, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is no number from %d to %d", word, least, most)
	}
	return n, nil
}
