package message

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/wire"
)

// The wire format. Numbers are big endian, or as encoding/binary's varints where they are mostly small:
//
//	version     1 byte
//	flags       1 byte: abstaining, has an electorate, has a change, hears a majority; receivers ignore others
//	from        length in 1 byte, name
//	incarnation, receiver, cluster, active, desired: 8 bytes each
//	number, sequence: varints
//	electorate  quorum 1 byte, duration varint in ns, number of members 1 byte, names
//	change      phase 1 byte, ballot, 1 byte whether it has a value, and if so: accepted ballot, electorate;
//	            a ballot is a varint and 8 bytes
//	items       to the end; each: kind 1 byte, lease 8 bytes, then by kind
const (
	version = 2

	flagAbstaining = 1 << 0
	flagElectorate = 1 << 1
	flagChange     = 1 << 2
	flagHeard      = 1 << 3

	flagPreempt     = 1 << 0
	flagCampaigning = 1 << 1
)

// AppendBinary appends the message in wire format. It fails for a message of more than [MaxSize] bytes or a message that
// cannot be expressed; the machine produces neither.
func (m Message) AppendBinary(b []byte) ([]byte, error) {
	if len(m.From) > 255 {
		return nil, fmt.Errorf("lease message: name of %d bytes: too long", len(m.From))
	}
	start := len(b)
	b = m.appendHeader(b)
	for _, it := range m.Items {
		b = it.append(b)
	}
	if n := len(b) - start; n > MaxSize {
		return nil, fmt.Errorf("lease message: %d bytes, at most %d fit", n, MaxSize)
	}
	return b, nil
}

// Room returns how many of the items fit the message.
func (m Message) Room(items []Item) int {
	b := m.appendHeader(make([]byte, 0, MaxSize+512))
	for i, it := range items {
		if b = it.append(b); len(b) > MaxSize {
			return i
		}
	}
	return len(items)
}

