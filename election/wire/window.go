package wire

// windowSize is how many messages of a sender may be on their way at a time: those
// about some thousand leases come in one burst, and memberlist hands them on newest
// first.
const windowSize = 1024

// Window tells which messages of a sender have been seen: a replayed one is
// dropped, one that was overtaken is not (as in RFC 4303 section 3.4.3). Those
// before the first that was seen are dropped too.
type Window struct {
	Top  uint64                  // the greatest sequence number seen, 0: none
	seen [windowSize / 64]uint64 // bit s % windowSize: s has been seen, for the last of them
}

// Take reports whether sequence is new, and remembers it.
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
