package secondchance

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// Sets, and the map of VIPs to chains.
const (
	vips    = "vips"
	members = "members" // that the tunnel's packets come from and go to
	links   = "links"   // that routers bring packets by
	opening = "opening" // connections of whom a SYN has come lately: an ACK may answer a SYN cookie
	full    = "full"    // VIPs that have had a SYN which did not find place in opening
	moved   = "moved"   // connections that are passed on
	strays  = "strays"  // who sends what is passed on, with the rate of it
)

// Counters of packets.
const (
	passed   = "passed"   // to the next member
	answered = "answered" // by this node, as nobody was left
	refused  = "refused"  // as there were too many
)

// limits bound what a node passes on of what routers bring, by new connections, and what it remembers: so many
// elements of each set.
type limits struct {
	source, all limit
	memory      uint32
}

type limit struct {
	rate  uint64 // a second
	burst uint32
}

// usual is more than a client has open: they may all move at once.
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

	// outer is where the tunnel's own packets are taken in: behind the fence, and before conntrack, which is not to see them.
	outer = nftables.ChainPriority(-295)
	// inner is behind conntrack, which knows what is translated, and before others do with packets what they like.
	inner = nftables.ChainPriority(-195)
)

// family is what differs between IPv4 and IPv6.
type family struct {
	table              nftables.TableFamily
	address            nftables.SetDatatype
	source, dest, size uint32 // in the header
	icmp               byte
	errors             [][2]byte // ICMP's, that are about a connection
	about              uint32    // where such an error has the protocol of the packet that it is about
}

func families() []family {
	return []family{
		{nftables.TableFamilyIPv4, nftables.TypeIPAddr, 12, 16, 4, unix.IPPROTO_ICMP, [][2]byte{{3, 3}, {11, 12}}, 8 + 9},
		{nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 8, 24, 16, unix.IPPROTO_ICMPV6, [][2]byte{{1, 4}}, 8 + 6},
	}
}

// chain is a chain of a table. If it has a hook, packets come to it by themselves.
type chain struct {
	name     string
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	rules    [][]expr.Any
}

// serving and leaving are the chains that packets for a VIP come to.
const serving, leaving = "serving", "leaving"

// fixed are the chains that stay as they are, but for the chain "on": that is of on.
func (f family) fixed(self Member, tunnel uint32, l limits) []chain {
	return slices.Concat(f.ends(tunnel, l), f.owned(), f.hooked(self, tunnel))
}

// ends are the chains that packets leave by.
func (f family) ends(tunnel uint32, l limits) []chain {
	byTunnel := f.by(tunnel, expr.CmpOpEq)
	return []chain{
		{name: "mine", rules: [][]expr.Any{
			ruleset.Join(byTunnel, setMark(0)),
			verdict(expr.VerdictAccept),
		}},
		{name: "last", rules: [][]expr.Any{
			count(answered),
			ruleset.Join(f.unbound(), ruleset.TCP(), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}),
			jump("mine"),
		}},
		{name: "on"},
		{name: "stray", rules: [][]expr.Any{
			ruleset.Join(byTunnel, jump("on")),
			ruleset.Join(ruleset.TCP(), f.connection(), ruleset.In(moved), update(moved, movedLasts), jump("on")),
			ruleset.Join(f.from(), update(strays, openingLasts, l.source.over()), count(refused), jump("mine")),
			ruleset.Join([]expr.Any{l.all.over()}, count(refused), jump("mine")),
			ruleset.Join(ruleset.TCP(), f.connection(), add(moved, movedLasts), jump("on")),
			jump("on"), // an error, or what moved has no place for
		}},
	}
}

