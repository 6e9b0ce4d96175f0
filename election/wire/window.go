package wire

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
