package hostile

import (
	"encoding/binary"
	"iter"
	"slices"
)

// mutations sends 10,000 changed UPDATEs, and begins a new session whenever the speaker ends one.
func (g *generator) mutations() iter.Seq[script] {
	sent := 0
	mutants := func(yield func([]byte) bool) {
		for sent < 10_000 {
			sent++
			if !yield(g.mutant()) {
				return
			}
		}
	}
	return func(yield func(script) bool) {
		for i := 0; sent < 10_000; i++ {
			s := script{settle: true, lockstep: true, messages: mutants}
			if i%4 == 3 {
				s.open = g.oldOpen()
			}
			if !yield(s) {
				return
			}
		}
	}
}

// mutant returns a valid UPDATE with one to four changes. Most have the lengths of the
// three parts corrected: a wrong length is detected early, and hides the rest of the
// message.
func (g *generator) mutant() []byte {
	valid := g.validUpdates()
	m, other := valid[g.IntN(len(valid))], valid[g.IntN(len(valid))]
	changes := 1 + g.IntN(4)
	if g.IntN(8) == 0 {
		body := slices.Clone(m[headerLength:])
		for range changes {
			body = g.mutate(body, other[headerLength:])
		}
		return message(typeUpdate, body)
	}
	parts, others := split(m), split(other)
	for range changes {
		i := []int{0, 1, 1, 1, 1, 2}[g.IntN(6)]
		parts[i] = g.mutate(parts[i], others[i])
	}
	return update(parts[0], parts[1], parts[2])
}

// split returns the parts of a valid UPDATE: withdrawn routes, attributes and routes.
func split(m []byte) [3][]byte {
	m = slices.Clone(m[headerLength:])
	n := 2 + int(binary.BigEndian.Uint16(m))
	withdrawn, rest := m[2:n:n], m[n:]
	n = 2 + int(binary.BigEndian.Uint16(rest))
	return [3][]byte{withdrawn, rest[2:n:n], rest[n:]}
}

// mutate changes b once; it may splice in a piece of other.
func (g *generator) mutate(b, other []byte) []byte {
	if len(b) == 0 {
		return slices.Clone(other)
	}
	at := g.IntN(len(b))
	n := g.IntN(min(len(b)-at, 16) + 1)
	switch g.IntN(7) {
	case 0: // a flipped bit
		b[at] ^= 1 << g.IntN(8)
	case 1: // another octet, often a boundary value
		b[at] = []byte{0, 1, 4, 32, 33, 128, 255, byte(g.Uint32())}[g.IntN(8)]
	case 2: // another length of two octets
		if at+2 <= len(b) {
			binary.BigEndian.PutUint16(b[at:], uint16(g.Uint32())>>g.IntN(16))
		}
	case 3: // a deletion
		b = slices.Delete(b, at, at+n)
	case 4: // a repetition
		b = slices.Insert(b, at, slices.Clone(b[at:at+n])...)
	case 5: // a part of another message
		b = slices.Insert(b, at, other[g.IntN(len(other)+1):]...)
	case 6: // an early end
		b = b[:at]
	}
	return b
}