// owned are the chains that find out whether a packet for a VIP is this node's.
func (f family) owned() []chain {
	socket := func(key expr.SocketKey, cond []expr.Any, to string) []expr.Any {
		return ruleset.Join([]expr.Any{&expr.Socket{Key: key, Register: reg1}}, cond, jump(to))
	}
	unlessOwned := func(listener, none string) [][]expr.Any {
		return [][]expr.Any{
			socket(expr.SocketKeyWildcard, ruleset.Equal(0), "mine"),
			translated(),
			socket(expr.SocketKeyWildcard, ruleset.Equal(1), listener),
			socket(expr.SocketKeyTransparent, nil, "opened"), // half-open, or waiting for what is late
			jump(none),
		}
	}
	syn := func(to string) []expr.Any { return ruleset.Join(ruleset.TCP(), ruleset.SYN(), jump(to)) }
	gone := ruleset.Join(f.unbound(), jump("gone"))
	segments := [][]expr.Any{ruleset.Join(ruleset.TCP(), jump("segment"))}
	for _, e := range f.errors {
		segments = append(segments, ruleset.Join(ruleset.Meta(expr.MetaKeyL4PROTO), ruleset.Equal(f.icmp), ruleset.Load(ruleset.Transport, 0, 1),
			[]expr.Any{&expr.Range{Op: expr.CmpOpEq, Register: reg1, FromData: e[:1], ToData: e[1:]}},
			ruleset.Load(ruleset.Transport, f.about, 1), ruleset.Equal(unix.IPPROTO_TCP), jump("segment")))
	}
	return []chain{
		{name: "listener", rules: [][]expr.Any{
			ruleset.Join(ruleset.TCP(), f.connection(), ruleset.In(opening), jump("opened")),
			ruleset.Join(f.to(), ruleset.In(full), jump("mine")),
			jump("stray"),
		}},
		// What is remembered of a SYN is for one answer to it: the next connection from the same port may be another's.
		{name: "opened", rules: [][]expr.Any{
			ruleset.Join(ruleset.TCP(), f.connection(), remove(opening)),
			jump("mine"),
		}},
		{name: "segment", rules: unlessOwned("listener", "stray")},
		// What is left of an earlier connection from the same port would keep what comes after the SYN.
		{name: "elsewhere", rules: append([][]expr.Any{ruleset.Join(f.connection(), remove(opening))}, unlessOwned("on", "on")...)},
		{name: "syn", rules: [][]expr.Any{
			ruleset.Join(f.connection(), update(opening, openingLasts), jump("mine")),
			ruleset.Join(f.to(), update(full, openingLasts), jump("mine")),
			jump("mine"),
		}},
		{name: serving, rules: append([][]expr.Any{gone, syn("syn")}, segments...)},
		{name: leaving, rules: append([][]expr.Any{gone, syn("elsewhere")}, segments...)},
		// A VIP that others have, or had: perhaps it is bound still, or the address has never been a VIP. No connection is begun.
		{name: "unknown", rules: append([][]expr.Any{
			gone, ruleset.Join(ruleset.TCP(), ruleset.SYN(), verdict(expr.VerdictDrop)),
		}, segments...)},
		{name: "gone", rules: [][]expr.Any{syn("on"), translated(), ruleset.Join(ruleset.TCP(), jump("stray"))}}, // whose sockets are of no use any more
	}
}

// hooked are the chains that packets come to by themselves.
func (f family) hooked(self Member, tunnel uint32) []chain {
	byTunnel := f.by(tunnel, expr.CmpOpEq)
	udp := udpTo(link.TunnelPort)
	// Whoever sends as a member by the tunnel is taken for it, but no pod: it is not where the route to the member leads.
	routed := ruleset.Join([]expr.Any{&expr.Fib{Register: reg1, FlagSADDR: true, FlagIIF: true, ResultOIF: true}}, ruleset.NotEqual(0, 0, 0, 0))
	arriving := [][]expr.Any{ruleset.Join(byTunnel, verdict(expr.VerdictAccept))}
	if f.has(self.Addr) {
		arriving = append(arriving, ruleset.Join(udp, f.to(), ruleset.Equal(self.Addr.AsSlice()...), f.from(), ruleset.In(members), routed,
			[]expr.Any{&expr.Notrack{}}, verdict(expr.VerdictAccept)))
	}
	arriving = append(arriving, ruleset.Join(udp, ruleset.Local(), verdict(expr.VerdictDrop)))
	inside := [][]expr.Any{
		ruleset.Join(f.to(), []expr.Any{&expr.Lookup{SourceRegister: reg1, IsDestRegSet: true, SetName: vips}}),
		ruleset.Join(byTunnel, []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: "unknown"}}),
		ruleset.Join(byTunnel, verdict(expr.VerdictDrop)),
	}
	if f.size == 4 {
		greeting := ruleset.Join(byTunnel, udpTo(link.GreetingPort), f.to(), ruleset.Equal(f.gateway(self.Number)...), jump("mine"))
		inside = append([][]expr.Any{greeting}, inside...)
	}
	return []chain{
		{name: "outer", hook: nftables.ChainHookPrerouting, priority: outer, rules: arriving},
		{name: "prerouting", hook: nftables.ChainHookPrerouting, priority: inner, rules: inside},
		{name: "forward", hook: nftables.ChainHookForward, priority: inner, rules: [][]expr.Any{
			ruleset.Join(udp, f.to(), ruleset.In(members), verdict(expr.VerdictDrop)), // of a pod, with this node's address soon
			ruleset.Join(byTunnel, translated()),
			ruleset.Join(byTunnel, verdict(expr.VerdictDrop)),
		}},
		// The tunnel's own packets have the mark of what is in them.
		{name: "output", hook: nftables.ChainHookOutput, priority: outer, rules: [][]expr.Any{
			ruleset.Join(udp, f.to(), ruleset.In(members), setMark(0), []expr.Any{&expr.Notrack{}}),
		}},
	}
}

