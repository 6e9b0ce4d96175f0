package arp

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
)

// filterLimit is how many addresses the kernel is to compare a packet with. Where more are
// watched it lets all statements pass: a filter for them would be long, and the
// kernel allows a socket little memory for it.
const filterLimit = 64

// Where things are in an Ethernet frame.
const (
	arpSender     = 14 + 14
	arpTarget     = 14 + 24
	ipv6Next      = 14 + 6
	ipv6HopLimit  = 14 + 7
	ipv6Source    = 14 + 8
	icmpv6Type    = 14 + ipv6.HeaderLen
	icmpv6Target  = 14 + ipv6.HeaderLen + 8
	passToThisEnd = 2 // PACKET_MULTICAST: after it come other hosts' packets, and this one's own
)

const (
	pass = math.MaxUint32 // bytes
	drop = 0
)

// filter assembles a socket filter that passes what parse finds statements in, about the
// watched addresses only. A flood of other packets costs no more than that.
func filter(f family, watched []netip.Addr) ([]bpf.RawInstruction, error) {
	// On a link in promiscuous mode, and for VLANs that nobody has set up, the
	// kernel shows packets that are not for this host.
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

// matchStatements is the part of the filter that looks into the packet.
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
		// A solicitation: X is where its source is, or if that is unspecified its target.
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
		for _, at := range []uint32{12, 8, 4, 0} { // from the end, where addresses of a site differ
			program = append(program,
				bpf.LoadIndirect{Off: at, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(a[at:]), SkipTrue: uint8(1 + at/2)})
		}
		program = append(program, bpf.RetConstant{Val: pass})
	}
	return append(program, bpf.RetConstant{Val: drop})
}
