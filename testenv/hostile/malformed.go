package hostile

import (
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// generator makes an attack's messages. Its randomness depends only on the peer's seed
// and the attack's name.
type generator struct {
	*Peer
	*rand.Rand
}

func newGenerator(p *Peer, attack string) *generator {
	h := fnv.New64a()
	h.Write([]byte(attack))
	return &generator{Peer: p, Rand: rand.New(rand.NewPCG(p.Seed, h.Sum64()))}
}

// garbage returns n random octets.
func (g *generator) garbage(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

// asn16 returns the ASN in two octets, or AS_TRANS (RFC 6793).
func (p *Peer) asn16() uint16 {
	const asTrans = 23456
	if p.ASN > 0xffff {
		return asTrans
	}
	return uint16(p.ASN)
}

// capabilities returns the capabilities of a plain IPv4 and IPv6 session.
func (p *Peer) capabilities() [][]byte {
	return [][]byte{
		capability(capMultiprotocol, 0, afiIPv4, 0, safiUnicast),
		capability(capMultiprotocol, 0, afiIPv6, 0, safiUnicast),
		capability(capRouteRefresh),
		capability(capFourOctetASN, uint32s(p.ASN)...),
	}
}

// open returns a valid OPEN, with these capabilities added.
func (p *Peer) open(more ...[]byte) []byte {
	return open(4, p.asn16(), 90, p.RouterID, capabilities(append(p.capabilities(), more...)...))
}

// oldOpen returns a valid OPEN of a peer without four-octet ASNs.
func (p *Peer) oldOpen() []byte {
	return open(4, p.asn16(), 90, p.RouterID, capabilities(p.capabilities()[:3]...))
}

// attributes returns the mandatory attributes of a route.
func (p *Peer) attributes() []byte { return slices.Concat(p.origin(), p.asPath(), p.hop()) }

func (p *Peer) origin() []byte { return attribute(transitive, attrOrigin, []byte{0}) }
func (p *Peer) asPath() []byte { return attribute(transitive, attrASPath, segment(2, p.ASN, 65001)) }
func (p *Peer) hop() []byte    { return attribute(transitive, attrNextHop, p.RouterID.AsSlice()) }

// host returns the i-th of many host prefixes, document the i-th of a few plain ones.
func host(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 + byte(i>>16), byte(i >> 8), byte(i)}), 32)
}

func document(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32)
}

func document6(i byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: i}), 128)
}

// reach6 announces an IPv6 route, unreach6 withdraws it.
func reach6() []byte {
	return attribute(optional, attrMPReach, mpReach(afiIPv6, safiUnicast, document6(9).Addr().AsSlice(), nlri(document6(1))))
}

func unreach6() []byte {
	return attribute(optional, attrMPUnreach, mpUnreach(afiIPv6, safiUnicast, nlri(document6(1))))
}

// update returns a valid UPDATE with n routes.
func (p *Peer) update(n int) []byte {
	var routes []byte
	for i := range n {
		routes = append(routes, nlri(document(i))...)
	}
	return update(nil, p.attributes(), routes)
}

// routes makes an UPDATE of attributes and one route.
func routes(attributes ...[]byte) []byte {
	return update(nil, slices.Concat(attributes...), nlri(document(1)))
}

// heavy returns a valid UPDATE of exactly this size, most of it AS path and communities.
func (p *Peer) heavy(i, size int) []byte {
	var path []byte
	for range size / 2 / 1022 {
		path = append(path, segment(2, slices.Repeat([]uint32{p.ASN}, 255)...)...)
	}
	fixed := slices.Concat(p.origin(), p.hop(), attribute(transitive|extended, attrASPath, path))
	room := size - len(update(nil, fixed, nlri(host(i)))) - 4
	communities := make([]uint32, room/4)
	for j := range communities {
		communities[j] = p.ASN<<16 | uint32(i+j)&0xffff
	}
	return update(nil, append(fixed, attribute(optional|transitive|extended, attrCommunities, uint32s(communities...))...), nlri(host(i)))
}

// valid returns valid messages of every type.
func (g *generator) valid() [][]byte {
	return append(g.validUpdates(), notification(6, 4), routeRefresh(afiIPv4, safiUnicast))
}

// validUpdates returns UPDATEs of every kind, the basis of mutations.
func (p *Peer) validUpdates() [][]byte {
	hop6 := document6(254).Addr().AsSlice()
	return [][]byte{
		p.update(3),
		update(nlri(document(1), document(2)), nil, nil),
		routes(p.attributes(),
			attribute(optional, attrMED, uint32s(7)),
			attribute(transitive, attrLocalPref, uint32s(100)),
			attribute(optional|transitive, attrAggregator, uint32s(p.ASN), p.RouterID.AsSlice()),
			attribute(optional|transitive, attrCommunities, uint32s(1, 2, 3)),
			attribute(optional|transitive, attrLargeCommunity, uint32s(1, 2, 3))),
		update(nil, slices.Concat(p.origin(), p.asPath(), attribute(optional, attrMPReach, mpReach(afiIPv6, safiUnicast, hop6, nlri(document6(1), document6(2))))), nil),
		update(nil, unreach6(), nil),
	}
}

func (g *generator) truncated() []script {
	var list, hellos [][]byte
	for _, m := range g.valid() {
		for n := range m {
			list = append(list, m[:n]) // then the connection ends
			if n >= headerLength {
				list = append(list, setLength(slices.Clone(m[:n])))
			}
		}
	}
	hello := g.open()
	for n := range hello {
		hellos = append(hellos, hello[:n], setLength(slices.Clone(hello[:n])))
	}
	return append(each(list...), opens(hellos...)...)
}

func (g *generator) oversized() []script {
	extendedOpen := g.open(capability(capExtendedMessage))
	var list []script
	for _, size := range []int{maxMessage + 1, 2 * maxMessage, maxExtended} {
		for kind := byte(typeOpen); kind <= typeRouteRefresh; kind++ {
			m := message(kind, make([]byte, size-headerLength))
			if kind == typeUpdate {
				m = g.heavy(1, size)
			}
			list = append(list, script{settle: true, messages: times(1, m)}, script{open: extendedOpen, settle: true, messages: times(1, m)})
			if kind == typeOpen {
				list = append(list, script{open: m})
			}
		}
	}
	return list
}

func (g *generator) marker() []script {
	var list, hellos [][]byte
	for i := range 16 {
		m, hello := g.update(1), g.open()
		m[i], hello[i] = 0, 0xfe
		list, hellos = append(list, m), append(hellos, hello)
	}
	return append(each(list...), opens(hellos...)...)
}

func (g *generator) lengths() []script {
	var list, hellos [][]byte
	for n := range headerLength {
		list = append(list, withLength(keepalive(), n), withLength(g.update(1), n))
		hellos = append(hellos, withLength(g.open(), n))
	}
	list = append(list, message(typeKeepalive, []byte{0}), message(typeUpdate), message(typeUpdate, []byte{0, 0, 0}),
		message(typeNotification), message(typeNotification, []byte{6}), message(typeRouteRefresh))
	return append(each(list...), opens(hellos...)...)
}

func (g *generator) types() []script {
	var list, hellos [][]byte
	for kind := range 256 {
		if kind < typeOpen || kind > typeRouteRefresh {
			list = append(list, message(byte(kind), []byte{1, 2, 3, 4}))
		}
		if kind != typeOpen && kind < 16 {
			hellos = append(hellos, message(byte(kind), []byte{1, 2, 3, 4}))
		}
	}
	list = append(list, g.open()) // an established session allows no second OPEN
	return append(each(list...), opens(hellos...)...)
}

func (g *generator) openVariants() []script {
	caps := capabilities(g.capabilities()...)
	var list [][]byte
	for _, version := range []byte{0, 1, 3, 5, 255} {
		list = append(list, open(version, g.asn16(), 90, g.RouterID, caps))
	}
	for _, hold := range []uint16{1, 2, 65535} {
		list = append(list, open(4, g.asn16(), hold, g.RouterID, caps))
	}
	for _, asn := range []uint32{0, 23456, 65535, 4294967295} {
		list = append(list, open(4, uint16(asn), 90, g.RouterID, capabilities(capability(capFourOctetASN, uint32s(asn)...))))
	}
	for _, id := range []string{"0.0.0.0", "255.255.255.255", "127.0.0.1"} {
		list = append(list, open(4, g.asn16(), 90, netip.MustParseAddr(id), caps))
	}
	for _, kind := range []byte{0, 1, 3, 254, 255} {
		list = append(list, open(4, g.asn16(), 90, g.RouterID, parameter(kind, []byte{1, 2, 3})))
	}
	at := headerLength + 9 // the length of all parameters, then the type and length of the first
	for _, lie := range []byte{0, 1, 2, 254, 255} {
		for _, offset := range []int{at, at + 2} {
			m := g.open()
			m[offset] = lie
			list = append(list, m)
		}
	}
	return opens(list...)
}

func (g *generator) capabilityVariants() []script {
	var list [][]byte
	for _, code := range []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 128, 131, 255} {
		for _, n := range []int{0, 1, 3, 5, 8, 13} {
			list = append(list, g.open(capability(code, g.garbage(n)...)))
		}
	}
	overrun := capability(capMultiprotocol, 0, 1, 0, 1)
	overrun[1] = 200
	body := slices.Concat([]byte{4}, uint16s(g.asn16(), 90), g.RouterID.AsSlice())
	caps := slices.Concat(g.capabilities()...)
	list = append(list,
		g.open(overrun),
		g.open(slices.Repeat([][]byte{capability(69, 0, 1, 1, 3)}, 30)...),
		open(4, g.asn16(), 90, g.RouterID, slices.Repeat([][]byte{capabilities(g.capabilities()[0])}, 30)...),
		// RFC 9072: 255, 255 and lengths of two octets; valid, and with wrong lengths.
		message(typeOpen, body, []byte{255, 255}, uint16s(uint16(len(caps)+3)), []byte{2}, uint16s(uint16(len(caps))), caps),
		message(typeOpen, body, []byte{255, 255}, uint16s(65535), []byte{2}, uint16s(65535), caps),
		message(typeOpen, body, []byte{255, 255}),
		message(typeOpen, body, []byte{0, 255}, uint16s(0)),
	)
	return opens(list...)
}
