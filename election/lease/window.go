package lease

// windowSize is how many messages of a sender may be on their way at a time: those
// about some thousand leases come in one burst, and memberlist hands them on newest
// first.
const windowSize = 1024

// window tells which messages of a sender have been seen: a replayed one is
// dropped, one that was overtaken is not (as in RFC 4303 section 3.4.3). Those
// before the first that was seen are dropped too.
type window struct {
	top  uint64                  // the greatest sequence number seen, 0: none
	seen [windowSize / 64]uint64 // bit s % windowSize: s has been seen, for the last of them
}

// take reports whether sequence is new, and remembers it.
func (w *window) take(sequence uint64) bool {
	switch {
	case sequence == 0:
		return false
	case w.top == 0:
		for i := range w.seen {
			w.seen[i] = 1<<64 - 1
		}
		w.top = sequence
		return true
	case sequence > w.top:
		for s := max(w.top, sequence-min(sequence, windowSize)) + 1; s < sequence; s++ {
			*w.word(s) &^= bit(s)
		}
		w.top = sequence
	case w.top-sequence >= windowSize || *w.word(sequence)&bit(sequence) != 0:
		return false
	}
	*w.word(sequence) |= bit(sequence)
	return true
}

func (w *window) word(s uint64) *uint64 { return &w.seen[s%windowSize/64] }

func bit(s uint64) uint64 { return 1 << (s % 64) }
