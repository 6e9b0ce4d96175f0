package hostile

import (
	"encoding/binary"
	"slices"
)

// This file makes malformed messages of an established session.

func (g *generator) attributeLengths() []script {
	var list [][]byte
	whole := g.update(1)
	withdrawn, total := headerLength, headerLength+2
	for _, at := range []int{withdrawn, total} {
		real := binary.BigEndian.Uint16(whole[at:])
		for _, lie := range []uint16{0, 1, real - 1, real + 1, real + 5, real + 6, 4096, 65535} {
			m := slices.Clone(whole)
			binary.BigEndian.PutUint16(m[at:], lie)
			list = append(list, m)
		}
	}
	for kind := byte(1); kind < 45; kind++ {
		for _, lie := range []byte{0, 1, 2, 5, 255} {
			short := attribute(flagsOf(kind), kind, []byte{0, 1, 2, 3})
			short[2] = lie
			long := attribute(flagsOf(kind)|extended, kind, []byte{0, 1, 2, 3})
			binary.BigEndian.PutUint16(long[2:], uint16(lie)<<8)
			list = append(list, routes(g.attributes(), short), routes(long, g.attributes()))
		}
	}
	return each(list...)
}

// flagsOf returns the correct flags of an attribute.
func flagsOf(kind byte) byte {
	switch kind {
	case attrOrigin, attrASPath, attrNextHop, attrLocalPref, 6:
		return transitive
	case attrMED, 9, 10, attrMPReach, attrMPUnreach:
		return optional
	}
	return optional | transitive
}

func (g *generator) attributeFlags() []script {
	var list [][]byte
	for flags := 0; flags < 256; flags += 16 {
		for _, a := range [][]byte{g.origin(), g.asPath(), g.hop(), attribute(optional, attrMED, uint32s(1)), attribute(optional|transitive, attrCommunities, uint32s(1))} {
			if f := byte(flags); f&extended == a[0]&extended {
				a[0] = f
				list = append(list, routes(g.attributes(), a), routes(a))
			}
		}
	}
	return each(list...)
}

func (g *generator) unknownAttributes() []script {
	var list [][]byte
	for kind := range 256 {
		if kind == 0 || kind > 40 {
			list = append(list,
				routes(g.attributes(), attribute(transitive, byte(kind), []byte("well-known?"))),
				routes(g.attributes(), attribute(optional|transitive|partial, byte(kind), []byte{byte(kind)})))
		}
	}
	return each(append(list, routes(g.attributes(), attribute(optional|transitive, 99, make([]byte, 3900))))...)
}

func (g *generator) duplicates() []script {
	var list [][]byte
	for _, a := range [][]byte{
		g.origin(), g.asPath(), g.hop(), reach6(), unreach6(),
		attribute(optional|transitive, attrAS4Path, segment(2, g.ASN)),
		attribute(optional|transitive, attrCommunities, uint32s(1)),
	} {
		list = append(list, routes(g.attributes(), a, a), routes(slices.Repeat(a, 100), g.attributes()))
	}
	return each(list...)
}

func (g *generator) missing() []script {
	reach := reach6()
	// Discarding a malformed AGGREGATOR must not skip the check of the other attributes.
	discard := attribute(optional|transitive, attrAggregator, []byte{1})
	list := [][]byte{
		routes(), routes(g.origin()), routes(g.asPath()), routes(g.hop()),
		routes(g.origin(), g.asPath()), routes(g.origin(), g.hop()), routes(g.asPath(), g.hop()),
		routes(discard), routes(discard, g.origin()), routes(discard, g.asPath()),
		update(nil, reach, nil), update(nil, slices.Concat(reach, discard), nil), update(nil, g.attributes(), nil),
	}
	return each(list...)
}

func (g *generator) prefixes() []script {
	var list [][]byte
	hop6 := document6(9).Addr().AsSlice()
	for bits := 33; bits < 256; bits += 11 {
		wrong := append([]byte{byte(bits)}, make([]byte, 32)...)
		list = append(list, update(nil, g.attributes(), wrong), update(wrong, nil, nil), update(nil, g.attributes(), []byte{byte(bits)}))
	}
	for bits := 129; bits < 256; bits += 11 {
		wrong := append([]byte{byte(bits)}, make([]byte, 32)...)
		list = append(list,
			update(nil, slices.Concat(g.attributes(), attribute(optional, attrMPReach, mpReach(afiIPv6, safiUnicast, hop6, wrong))), nil),
			update(nil, attribute(optional, attrMPUnreach, mpUnreach(afiIPv6, safiUnicast, wrong)), nil))
	}
	return each(list...)
}