// on are the rules of the chain "on", which pass a packet on to the next member. One batch writes to whom and which
// origins stop.
func (f family) on(w Wanted, tunnel uint32) [][]expr.Any {
	routers := f.by(tunnel, expr.CmpOpNeq)
	rules := [][]expr.Any{
		ruleset.Join(routers, ruleset.Meta(expr.MetaKeyIIFNAME), ruleset.NotIn(links), jump("mine")),
	}
	path := way(w.Self, w.Others)
	if len(path) == 0 {
		return append(rules, ruleset.Join(routers, jump("mine")), jump("last")) // and the bridge's, perhaps
	}
	to := path[0]
	a := stops(w.Self.Number, to.Number)
	op := expr.CmpOpEq
	if a.outside {
		op = expr.CmpOpNeq
	}
	bigEndian := func(n Number) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	return append(rules,
		ruleset.Join(f.by(tunnel, expr.CmpOpEq), ruleset.Meta(expr.MetaKeyMARK), []expr.Any{
			&expr.Byteorder{SourceRegister: reg1, DestRegister: reg1, Op: expr.ByteorderHton, Len: 4, Size: 4},
			&expr.Range{Op: op, Register: reg1, FromData: bigEndian(a.from), ToData: bigEndian(a.to)},
		}, jump("last")),
		ruleset.Join(routers, setMark(uint32(w.Self.Number))),
		ruleset.Join(count(passed), []expr.Any{
			&expr.Immediate{Register: reg1, Data: f.gateway(to.Number)},
			&expr.Immediate{Register: reg2, Data: binary.NativeEndian.AppendUint32(nil, tunnel)},
			&expr.Dup{RegAddr: reg1, RegDev: reg2, IsRegDevSet: true},
		}, verdict(expr.VerdictDrop)),
	)
}

// gateway is the next member's address on the tunnel's link.
func (f family) gateway(n Number) []byte { return link.TunnelAddr(uint16(n), f.size == 4).AsSlice() }

// has reports whether addr is of the family.
func (f family) has(addr netip.Addr) bool { return addr.Is4() == (f.size == 4) }

func (f family) from() []expr.Any { return ruleset.Load(ruleset.Network, f.source, f.size) }
func (f family) to() []expr.Any   { return ruleset.Load(ruleset.Network, f.dest, f.size) }

// unbound goes on if the address that a packet is for is not on this node.
func (family) unbound() []expr.Any {
	return ruleset.Join([]expr.Any{&expr.Fib{Register: reg1, FlagDADDR: true, ResultADDRTYPE: true}},
		ruleset.NotEqual(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)...))
}

// connection loads a segment's addresses and ports.
func (f family) connection() []expr.Any {
	const words = unix.NFT_REG32_00 // the same place as reg1
	return []expr.Any{
		&expr.Payload{DestRegister: reg1, Base: ruleset.Network, Offset: f.source, Len: 2 * f.size},
		&expr.Payload{DestRegister: words + 2*f.size/4, Base: ruleset.Transport, Offset: 0, Len: 4},
	}
}

// by goes on if the packet came by a link, or by another.
func (f family) by(index uint32, op expr.CmpOp) []expr.Any {
	return append(ruleset.Meta(expr.MetaKeyIIF), &expr.Cmp{Op: op, Register: reg1, Data: binary.NativeEndian.AppendUint32(nil, index)})
}

func setMark(mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: reg1, Data: binary.NativeEndian.AppendUint32(nil, mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg1},
	}
}

// translated takes in what is of or to a pod perhaps: that has no socket here.
func translated() []expr.Any {
	return ruleset.Join(ruleset.Translated(ruleset.Source|ruleset.Destination), jump("mine"))
}

func udpTo(port uint16) []expr.Any {
	return ruleset.Join(ruleset.Meta(expr.MetaKeyL4PROTO), ruleset.Equal(unix.IPPROTO_UDP),
		ruleset.Load(ruleset.Transport, 2, 2), ruleset.Equal(binary.BigEndian.AppendUint16(nil, port)...))
}

// add, update and remove change a set by what is loaded. The first two go on if there was place for it, and over is so.
func add(name string, lasts time.Duration) []expr.Any {
	return set(name, unix.NFT_DYNSET_OP_ADD, lasts)
}

func update(name string, lasts time.Duration, over ...expr.Any) []expr.Any {
	return set(name, unix.NFT_DYNSET_OP_UPDATE, lasts, over...)
}

func remove(name string) []expr.Any {
	const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE
	return set(name, dynsetDelete, 0)
}

func set(name string, do uint32, lasts time.Duration, exprs ...expr.Any) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: reg1, SetName: name, Operation: do, Timeout: lasts, Exprs: exprs}}
}

func count(name string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: name}}
}

func jump(to string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: to}}
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }
