package secondchance

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// Names of sets, and of the map of VIPs to chains.
const (
	vips    = "vips"
	members = "members" // addresses of members, for packets from and to the tunnel
	links   = "links"   // links to routers
	opening = "opening" // connections with a recent SYN: their ACK may answer a SYN cookie
	full    = "full"    // VIPs with a SYN that did not fit in opening
	moved   = "moved"   // connections that are passed on
	sources = "strays"  // clients of misrouted packets, with a rate limit each
)

// Names of packet counters.
const (
	passed   = "passed"   // on to the next member
	answered = "answered" // by this node, as no member was left
	refused  = "refused"  // because of the limits
)

// limits limit the connections that a node begins to pass on from routers, per client and in total, and the elements
// of each set.
type limits struct {
	source, all limit
	memory      uint32
}

type limit struct {
	rate  uint64 // per second
	burst uint32
}

// usual returns the limits in production. The burst exceeds the connections of one client: all may move at once.
func usual() limits {
	return limits{source: limit{1000, 5000}, all: limit{20000, 20000}, memory: 65535}
}

func (l limit) over() *expr.Limit {
	return &expr.Limit{Type: expr.LimitTypePkts, Rate: l.rate, Unit: expr.LimitTimeSecond, Burst: l.burst, Over: true}
}

const (
	reg1 = unix.NFT_REG_1
	reg2 = unix.NFT_REG_2

	openingLasts = 10 * time.Second
	movedLasts   = time.Minute

	// outer is the priority of chains for the tunnel's own packets: after the fence, and before conntrack, which must not see them.
	outer = nftables.ChainPriority(-295)
	// inner is the priority after conntrack, which knows translated connections, and before other programs' rules.
	inner = nftables.ChainPriority(-195)
)

// family holds the differences between IPv4 and IPv6.
type family struct {
	table              nftables.TableFamily
	address            nftables.SetDatatype
	source, dest, size uint32 // offsets and length of addresses in the header
	icmp               byte
	errors             [][2]byte // ranges of ICMP types of errors about a connection
	about              uint32    // offset of the protocol of the packet that caused the error
}

func families() []family {
	return []family{
		{nftables.TableFamilyIPv4, nftables.TypeIPAddr, 12, 16, 4, unix.IPPROTO_ICMP, [][2]byte{{3, 3}, {11, 12}}, 8 + 9},
		{nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 8, 24, 16, unix.IPPROTO_ICMPV6, [][2]byte{{1, 4}}, 8 + 6},
	}
}

// rules returns rules without comments.
func rules(exprs ...[]expr.Any) (out []ruleset.Rule) {
	for _, e := range exprs {
		out = append(out, ruleset.NewRule("", e))
	}
	return out
}

// serving and leaving are the chains for packets to a VIP.
const serving, leaving = "serving", "leaving"

// onward is the chain that passes packets on. Only its rules change later.
const onward = "on"

// ends returns the last chains of each path.
func (f family) ends(tunnel uint32, l limits) []ruleset.Chain {
	byTunnel := f.by(tunnel, expr.CmpOpEq)
	return []ruleset.Chain{
		{Name: "mine", Rules: rules(
			ruleset.Join(byTunnel, setMark(0)),
			verdict(expr.VerdictAccept),
		)},
		{Name: "last", Rules: rules(
			count(answered),
			ruleset.Join(f.unbound(), ruleset.TCP(), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}),
			jump("mine"),
		)},
		{Name: "stray", Rules: rules(
			ruleset.Join(byTunnel, jump(onward)),
			ruleset.Join(f.connection(), ruleset.In(moved), update(moved, movedLasts), jump(onward)),
			ruleset.Join(f.from(), update(sources, openingLasts, l.source.over()), count(refused), jump("mine")),
			ruleset.Join([]expr.Any{l.all.over()}, count(refused), jump("mine")),
			ruleset.Join(f.connection(), set(moved, unix.NFT_DYNSET_OP_ADD, movedLasts), jump(onward)),
			jump(onward), // an ICMP error, or a connection that does not fit in moved
		)},
	}
}

