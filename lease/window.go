package lease

// window tells which messages of a sender have been seen: a replayed one is
// dropped, one that was overtaken is not (as in RFC 4303 section 3.4.3). Those
// before the first that was seen are dropped too.
type window struct {
	top  uint64 // the greatest sequence number seen, 0: none
	seen uint64 // bit i: top - i has been seen
}

// take reports whether sequence is new, and remembers it.
func (w *window) take(sequence uint64) bool {
	switch {
	case sequence > w.top && w.top == 0:
		w.top, w.seen = sequence, 1<<64-1
		return true
	case sequence > w.top:
		w.top, w.seen = sequence, w.seen<<min(sequence-w.top, 64)|1
		return true
	}
	age := w.top - sequence
	if sequence == 0 || age >= 64 || w.seen>>age&1 != 0 {
		return false
	}
	w.seen |= 1 << age
	return true
}
