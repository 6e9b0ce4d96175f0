package arp

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
)

// filterLimit is the maximum number of addresses in a filter. With more watched addresses the filter passes all
// statements: it would be long, and the kernel allows a socket little memory for it.
const filterLimit = 64

// Offsets in an Ethernet frame.
const (
	arpSender     = 14 + 14
	arpTarget     = 14 + 24
	ipv6Next      = 14 + 6
	ipv6HopLimit  = 14 + 7
	ipv6Source    = 14 + 8
	icmpv6Type    = 14 + ipv6.HeaderLen
	icmpv6Target  = 14 + ipv6.HeaderLen + 8
	passToThisEnd = 2 // PACKET_MULTICAST: higher types are packets to other hosts, and this host's own
)

const (
	pass = math.MaxUint32 // bytes
	drop = 0
)

// filter assembles a socket filter that passes statements about the watched addresses only, as parse finds
// them. So a flood of other packets costs little.
func filter(f family, watched []netip.Addr) ([]bpf.RawInstruction, error) {
	// On a link in promiscuous mode, and for VLANs that are not configured, the kernel also delivers
	// packets for other hosts.
	program := append([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: passToThisEnd, SkipFalse: 1},
		bpf.RetConstant{Val: drop},
	}, matchStatements(f, watched)...)
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble packet filter: %w", err)
	}
	return raw, nil
}

// matchStatements returns the part of the filter that examines the packet.
func matchStatements(f family, watched []netip.Addr) []bpf.Instruction {
	if f == inet4 {
		return matchARP(watched)
	}
	return matchNDP(watched)
}

func matchARP(watched []netip.Addr) []bpf.Instruction {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: arpSender, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		bpf.LoadAbsolute{Off: arpTarget, Size: 4}, // of a probe
	}
	if len(watched) > filterLimit {
		return append(program, bpf.RetConstant{Val: pass})
	}
	for _, addr := range watched {
		a := addr.As4()
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(a[:]), SkipTrue: 1},
			bpf.RetConstant{Val: pass})
	}
	return append(program, bpf.RetConstant{Val: drop})
}

func matchNDP(watched []netip.Addr) []bpf.Instruction {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: ipv6Next, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolICMPv6, SkipTrue: 5},
		bpf.LoadAbsolute{Off: ipv6HopLimit, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ndpHopLimit, SkipTrue: 3},
		bpf.LoadAbsolute{Off: icmpv6Type, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ipv6.ICMPTypeNeighborAdvertisement), SkipTrue: 11},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ipv6.ICMPTypeNeighborSolicitation), SkipTrue: 1},
		bpf.RetConstant{Val: drop},
		// A solicitation: X is the offset of its source, or of its target if the source is unspecified.
		bpf.LoadConstant{Dst: bpf.RegX, Val: ipv6Source},
	}
	for i := range uint32(4) {
		program = append(program,
			bpf.LoadAbsolute{Off: ipv6Source + 4*i, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: uint8(7 - 2*i)})
	}
	program = append(program, bpf.LoadConstant{Dst: bpf.RegX, Val: icmpv6Target})
	if len(watched) > filterLimit {
		return append(program, bpf.RetConstant{Val: pass})
	}
	for _, addr := range watched {
		a := addr.As16()
		for _, at := range []uint32{12, 8, 4, 0} { // from the end: addresses of a site differ there
			program = append(program,
				bpf.LoadIndirect{Off: at, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(a[at:]), SkipTrue: uint8(1 + at/2)})
		}
		program = append(program, bpf.RetConstant{Val: pass})
	}
	return append(program, bpf.RetConstant{Val: drop})
}