func (g *generator) as4Path() []script {
	flags := byte(optional | transitive)
	long := attribute(flags, attrAS4Path, segment(2, slices.Repeat([]uint32{g.ASN}, 200)...))
	path2 := attribute(transitive, attrASPath, segment2(2, g.asn16(), 23456))
	var list []script
	for _, as4 := range [][]byte{
		attribute(flags, attrAS4Path, segment(2, g.ASN, 70000)),
		attribute(flags, attrAS4Path, segment(1, 70000)),
		attribute(flags, attrAS4Path, segment(3, 70000), segment(4, 70001)),
		attribute(flags, attrAS4Path, segment(2)),
		attribute(flags, attrAS4Path),
		attribute(flags, attrAS4Aggregator, uint32s(70000), g.RouterID.AsSlice()),
		long,
	} {
		for _, path := range [][]byte{
			g.asPath(), path2, attribute(transitive, attrASPath), attribute(transitive, attrASPath, segment2(1, 1), segment2(2, 2, 3)),
			attribute(transitive, attrASPath, segment2(3, 1, 2), segment2(2, 3)),
		} {
			for _, m := range [][]byte{
				routes(as4, path, g.origin(), g.hop()), routes(g.origin(), as4, g.hop(), path), routes(path, as4, g.hop()),
				routes(as4, as4, path, g.origin(), g.hop()), update(nil, slices.Concat(as4, path), nil), routes(as4, g.origin(), g.hop()),
			} {
				list = append(list, script{settle: true, messages: times(1, m)}, script{open: g.oldOpen(), settle: true, messages: times(1, m)})
			}
		}
	}
	return list
}

func (g *generator) nextHop() []script {
	var list [][]byte
	for n := range 18 {
		list = append(list, routes(g.origin(), g.asPath(), attribute(transitive, attrNextHop, slices.Repeat([]byte{10}, n))))
	}
	for _, hop := range [][]byte{{0, 0, 0, 0}, {127, 0, 0, 1}, {224, 0, 0, 5}, {255, 255, 255, 255}} {
		list = append(list, routes(g.origin(), g.asPath(), attribute(transitive, attrNextHop, hop)))
	}
	return each(list...)
}

func (g *generator) multiprotocol() []script {
	var list [][]byte
	add := func(kind byte, value []byte) {
		list = append(list, update(nil, slices.Concat(g.origin(), g.asPath(), attribute(optional, kind, value)), nil))
	}
	hop := document6(9).Addr().AsSlice()
	reach, unreach := mpReach(afiIPv6, safiUnicast, hop, nlri(document6(1))), mpUnreach(afiIPv6, safiUnicast, nlri(document6(1)))
	for n := range reach {
		add(attrMPReach, reach[:n])
	}
	for n := range unreach {
		add(attrMPUnreach, unreach[:n])
	}
	for _, n := range []int{0, 1, 4, 15, 17, 24, 31, 33, 48} { // octets of next hop
		add(attrMPReach, mpReach(afiIPv6, safiUnicast, make([]byte, n), nlri(document6(1))))
		lie := slices.Clone(reach)
		lie[3] = byte(n)
		add(attrMPReach, lie)
	}
	// Multicast, VPN, labelled, EVPN, flow specification, BGP-LS, SR policy and undefined families.
	for _, f := range []struct {
		afi  uint16
		safi byte
	}{{1, 2}, {1, 4}, {1, 128}, {2, 128}, {25, 65}, {25, 70}, {1, 132}, {1, 133}, {2, 134}, {16388, 71}, {1, 73}, {1, 85}, {0, 0}, {1, 0}, {65535, 255}} {
		garbage := g.garbage(40)
		for _, nlri := range [][]byte{nil, garbage[:1], garbage, slices.Repeat([]byte{0}, 40), slices.Repeat([]byte{255}, 40)} {
			add(attrMPReach, mpReach(f.afi, f.safi, hop[:4], nlri))
			add(attrMPUnreach, mpUnreach(f.afi, f.safi, nlri))
		}
	}
	return each(list...)
}

func (g *generator) notifications() []script {
	texts := [][]byte{
		{}, {0}, {255}, {200, 'x'}, {1, 'y', 'z'}, {3, 0xff, 0xfe, 0xc0}, {2, 0xe2, 0x82},
		append([]byte{40}, "\x1b[2J\x1b]0;owned\a\x1b[31mred\r\nfake: log line"...),
		append([]byte{255}, slices.Repeat([]byte("a\u202e\x00"), 50)...),
		append([]byte{128}, slices.Repeat([]byte{0x1b}, 4000)...),
	}
	var list [][]byte
	for _, text := range texts {
		list = append(list, notification(6, 2, text...), notification(6, 4, text...), notification(6, 9, text...))
	}
	for code := range 10 {
		for _, subcode := range []byte{0, 1, 7, 13, 255} {
			list = append(list, notification(byte(code), subcode, byte(g.Uint32())))
		}
	}
	return each(list...)
}

func (g *generator) routeRefresh() []script {
	refresh := func(body ...byte) []byte { return message(typeRouteRefresh, body) }
	list := [][]byte{
		refresh(0), refresh(0, 1), refresh(0, 1, 0), refresh(0, 1, 0, 1, 9),
		refresh(0, 1, 1, 1), refresh(0, 1, 2, 1), refresh(0, 1, 255, 1), // RFC 7313
		routeRefresh(0, 0), routeRefresh(afiIPv4, 128), routeRefresh(25, 70), routeRefresh(65535, 255),
		// RFC 5291: when, type, length, and entries.
		refresh(0, 1, 0, 1, 1, 64, 0, 1, 0x80), refresh(0, 1, 0, 1, 1, 64, 255, 255), refresh(0, 1, 0, 1, 1, 64, 0, 9, 0, 0, 0, 0, 1, 33, 200),
		message(typeRouteRefresh, []byte{0, 1, 0, 1}, make([]byte, 4000)),
	}
	return each(list...)
}
