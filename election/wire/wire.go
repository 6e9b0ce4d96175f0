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
