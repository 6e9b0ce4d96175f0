package bfd

import (
	"encoding/binary"
	"errors"
	"time"
)

// packetLen is the length of a control packet without authentication.
const packetLen = 24

// Packet is a BFD control packet (RFC 5880 section 4.1), without the fields that this speaker neither sends nor reads.
type Packet struct {
	Diagnostic Diagnostic
	State      State
	Poll       bool
	Final      bool
	// Multiplier is the sender's detection time multiplier.
	Multiplier uint8
	// MyDiscriminator identifies the session at the sender, YourDiscriminator at the receiver; 0 before the sender has
	// received a packet.
	MyDiscriminator   uint32
	YourDiscriminator uint32
	// DesiredMinTx and RequiredMinRx are the intervals that the sender offers, in whole
	// microseconds. A sender with a RequiredMinRx of 0 wants no packets.
	DesiredMinTx  time.Duration
	RequiredMinRx time.Duration
}

// Reasons to discard a packet (RFC 5880 section 6.8.6).
var (
	errShort         = errors.New("it is shorter than a BFD packet")
	errVersion       = errors.New("it is not of BFD version 1")
	errLength        = errors.New("its length field is wrong")
	errMultiplier    = errors.New("its multiplier is 0")
	errMultipoint    = errors.New("it is of a multipoint session")
	errDiscriminator = errors.New("its own discriminator is 0")
	errUnbound       = errors.New("it names no session, but its state is Init or Up")
	errAuthenticated = errors.New("it is authenticated, which is not supported")
)

// The flags in the second octet.
const (
	flagPoll          = 1 << 5
	flagFinal         = 1 << 4
	flagAuthenticated = 1 << 2
	flagMultipoint    = 1 << 0
)

// Decode reads a control packet, and refuses packets that RFC 5880 section 6.8.6 discards before the session is known. It
// ignores octets after the packet's own length.
func (p *Packet) Decode(b []byte) error {
	if len(b) < packetLen {
		return errShort
	}
	flags, length := b[1], int(b[3])
	*p = Packet{
		Diagnostic:        Diagnostic(b[0] & 0x1f),
		State:             State(flags >> 6),
		Poll:              flags&flagPoll != 0,
		Final:             flags&flagFinal != 0,
		Multiplier:        b[2],
		MyDiscriminator:   binary.BigEndian.Uint32(b[4:]),
		YourDiscriminator: binary.BigEndian.Uint32(b[8:]),
		DesiredMinTx:      time.Duration(binary.BigEndian.Uint32(b[12:])) * time.Microsecond,
		RequiredMinRx:     time.Duration(binary.BigEndian.Uint32(b[16:])) * time.Microsecond,
	}
	switch {
	case b[0]>>5 != 1:
		return errVersion
	case length < packetLen || length > len(b):
		return errLength
	case p.Multiplier == 0:
		return errMultiplier
	case flags&flagMultipoint != 0:
		return errMultipoint
	case p.MyDiscriminator == 0:
		return errDiscriminator
	case p.YourDiscriminator == 0 && p.State != Down && p.State != AdminDown:
		return errUnbound
	case flags&flagAuthenticated != 0:
		return errAuthenticated
	}
	return nil
}

// Encode writes the packet to b.
func (p *Packet) Encode(b *[packetLen]byte) {
	flags := byte(p.State) << 6
	if p.Poll {
		flags |= flagPoll
	}
	if p.Final {
		flags |= flagFinal
	}
	b[0], b[1], b[2], b[3] = 1<<5|byte(p.Diagnostic)&0x1f, flags, p.Multiplier, packetLen
	binary.BigEndian.PutUint32(b[4:], p.MyDiscriminator)
	binary.BigEndian.PutUint32(b[8:], p.YourDiscriminator)
	binary.BigEndian.PutUint32(b[12:], uint32(p.DesiredMinTx/time.Microsecond))
	binary.BigEndian.PutUint32(b[16:], uint32(p.RequiredMinRx/time.Microsecond))
	binary.BigEndian.PutUint32(b[20:], 0) // no echo
}