// owned returns the chains that decide whether this node is the owning member of a packet to a VIP.
func (f family) owned() []ruleset.Chain {
	socket := func(key expr.SocketKey, cond []expr.Any, chain string) []expr.Any {
		return ruleset.Join([]expr.Any{&expr.Socket{Key: key, Register: reg1}}, cond, jump(chain))
	}
	either := []expr.Any{&expr.Cmp{Op: expr.CmpOpLte, Register: reg1, Data: []byte{1}}} // the program nft does not list a rule that compares nothing
	unlessOwned := func(listener, none string) []ruleset.Rule {
		return rules(
			socket(expr.SocketKeyWildcard, ruleset.Equal(0), "mine"),
			translated(),
			socket(expr.SocketKeyWildcard, ruleset.Equal(1), listener),
			socket(expr.SocketKeyTransparent, either, "opened"), // half-open, or in TIME_WAIT
			jump(none),
		)
	}
	syn := func(chain string) []expr.Any { return ruleset.Join(ruleset.TCP(), ruleset.SYN(), jump(chain)) }
	gone := ruleset.Join(f.unbound(), jump("gone"))
	segments := rules(ruleset.Join(ruleset.TCP(), jump("segment")))
	for _, e := range f.errors {
		segments = append(segments, rules(ruleset.Join(ruleset.Meta(expr.MetaKeyL4PROTO), ruleset.Equal(f.icmp), ruleset.Load(ruleset.Transport, 0, 1),
			[]expr.Any{&expr.Range{Op: expr.CmpOpEq, Register: reg1, FromData: e[:1], ToData: e[1:]}},
			ruleset.Load(ruleset.Transport, f.about, 1), ruleset.Equal(unix.IPPROTO_TCP), jump("segment")))...)
	}
	return []ruleset.Chain{
		{Name: "listener", Rules: rules(
			ruleset.Join(f.connection(), ruleset.In(opening), jump("opened")),
			ruleset.Join(f.to(), ruleset.In(full), jump("mine")),
			jump("stray"),
		)},
		// Each SYN is remembered for one answer: the next connection from the same port may belong to another member.
		{Name: "opened", Rules: rules(
			ruleset.Join(f.connection(), remove(opening)),
			jump("mine"),
		)},
		{Name: "segment", Rules: unlessOwned("listener", "stray")},
		// The entry of an earlier connection from the same port would keep the packets after the SYN here.
		{Name: "elsewhere", Rules: append(rules(ruleset.Join(f.connection(), remove(opening))), unlessOwned(onward, onward)...)},
		{Name: "syn", Rules: rules(
			ruleset.Join(f.connection(), update(opening, openingLasts), jump("mine")),
			ruleset.Join(f.to(), update(full, openingLasts), jump("mine")),
			jump("mine"),
		)},
		{Name: serving, Rules: append(rules(gone, syn("syn")), segments...)},
		{Name: leaving, Rules: append(rules(gone, syn("elsewhere")), segments...)},
		// Packets from the tunnel to an address that is no VIP here. Another member may have it, or it was a VIP and is still bound. New connections are dropped.
		{Name: "unknown", Rules: append(rules(
			gone, ruleset.Join(ruleset.TCP(), ruleset.SYN(), verdict(expr.VerdictDrop)),
		), segments...)},
		// The VIP is not bound: its sockets cannot receive.
		{Name: "gone", Rules: rules(syn(onward), translated(), ruleset.Join(ruleset.TCP(), jump("stray")))},
	}
}

// hooked returns the base chains.
func (f family) hooked(self Member, tunnel uint32) []ruleset.Chain {
	byTunnel := f.by(tunnel, expr.CmpOpEq)
	udp := udpTo(link.TunnelPort)
	// A packet with a member's source address is accepted as the member's, unless it came by another link than the route to the
	// member: pods cannot pose as members.
	routed := ruleset.Join([]expr.Any{&expr.Fib{Register: reg1, FlagSADDR: true, FlagIIF: true, ResultOIF: true}}, ruleset.NotEqual(0, 0, 0, 0))
	arriving := rules(ruleset.Join(byTunnel, verdict(expr.VerdictAccept)))
	if f.has(self.Addr) {
		arriving = append(arriving, rules(ruleset.Join(udp, f.to(), ruleset.Equal(self.Addr.AsSlice()...), f.from(), ruleset.In(members), routed,
			[]expr.Any{&expr.Notrack{}}, verdict(expr.VerdictAccept)))...)
	}
	arriving = append(arriving, rules(ruleset.Join(udp, ruleset.Local(), verdict(expr.VerdictDrop)))...)
	inside := rules(
		ruleset.Join(f.to(), []expr.Any{&expr.Lookup{SourceRegister: reg1, IsDestRegSet: true, SetName: vips}}),
		ruleset.Join(byTunnel, []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: "unknown"}}),
		ruleset.Join(byTunnel, verdict(expr.VerdictDrop)),
	)
	if f.size == 4 {
		probe := ruleset.Join(byTunnel, udpTo(probePort), f.to(), ruleset.Equal(f.gateway(self.Number)...), jump("mine"))
		inside = append(rules(probe), inside...)
	}
	return []ruleset.Chain{
		{Name: "outer", Hook: nftables.ChainHookPrerouting, Priority: outer, Rules: arriving},
		{Name: "prerouting", Hook: nftables.ChainHookPrerouting, Priority: inner, Rules: inside},
		{Name: "forward", Hook: nftables.ChainHookForward, Priority: inner, Rules: rules(
			ruleset.Join(udp, f.to(), ruleset.In(members), verdict(expr.VerdictDrop)), // from a pod, before it is masqueraded
			ruleset.Join(byTunnel, translated()),
			ruleset.Join(byTunnel, verdict(expr.VerdictDrop)),
		)},
		// The tunnel's own packets inherit the mark of the packet inside.
		{Name: "output", Hook: nftables.ChainHookOutput, Priority: outer, Rules: rules(
			ruleset.Join(udp, f.to(), ruleset.In(members), setMark(0), []expr.Any{&expr.Notrack{}}),
		)},
	}
}

