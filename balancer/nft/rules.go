package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// Priorities: destinations are translated before kube-proxy does it and others at -100,
// sources before others at 100. The guard stands where the fence stands, before conntrack.
var (
	beforeOthersDest   = *nftables.ChainPriorityNATDest - 1
	beforeOthersSource = *nftables.ChainPriorityNATSource - 1
	first              = *nftables.ChainPriorityRaw
)

// Registers. A key of several fields is in a row of those of four bytes.
const (
	reg1  = unix.NFT_REG_1
	reg2  = unix.NFT_REG_2
	words = unix.NFT_REG32_00 // the same place as reg1
)

// baseChains are the chains that packets come to.
//
// In chains of type nat only the first packet of a connection is looked at, or what
// conntrack takes for one. To be given to a backend it has to be a SYN: any other is
// of a connection that conntrack has forgotten, for which the new backend would be the wrong one.
func baseChains() map[string]chain {
	var leaving, outside []ruleset.Rule
	// The kernel tracks connections while some rule asks it to, and forgets how to translate them in
	// between: as the table is made anew, the rest of what asks comes later than this.
	arriving := []ruleset.Rule{ruleset.NewRule("connections are tracked", []expr.Any{&expr.Ct{Key: expr.CtKeySTATUS, Register: reg1}})}
	for _, f := range families {
		arriving = append(arriving, ruleset.NewRule("new connections to what is listened at, IPv"+f.version,
			f.is(), ruleset.TCP(), ruleset.SYN(), ruleset.Load(ruleset.Network, f.dest, f.length), loadTo(words+f.length/4, ruleset.Transport, 2, 2), to(listen+f.version),
		))
	}
	for _, f := range families {
		arriving = append(arriving, ruleset.NewRule("new connections to what is bridged, IPv"+f.version,
			f.is(), ruleset.TCP(), ruleset.SYN(), ruleset.Load(ruleset.Network, f.dest, f.length), to(bridge+f.version),
		))
		translated := ruleset.Join(
			// Nobody but this host is at lo: there the client's address is as good.
			ruleset.Meta(expr.MetaKeyOIFTYPE), ruleset.NotEqual(ruleset.Loopback()...), f.is(), ruleset.TCP(), ruleset.Translated(ruleset.Destination),
			connection(f.ctDest, reg1, false),
		)
		leaving = append(leaving, ruleset.NewRule("source of what is listened at, IPv"+f.version,
			translated, connection(expr.CtKeyPROTODST, words+f.length/4, false), ruleset.In(masquerade+f.version), []expr.Any{&expr.Masq{}},
		), ruleset.NewRule("source of what is bridged, IPv"+f.version,
			translated, connection(f.ctSource, words+f.length/4, true), ruleset.In(bridged+f.version), []expr.Any{&expr.Masq{}},
		))
	}
	// What arrives with such an address was never sent by anybody decent (RFC 1122, section
	// 3.2.1.3). Linux drops it where it is routed, unless route_localnet is set; but first of all
	// it would be translated.
	v4 := families[0]
	for _, field := range []struct {
		name string
		at   uint32
	}{{"to", v4.dest}, {"from", v4.source}} {
		outside = append(outside, ruleset.NewRule("from outside "+field.name+" 127.0.0.0/8",
			v4.is(), ruleset.Meta(expr.MetaKeyIIFTYPE), ruleset.NotEqual(ruleset.Loopback()...),
			ruleset.Load(ruleset.Network, field.at, 1), ruleset.Equal(127), []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}},
		))
	}
	return map[string]chain{
		guard:       {&hook{nftables.ChainTypeFilter, *nftables.ChainHookPrerouting, first}, outside},
		prerouting:  {&hook{nftables.ChainTypeNAT, *nftables.ChainHookPrerouting, beforeOthersDest}, arriving},
		output:      {&hook{nftables.ChainTypeNAT, *nftables.ChainHookOutput, beforeOthersDest}, arriving},
		postrouting: {&hook{nftables.ChainTypeNAT, *nftables.ChainHookPostrouting, beforeOthersSource}, leaving},
	}
}

// serviceRule takes one of the buckets.
func serviceRule(f family, s balancer.Service) ruleset.Rule {
	var bucket []expr.Any
	if s.Method == balancer.SourceHash {
		// Any seed will do, as long as it is always the same.
		bucket = append(ruleset.Load(ruleset.Network, f.source, f.length), &expr.Hash{
			SourceRegister: reg1, DestRegister: reg2, Length: f.length, Modulus: balancer.Buckets, Seed: 1, Type: expr.HashTypeJenkins,
		})
	} else {
		bucket = []expr.Any{&expr.Numgen{Register: reg2, Modulus: balancer.Buckets, Type: unix.NFT_NG_INCREMENTAL}}
	}
	return ruleset.NewRule(s.Method.String(), bucket, []expr.Any{
		&expr.Lookup{SourceRegister: reg2, IsDestRegSet: true, SetName: bucketName(f, s.Name)},
	})
}

// backendRule sends connections to a backend. It has counted so many before.
func backendRule(to netip.AddrPort, count uint64, brief []expr.Any) ruleset.Rule {
	return ruleset.NewRule("to "+to.String(), []expr.Any{&expr.Counter{Packets: count}}, brief, []expr.Any{
		&expr.Immediate{Register: reg1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: reg2, Data: binary.BigEndian.AppendUint16(nil, to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(familyOf(to.Addr()).protocol), RegAddrMin: reg1, RegProtoMin: reg2},
	})
}

// bridgeRule counts connections to a VIP, and sends them to its masters.
func bridgeRule(vip netip.Addr) ruleset.Rule {
	return ruleset.NewRule("to "+vip.String(), []expr.Any{
		&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictJump, Chain: masterChain + dashed(vip)},
	})
}

// masterRules send connections to one master after the other, at the port that they have: the
// first takes one of n, the next one of n-1 of the rest, and the last what is left.
func masterRules(masters []netip.Addr, brief []expr.Any) []ruleset.Rule {
	rules := make([]ruleset.Rule, 0, len(masters))
	for i, master := range masters {
		var turn []expr.Any
		if rest := len(masters) - i; rest > 1 {
			turn = append([]expr.Any{
				&expr.Numgen{Register: reg1, Modulus: uint32(rest), Type: unix.NFT_NG_INCREMENTAL},
			}, ruleset.Equal(0, 0, 0, 0)...)
		}
		rules = append(rules, ruleset.NewRule(fmt.Sprintf("one of %d to %s", len(masters)-i, master), turn, brief, []expr.Any{
			&expr.Immediate{Register: reg1, Data: master.AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(familyOf(master).protocol), RegAddrMin: reg1},
		}))
	}
	return rules
}

// connection loads a part of the addresses of the packet's connection.
func connection(key expr.CtKey, register uint32, reply bool) []expr.Any {
	return []expr.Any{&ruleset.Ct{Ct: expr.Ct{Key: key, Register: register}, Reply: reply}}
}

func (f family) is() []expr.Any {
	return ruleset.Join(ruleset.Meta(expr.MetaKeyNFPROTO), ruleset.Equal(f.protocol))
}

func loadTo(register uint32, base expr.PayloadBase, offset, length uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: length}}
}

// to goes where a map says.
func to(name string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, IsDestRegSet: true, SetName: name}}
}
