package lease

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The wire format. Numbers are big endian, or as encoding/binary's varints where
// they are mostly small:
//
//	version     1 byte
//	flags       1 byte: abstaining, settled, number of electorates × 4
//	from        length in 1 byte, name
//	incarnation, receiver, active, pending: 8 bytes each
//	sequence    varint
//	electorates each: quorum 1 byte, duration varint in ns, number of members 1 byte, names
//	items       to the end; each: kind 1 byte, lease 8 bytes, then by kind
const (
	version = 1

	flagAbstaining = 1 << 0
	flagSettled    = 1 << 1
	electorateUnit = 1 << 2

	maxElectorates = 2

	flagPreempt  = 1 << 0
	flagStanding = 1 << 1
)

// errShort is for a message that ends too early.
var errShort = errors.New("lease message: cut short")

// AppendBinary appends the message as it is on the wire. It fails for one that
// takes more than [MaxMessage] bytes or cannot be expressed; the machine makes
// none of those.
func (m Message) AppendBinary(b []byte) ([]byte, error) {
	if len(m.From) > 255 || len(m.Electorates) > maxElectorates {
		return nil, fmt.Errorf("lease message: name of %d bytes, %d electorates: too long", len(m.From), len(m.Electorates))
	}
	start := len(b)
	b = m.appendHeader(b)
	for _, it := range m.Items {
		b = it.append(b)
	}
	if n := len(b) - start; n > MaxMessage {
		return nil, fmt.Errorf("lease message: %d bytes, at most %d fit", n, MaxMessage)
	}
	return b, nil
}

// room is how many of the items fit the message.
func (m Message) room(items []Item) int {
	b := m.appendHeader(make([]byte, 0, MaxMessage+512))
	for i, it := range items {
		if b = it.append(b); len(b) > MaxMessage {
			return i
		}
	}
	return len(items)
}

func (m Message) appendHeader(b []byte) []byte {
	flags := byte(len(m.Electorates) * electorateUnit)
	if m.Abstaining {
		flags |= flagAbstaining
	}
	if m.Settled {
		flags |= flagSettled
	}
	b = append(b, version, flags)
	b = appendName(b, m.From)
	for _, x := range [...]uint64{m.Incarnation, m.Receiver, m.Active, m.Pending} {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	b = binary.AppendUvarint(b, m.Sequence)
	for _, e := range m.Electorates {
		b = append(b, byte(e.Quorum))
		b = binary.AppendUvarint(b, uint64(e.Duration))
		b = append(b, byte(len(e.Members)))
		for _, name := range e.Members {
			b = appendName(b, name)
		}
	}
	return b
}

func appendName(b []byte, name string) []byte {
	return append(append(b, byte(len(name))), name...)
}

func (it Item) append(b []byte) []byte {
	b = append(b, byte(it.Kind))
	b = binary.BigEndian.AppendUint64(b, it.Lease)
	if it.Kind == Stand {
		var flags byte
		if it.Preempt {
			flags |= flagPreempt
		}
		if it.Standing {
			flags |= flagStanding
		}
		b = append(b, flags)
		b = binary.AppendVarint(b, int64(it.Priority))
		return binary.AppendUvarint(b, it.Epoch)
	}
	if it.Kind == Unchanged || it.Kind == Repeat {
		return b
	}
	b = binary.AppendUvarint(b, it.Counter)
	switch it.Kind {
	case Propose, Accept:
		b = binary.AppendUvarint(b, it.Round)
	case Refuse:
		b = binary.AppendUvarint(b, it.Round)
		b = binary.AppendUvarint(b, it.Promised)
		// Rounded up: a candidate must not come back too early.
		b = binary.AppendUvarint(b, uint64((max(it.Remaining, 0)+time.Microsecond-1)/time.Microsecond))
	case Release:
		b = appendName(b, it.To)
	}
	return b
}

// ParseMessage reads a message from the wire. Only its form has been checked:
// what it says may be wrong.
func ParseMessage(b []byte) (Message, error) {
	if len(b) > MaxMessage {
		return Message{}, fmt.Errorf("lease message: %d bytes, at most %d may come", len(b), MaxMessage)
	}
	r := reader{b: b}
	if v := r.byte(); v != version && r.err == nil {
		return Message{}, fmt.Errorf("lease message: version %d, want %d: all members must run releases that speak the same one", v, version)
	}
	flags := r.byte()
	m := Message{Abstaining: flags&flagAbstaining != 0, Settled: flags&flagSettled != 0}
	m.From = r.name()
	m.Incarnation, m.Receiver, m.Active, m.Pending = r.uint64(), r.uint64(), r.uint64(), r.uint64()
	m.Sequence = r.uvarint()
	count := int(flags / electorateUnit)
	if count > maxElectorates {
		return Message{}, fmt.Errorf("lease message: %d electorates, at most %d may come", count, maxElectorates)
	}
	for range count {
		m.Electorates = append(m.Electorates, r.electorate())
	}
	const usual = 12 // bytes of an item
	if len(r.b) > 0 && r.err == nil {
		m.Items = make([]Item, 0, len(r.b)/usual+1)
	}
	for r.err == nil && len(r.b) > 0 {
		m.Items = append(m.Items, r.item())
	}
	if r.err != nil {
		return Message{}, r.err
	}
	return m, nil
}

// reader takes bytes from the front until one is missing or wrong.
type reader struct {
	b   []byte
	err error
}

func (r *reader) bytes(n int) []byte {
	if r.err != nil || len(r.b) < n {
		r.fail(errShort)
		return make([]byte, n)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) byte() byte     { return r.bytes(1)[0] }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.bytes(8)) }
func (r *reader) name() string   { return string(r.bytes(int(r.byte()))) }

func (r *reader) uvarint() uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *reader) varint() int64 {
	x, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return x
}

// duration reads a number of units. What no lease needs becomes the most there is.
func (r *reader) duration(unit time.Duration) time.Duration {
	return time.Duration(min(r.uvarint(), uint64(2*maxDuration/unit))) * unit
}

func (r *reader) electorate() Electorate {
	e := Electorate{Quorum: Quorum(r.byte()), Duration: r.duration(time.Nanosecond)}
	for range r.byte() {
		if r.err != nil {
			break
		}
		e.Members = append(e.Members, r.name())
	}
	return e
}

func (r *reader) item() Item {
	it := Item{Kind: Kind(r.byte()), Lease: r.uint64()}
	switch it.Kind {
	case Stand:
		flags := r.byte()
		it.Preempt, it.Standing = flags&flagPreempt != 0, flags&flagStanding != 0
		it.Priority, it.Epoch = int(r.varint()), r.uvarint()
	case Prepare, Promise:
		it.Counter = r.uvarint()
	case Propose, Accept:
		it.Counter, it.Round = r.uvarint(), r.uvarint()
	case Refuse:
		it.Counter, it.Round, it.Promised = r.uvarint(), r.uvarint(), r.uvarint()
		it.Remaining = r.duration(time.Microsecond)
	case Release:
		it.Counter, it.To = r.uvarint(), r.name()
	case Unchanged, Repeat:
	default:
		r.fail(fmt.Errorf("lease message: unknown kind of item %d", it.Kind))
	}
	return it
}
