// Package wire decodes messages of members, which may be truncated, forged or replayed, and computes their hashes.
package wire

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
)

var errShort = errors.New("cut short")

// Reader takes values from the front of a message. After the first missing or invalid value, it returns zero values.
type Reader struct {
	Rest []byte
	Err  error // the first
}

// Fail records an invalid value.
func (r *Reader) Fail(err error) {
	if r.Err == nil {
		r.Err = err
	}
}

func (r *Reader) Bytes(n int) []byte {
	if r.Err != nil || len(r.Rest) < n {
		r.Fail(errShort)
		return make([]byte, n)
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

func (r *Reader) Byte() byte     { return r.Bytes(1)[0] }
func (r *Reader) Uint32() uint32 { return binary.BigEndian.Uint32(r.Bytes(4)) }
func (r *Reader) Uint64() uint64 { return binary.BigEndian.Uint64(r.Bytes(8)) }

// Name reads a string with its length in one byte before it.
func (r *Reader) Name() string { return string(r.Bytes(int(r.Byte()))) }

func (r *Reader) Uvarint() uint64 {
	x, n := binary.Uvarint(r.Rest)
	r.skip(n)
	return x
}

func (r *Reader) Varint() int64 {
	x, n := binary.Varint(r.Rest)
	r.skip(n)
	return x
}

func (r *Reader) skip(n int) {
	if n <= 0 {
		r.Fail(errShort)
		return
	}
	r.Rest = r.Rest[n:]
}

// Flag returns bit if it is set, for the flags of a message.
func Flag(bit byte, set bool) byte {
	if !set {
		return 0
	}
	return bit
}

// Hash returns a well-mixed hash of a name and a number, equal on all members.
func Hash(name string, number uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	h.Write(binary.BigEndian.AppendUint64(nil, number))
	return Mix(h.Sum64())
}

// Mix spreads differences in the low bits over all bits (finalizer of SplitMix64): FNV gives similar names similar high
// bits.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// windowSize limits the messages of a sender in flight. Those about thousands of leases form one burst, and memberlist
// delivers the newest first.
const windowSize = 1024

// Window detects replayed messages of a sender; an overtaken message is still new (as in RFC 4303 section 3.4.3).
// Messages before the first one seen count as replayed.
type Window struct {
	Top  uint64                  // greatest sequence number seen; 0: none
	seen [windowSize / 64]uint64 // bit s % windowSize: s has been seen, for the last windowSize numbers
}

// Take reports whether sequence is new, and records it.
func (w *Window) Take(sequence uint64) bool {
	switch {
	case sequence == 0:
		return false
	case w.Top == 0:
		for i := range w.seen {
			w.seen[i] = 1<<64 - 1
		}
		w.Top = sequence
		return true
	case sequence > w.Top:
		for s := max(w.Top, sequence-min(sequence, windowSize)) + 1; s < sequence; s++ {
			*w.word(s) &^= bit(s)
		}
		w.Top = sequence
	case w.Top-sequence >= windowSize || *w.word(sequence)&bit(sequence) != 0:
		return false
	}
	*w.word(sequence) |= bit(sequence)
	return true
}

func (w *Window) word(s uint64) *uint64 { return &w.seen[s%windowSize/64] }

func bit(s uint64) uint64 { return 1 << (s % 64) }