func (m Message) appendHeader(b []byte) []byte {
	flags := wire.Flag(flagAbstaining, m.Abstaining) | wire.Flag(flagElectorate, m.Electorate != nil) | wire.Flag(flagChange, m.Change != nil) |
		wire.Flag(flagHeard, m.Heard)
	b = append(b, version, flags)
	b = appendName(b, m.From)
	for _, x := range [...]uint64{m.Incarnation, m.Receiver, m.Cluster, m.Active, m.Desired} {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	b = binary.AppendUvarint(b, m.Number)
	b = binary.AppendUvarint(b, m.Sequence)
	if m.Electorate != nil {
		b = appendElectorate(b, m.Electorate)
	}
	if m.Change != nil {
		b = m.Change.append(b)
	}
	return b
}

func (c *Change) append(b []byte) []byte {
	b = appendBallot(append(b, byte(c.Phase)), c.Ballot)
	if c.Value == nil {
		return append(b, 0)
	}
	return appendElectorate(appendBallot(append(b, 1), c.Accepted), c.Value)
}

func appendBallot(b []byte, x Ballot) []byte {
	return binary.BigEndian.AppendUint64(binary.AppendUvarint(b, x.Counter), x.Owner)
}

func appendElectorate(b []byte, e *electorate.Electorate) []byte {
	b = append(b, byte(e.Quorum))
	b = binary.AppendUvarint(b, uint64(e.Duration))
	b = append(b, byte(len(e.Members)))
	for _, name := range e.Members {
		b = appendName(b, name)
	}
	return b
}

func appendName(b []byte, name string) []byte {
	return append(append(b, byte(len(name))), name...)
}

func (it Item) append(b []byte) []byte {
	b = append(b, byte(it.Kind))
	b = binary.BigEndian.AppendUint64(b, it.Lease)
	if it.Kind == Campaign {
		b = append(b, wire.Flag(flagPreempt, it.Preempt)|wire.Flag(flagCampaigning, it.Campaigning))
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
		// Rounded up, so that a candidate does not return too early.
		b = binary.AppendUvarint(b, uint64((max(it.Remaining, 0)+time.Microsecond-1)/time.Microsecond))
	case Release:
		b = appendName(b, it.To)
	}
	return b
}

// Parse reads a message from the wire. It checks the form only, not the content.
func Parse(b []byte) (Message, error) {
	if len(b) > MaxSize {
		return Message{}, fmt.Errorf("lease message: %d bytes, want at most %d", len(b), MaxSize)
	}
	r := reader{wire.Reader{Rest: b}}
	if v := r.Byte(); v != version && r.Err == nil {
		return Message{}, fmt.Errorf("lease message: version %d, want %d: run releases with the same version on all members", v, version)
	}
	flags := r.Byte()
	m := Message{Abstaining: flags&flagAbstaining != 0, Heard: flags&flagHeard != 0}
	m.From = r.Name()
	m.Incarnation, m.Receiver = r.Uint64(), r.Uint64()
	m.Cluster, m.Active, m.Desired = r.Uint64(), r.Uint64(), r.Uint64()
	m.Number, m.Sequence = r.Uvarint(), r.Uvarint()
	if flags&flagElectorate != 0 {
		m.Electorate = r.electorate()
	}
	if flags&flagChange != 0 {
		m.Change = r.change()
	}
	const usual = 12 // bytes of an item
	if len(r.Rest) > 0 && r.Err == nil {
		m.Items = make([]Item, 0, len(r.Rest)/usual+1)
	}
	for r.Err == nil && len(r.Rest) > 0 {
		m.Items = append(m.Items, r.item())
	}
	if r.Err != nil {
		return Message{}, fmt.Errorf("lease message: %w", r.Err)
	}
	return m, nil
}

// reader reads the parts of messages.
type reader struct{ wire.Reader }

// duration reads a number of units. It caps values beyond any valid lease.
func (r *reader) duration(unit time.Duration) time.Duration {
	return time.Duration(min(r.Uvarint(), uint64(2*electorate.MaxDuration/unit))) * unit
}

func (r *reader) electorate() *electorate.Electorate {
	e := &electorate.Electorate{Quorum: electorate.Quorum(r.Byte()), Duration: r.duration(time.Nanosecond)}
	for range r.Byte() {
		if r.Err != nil {
			break
		}
		e.Members = append(e.Members, r.Name())
	}
	return e
}

func (r *reader) ballot() Ballot { return Ballot{r.Uvarint(), r.Uint64()} }

func (r *reader) change() *Change {
	c := &Change{Phase: Phase(r.Byte()), Ballot: r.ballot()}
	if c.Phase < Asked || c.Phase > Refused {
		r.Fail(fmt.Errorf("unknown phase %d", c.Phase))
	}
	if r.Byte() != 0 {
		c.Accepted, c.Value = r.ballot(), r.electorate()
	}
	return c
}

func (r *reader) item() Item {
	it := Item{Kind: Kind(r.Byte()), Lease: r.Uint64()}
	switch it.Kind {
	case Campaign:
		flags := r.Byte()
		it.Preempt, it.Campaigning = flags&flagPreempt != 0, flags&flagCampaigning != 0
		it.Priority, it.Epoch = int(r.Varint()), r.Uvarint()
	case Prepare, Promise:
		it.Counter = r.Uvarint()
	case Propose, Accept:
		it.Counter, it.Round = r.Uvarint(), r.Uvarint()
	case Refuse:
		it.Counter, it.Round, it.Promised = r.Uvarint(), r.Uvarint(), r.Uvarint()
		it.Remaining = r.duration(time.Microsecond)
	case Release:
		it.Counter, it.To = r.Uvarint(), r.Name()
	case Unchanged, Repeat:
	default:
		r.Fail(fmt.Errorf("unknown kind of item %d", it.Kind))
	}
	return it
}
