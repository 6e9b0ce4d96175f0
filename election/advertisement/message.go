package advertisement

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/wire"
)

// The wire format of what members say of their offers. Numbers are big endian, or as
// encoding/binary's varints:
//
//	magic    1 byte: no version of the lease messages, which begin with theirs
//	version  1 byte
//	flags    1 byte
//	from     length in 1 byte, name
//
// and of a question its number, in 8 bytes; of an offer:
//
//	run      8 bytes, not 0
//	sequence varint
//	answer   8 bytes
//	hold     varint in milliseconds
//	hears    number in 1 byte, each: the FNV-1a hash of a member's name in 4 bytes
//	checks   number in 1 byte, each: its name's length and, in the highest bit, its verdict in 1 byte, name
//
// What a later release appends is left unread by an earlier one, and so are flags that it does not know.
const (
	magic   = 0xb0
	version = 1

	flagQuestion = 1 << 0
	flagDraining = 1 << 1
	flagLeft     = 1 << 2
	flagPassing  = 1 << 3

	healthyBit = 1 << 7

	// maxChecks is how many checks an offer may have, and maxCheckName how many bytes the
	// name of one.
	maxChecks    = 32
	maxCheckName = 63
	// maxPeers is of how many members an offer says that its sender hears them.
	maxPeers = 32
	// maxMessage is how many bytes a message takes at most.
	maxMessage = 1000
	// maxHold bounds how long a message may hold, whatever it says.
	maxHold = time.Minute
)

// message is one datagram: an offer, or the question for one.
type message struct {
	From          string
	Question      uint64 // if not 0, it is one: the answer is to repeat this number, by which it is known to be no older
	Run           uint64 // of the sender's process: its incarnation
	Sequence      uint64 // of the messages of this run, from 1
	Answer        uint64 // the number of the question that it answers, or 0
	Hold          time.Duration
	Left          bool     // the sender leaves, nothing more is to come
	Peers         []uint32 // the hashed names of other members that offer something, which the sender hears
	Advertisement Advertisement
}

func hashed(member string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(member)) // which cannot fail
	return h.Sum32()
}

// IsMessage reports whether an encoded message is about offers.
func IsMessage(b []byte) bool { return len(b) > 0 && b[0] == magic }

// append encodes a message. It says how many checks have been left out, for which there
// was no room, or whose names are too long.
func (m message) append(b []byte) (_ []byte, omitted int) {
	var flags byte
	if m.Question != 0 {
		flags |= flagQuestion
	}
	if m.Advertisement.Draining {
		flags |= flagDraining
	}
	if m.Left {
		flags |= flagLeft
	}
	if m.Advertisement.Passing {
		flags |= flagPassing
	}
	start := len(b)
	b = append(b, magic, version, flags, byte(len(m.From)))
	b = append(b, m.From...)
	if m.Question != 0 {
		return binary.BigEndian.AppendUint64(b, m.Question), 0
	}
	b = binary.BigEndian.AppendUint64(b, m.Run)
	b = binary.AppendUvarint(b, m.Sequence)
	b = binary.BigEndian.AppendUint64(b, m.Answer)
	b = binary.AppendUvarint(b, uint64(m.Hold/time.Millisecond))
	hears := m.Peers[:min(len(m.Peers), maxPeers)]
	b = append(b, byte(len(hears)))
	for _, name := range hears {
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

var errMalformed = errors.New("an offer is cut short or malformed")

// parse decodes a message. Only its form has been checked: what it says may be wrong.
func parse(b []byte) (message, error) {
	if len(b) > maxMessage {
		return message{}, fmt.Errorf("an offer has %d bytes, at most %d may come", len(b), maxMessage)
	}
	if len(b) < 3 || !IsMessage(b) {
		return message{}, errMalformed
	}
	if b[1] != version {
		return message{}, fmt.Errorf("an offer is of version %d, want %d: run releases that speak the same one", b[1], version)
	}
	flags := b[2]
	r := wire.Reader{Rest: b[3:]}
	m := message{From: r.Name()}
	if flags&flagQuestion != 0 {
		m.Question = r.Uint64()
		if r.Err != nil || m.From == "" || m.Question == 0 {
			return message{}, errMalformed
		}
		return m, nil
	}
	m.Left, m.Advertisement.Draining, m.Advertisement.Passing = flags&flagLeft != 0, flags&flagDraining != 0, flags&flagPassing != 0
	m.Run, m.Sequence, m.Answer = r.Uint64(), r.Uvarint(), r.Uint64()
	m.Hold = time.Duration(min(r.Uvarint(), uint64(maxHold/time.Millisecond))) * time.Millisecond
	hears := int(r.Byte())
	if hears > maxPeers {
		return message{}, errMalformed
	}
	for range hears {
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