// on returns the rules of the chain "on", which passes a packet on to the next member. The next member and the arc of ingress
// members that stop the packet change in one batch.
func (f family) on(w Wanted, tunnel uint32) []ruleset.Rule {
	routers := f.by(tunnel, expr.CmpOpNeq)
	unrouted := ruleset.Join(routers, ruleset.Meta(expr.MetaKeyIIFNAME), ruleset.NotIn(links), jump("mine"))
	path := ring(w.Self, w.Others)
	if len(path) == 0 {
		return rules(unrouted, ruleset.Join(routers, jump("mine")), jump("last")) // the bridge may still forward them
	}
	next := path[0]
	a := stops(w.Self.Number, next.Number)
	op := expr.CmpOpEq
	if a.outside {
		op = expr.CmpOpNeq
	}
	bigEndian := func(n Number) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	return rules(unrouted,
		ruleset.Join(f.by(tunnel, expr.CmpOpEq), ruleset.Meta(expr.MetaKeyMARK), []expr.Any{
			&expr.Byteorder{SourceRegister: reg1, DestRegister: reg1, Op: expr.ByteorderHton, Len: 4, Size: 4},
			&expr.Range{Op: op, Register: reg1, FromData: bigEndian(a.from), ToData: bigEndian(a.dst)},
		}, jump("last")),
		ruleset.Join(routers, setMark(uint32(w.Self.Number))),
		ruleset.Join(count(passed), []expr.Any{
			&expr.Immediate{Register: reg1, Data: f.gateway(next.Number)},
			&expr.Immediate{Register: reg2, Data: binary.NativeEndian.AppendUint32(nil, tunnel)},
			&expr.Dup{RegAddr: reg1, RegDev: reg2, IsRegDevSet: true},
		}, verdict(expr.VerdictDrop)),
	)
}

// gateway returns a member's address on the tunnel's link.
func (f family) gateway(n Number) []byte { return tunnelAddr(uint16(n), f.size == 4).AsSlice() }

// has reports whether addr is of the family.
func (f family) has(addr netip.Addr) bool { return addr.Is4() == (f.size == 4) }

func (f family) from() []expr.Any { return ruleset.Load(ruleset.Network, f.source, f.size) }
func (f family) to() []expr.Any   { return ruleset.Load(ruleset.Network, f.dest, f.size) }

// unbound matches packets to an address that this node does not have.
func (family) unbound() []expr.Any {
	return ruleset.Join([]expr.Any{&expr.Fib{Register: reg1, FlagDADDR: true, ResultADDRTYPE: true}},
		ruleset.NotEqual(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)...))
}

// connection loads a segment's addresses and ports, one by one: the program nft cannot load other fields that it lists.
func (f family) connection() []expr.Any {
	return append(ruleset.TCP(),
		&expr.Payload{DestRegister: reg1, Base: ruleset.Network, Offset: f.source, Len: f.size},
		&expr.Payload{DestRegister: ruleset.Word(f.size / 4), Base: ruleset.Network, Offset: f.dest, Len: f.size},
		&expr.Payload{DestRegister: ruleset.Word(2 * f.size / 4), Base: ruleset.Transport, Offset: 0, Len: 2},
		&expr.Payload{DestRegister: ruleset.Word(2*f.size/4 + 1), Base: ruleset.Transport, Offset: 2, Len: 2},
	)
}

// by compares the index of the packet's ingress link.
func (f family) by(index uint32, op expr.CmpOp) []expr.Any {
	return append(ruleset.Meta(expr.MetaKeyIIF), &expr.Cmp{Op: op, Register: reg1, Data: binary.NativeEndian.AppendUint32(nil, index)})
}

func setMark(mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: reg1, Data: binary.NativeEndian.AppendUint32(nil, mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg1},
	}
}

// translated accepts packets of translated connections, such as a pod's, which have no socket on the node.
func translated() []expr.Any {
	return ruleset.Join(ruleset.Translated(ruleset.Source|ruleset.Destination), jump("mine"))
}

func udpTo(port uint16) []expr.Any {
	return ruleset.Join(ruleset.Meta(expr.MetaKeyL4PROTO), ruleset.Equal(unix.IPPROTO_UDP),
		ruleset.Load(ruleset.Transport, 2, 2), ruleset.Equal(binary.BigEndian.AppendUint16(nil, port)...))
}

// update, remove and set change a set by the loaded key. After an addition or update the rule continues if the set had room and over matches.
func update(name string, lasts time.Duration, over ...expr.Any) []expr.Any {
	return set(name, unix.NFT_DYNSET_OP_UPDATE, lasts, over...)
}

func remove(name string) []expr.Any {
	const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE
	return set(name, dynsetDelete, 0)
}

func set(name string, operation uint32, lasts time.Duration, exprs ...expr.Any) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: reg1, SetName: name, Operation: operation, Timeout: lasts, Exprs: exprs}}
}

func count(name string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: name}}
}

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

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
