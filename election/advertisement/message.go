// Package advertisement distributes the state of each member's servers among the members of an election. Of leases it
// knows only their length.
package advertisement

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/wire"
)

// The wire format. Numbers are big endian, or varints of encoding/binary:
//
//	magic     1 byte: differs from all versions of lease messages, which begin with theirs
//	version   1 byte
//	flags     1 byte
//	from      length in 1 byte, name
//
// A challenge continues with its number in 8 bytes; an advertisement with:
//
//	run       8 bytes, not 0
//	sequence  varint
//	response  8 bytes
//	hold      varint in milliseconds
//	peers     number in 1 byte, each: the FNV-1a hash of a member's name in 4 bytes
//	checks    number in 1 byte, each: its name's length and, in the highest bit, its verdict in 1 byte, name
//
// Receivers ignore appended data and unknown flags of later releases.
const (
	magic   = 0xb0
	version = 1

	flagChallenge = 1 << 0
	flagDraining  = 1 << 1
	flagLeft      = 1 << 2
	flagPassing   = 1 << 3

	healthyBit = 1 << 7

	// maxChecks is the maximum number of checks in an advertisement. maxCheckName is the maximum length of their names
	// in bytes.
	maxChecks    = 32
	maxCheckName = 63
	// maxPeers is the maximum number of peers in an advertisement.
	maxPeers = 32
	// maxMessage is the maximum size of a message in bytes.
	maxMessage = 1000
	// maxHold limits the hold time of any message.
	maxHold = time.Minute
)

// message is one datagram: an advertisement or a challenge.
type message struct {
	From          string
	Challenge     uint64 // if not 0, a challenge: the response repeats this number, which proves that it is recent
	Run           uint64 // incarnation of the sender's process
	Sequence      uint64 // of the messages of this run, from 1
	Response      uint64 // the number of the challenge; 0: none
	Hold          time.Duration
	Left          bool     // the sender leaves and sends no more
	Peers         []uint32 // hashed names of other advertising members that the sender receives
	Advertisement Advertisement
}

func hashed(member string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(member)) // never fails
	return h.Sum32()
}

// IsMessage reports whether an encoded message belongs to this package.
func IsMessage(b []byte) bool { return len(b) > 0 && b[0] == magic }

// append encodes a message. It returns the number of checks omitted for lack of room or for their long names.
func (m message) append(b []byte) (_ []byte, omitted int) {
	flags := wire.Flag(flagChallenge, m.Challenge != 0) | wire.Flag(flagLeft, m.Left) |
		wire.Flag(flagDraining, m.Advertisement.Draining) | wire.Flag(flagPassing, m.Advertisement.Passing)
	start := len(b)
	b = append(b, magic, version, flags, byte(len(m.From)))
	b = append(b, m.From...)
	if m.Challenge != 0 {
		return binary.BigEndian.AppendUint64(b, m.Challenge), 0
	}
	b = binary.BigEndian.AppendUint64(b, m.Run)
	b = binary.AppendUvarint(b, m.Sequence)
	b = binary.BigEndian.AppendUint64(b, m.Response)
	b = binary.AppendUvarint(b, uint64(m.Hold/time.Millisecond))
	peers := m.Peers[:min(len(m.Peers), maxPeers)]
	b = append(b, byte(len(peers)))
	for _, name := range peers {
		b = binary.BigEndian.AppendUint32(b, name)
	}
	count := len(b)
	b = append(b, 0)
	for _, name := range slices.Sorted(maps.Keys(m.Advertisement.Checks)) {
		if name == "" || len(name) > maxCheckName || b[count] == maxChecks || len(b)-start+1+len(name) > maxMessage {
			omitted++
			continue
		}
		length := byte(len(name))
		if m.Advertisement.Checks[name] {
			length |= healthyBit
		}
		b = append(append(b, length), name...)
		b[count]++
	}
	return b, omitted
}

var errMalformed = errors.New("an advertisement is truncated or malformed")

// parse decodes a message. It checks the form only, not the content.
func parse(b []byte) (message, error) {
	if len(b) > maxMessage {
		return message{}, fmt.Errorf("an advertisement has %d bytes, want at most %d", len(b), maxMessage)
	}
	if len(b) < 3 || !IsMessage(b) {
		return message{}, errMalformed
	}
	if b[1] != version {
		return message{}, fmt.Errorf("an advertisement has version %d, want %d: run releases with the same version", b[1], version)
	}
	flags := b[2]
	r := wire.Reader{Rest: b[3:]}
	m := message{From: r.Name()}
	if flags&flagChallenge != 0 {
		m.Challenge = r.Uint64()
		if r.Err != nil || m.From == "" || m.Challenge == 0 {
			return message{}, errMalformed
		}
		return m, nil
	}
	m.Left, m.Advertisement.Draining, m.Advertisement.Passing = flags&flagLeft != 0, flags&flagDraining != 0, flags&flagPassing != 0
	m.Run, m.Sequence, m.Response = r.Uint64(), r.Uvarint(), r.Uint64()
	m.Hold = time.Duration(min(r.Uvarint(), uint64(maxHold/time.Millisecond))) * time.Millisecond
	peers := int(r.Byte())
	if peers > maxPeers {
		return message{}, errMalformed
	}
	for range peers {
		m.Peers = append(m.Peers, r.Uint32())
	}
	count := int(r.Byte())
	if r.Err != nil || m.From == "" || m.Run == 0 || count > maxChecks {
		return message{}, errMalformed
	}
	m.Advertisement.Checks = make(map[string]bool, count)
	for range count {
		healthy := len(r.Rest) > 0 && r.Rest[0]&healthyBit != 0
		name := string(r.Bytes(int(r.Byte() &^ healthyBit)))
		if _, twice := m.Advertisement.Checks[name]; r.Err != nil || twice || name == "" || len(name) > maxCheckName {
			return message{}, errMalformed
		}
		m.Advertisement.Checks[name] = healthy
	}
	return m, nil
}

// Advertisement is the state of a member's servers, by its own word.
type Advertisement struct {
	Draining bool            `json:"draining,omitempty"` // keeps its connections and wants no new ones
	Passing  bool            `json:"-"`                  // forwards packets of other members' connections
	Checks   map[string]bool `json:"checks"`             // healthy, by name of the check; without a verdict, omitted
}

// MemberState is the last advertisement of a member, with or without a vote.
type MemberState struct {
	Member  string         `json:"member"`
	Address netip.AddrPort `json:"-"`              // in the election
	Self    bool           `json:"self,omitempty"` // this member
	Advertisement
	// TimedOut is true if no advertisement arrived during the hold time of the last one: one lease, more in large
	// clusters. It is also true after leaving.
	TimedOut bool `json:"silent,omitempty"`
	// Left is true if the member timed out because it left by itself, perhaps for an upgrade: its servers may still be
	// healthy.
	Left     bool      `json:"left,omitempty"`
	Received time.Time `json:"heard,omitzero"`
}

func (o Advertisement) equal(other Advertisement) bool {
	return o.Draining == other.Draining && o.Passing == other.Passing && maps.Equal(o.Checks, other.Checks)
}

// same reports whether two states are equal, ignoring Received.
func (o MemberState) same(other MemberState) bool {
	return o.Member == other.Member && o.Address == other.Address && o.Self == other.Self &&
		o.TimedOut == other.TimedOut && o.Left == other.Left && o.Advertisement.equal(other.Advertisement)
}
