package bfd

import (
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// slow is the shortest interval of a session that is not up (RFC 5880 section 6.8.3).
const slow = time.Second

// unrestricted is the Required Min RX Interval of a peer before its first packet (RFC 5880 section 6.8.1).
const unrestricted = time.Microsecond

// machine is one session of RFC 5880 section 6.8. It has no clock, socket or random source: the caller
// provides packets and the time, and sends the result of packet when next says so.
type machine struct {
	discriminator uint32
	interval      time.Duration // as configured
	multiplier    uint8

	state State
	diag  Diagnostic
	// failed and downs are as in Status.
	failed bool
	downs  uint64

	// remote is the last packet of the peer, receivedAt its time. Its discriminator is 0 while the peer is unknown.
	remote     Packet
	receivedAt time.Time
	// lost is the discriminator of a peer with an expired detection time, until a packet has named it.
	lost uint32

	// offered are the intervals in our packets, agreed the intervals that the peer has acknowledged: an established
	// session polls after a change until the peer answers.
	offered, agreed intervals
	polling         bool

	sent   time.Time // the last packet
	urgent bool      // a packet is due at once: the state has changed, or a poll begins
	final  bool      // the peer polls, and gets its answer with the next packet
}

// intervals are the two intervals in a packet.
type intervals struct{ tx, rx time.Duration }

func newMachine(discriminator uint32, interval time.Duration, multiplier uint8, now time.Time) machine {
	m := machine{discriminator: discriminator, interval: interval, multiplier: multiplier, state: Down, sent: now, urgent: true}
	m.forget()
	m.offer()
	return m
}

// configure changes the intervals and the multiplier of a running session.
func (m *machine) configure(interval time.Duration, multiplier uint8) {
	m.interval, m.multiplier = interval, multiplier
	// Finish a running poll first: its answer must not count for the new values.
	if !m.polling {
		m.offer()
	}
}

// offer puts the configured intervals into the packets, with a Poll Sequence when the session is up
// (RFC 5880 section 6.8.3).
func (m *machine) offer() {
	m.offered = intervals{m.interval, m.interval}
	if m.state == Up {
		m.polling = m.offered != m.agreed
		m.urgent = m.urgent || m.polling
		return
	}
	m.offered.tx = max(m.interval, slow)
	m.agreed, m.polling = m.offered, false
}

// receive takes a packet that belongs to this session (RFC 5880 section 6.8.6).
func (m *machine) receive(p *Packet, now time.Time) {
	m.remote, m.receivedAt = *p, now
	if p.Final && m.polling {
		m.agreed, m.polling = m.offered, false
		m.offer() // again, if the configuration has changed meanwhile
	}
	if m.state == AdminDown {
		return
	}
	m.final = m.final || p.Poll
	switch {
	case p.State == AdminDown:
		// The peer shuts the session down, which says nothing about the path (RFC 5882 section 4.2) or about an
		// earlier failure.
		if m.state != Down {
			m.enter(Down, NeighborSignaledDown)
		}
		m.failed = false
	case m.state == Down && p.State == Down:
		m.enter(Init, m.diag)
	case m.state == Down && p.State == Init, m.state == Init && p.State >= Init:
		m.enter(Up, NoDiagnostic)
	case m.state == Up && p.State == Down:
		m.enter(Down, NeighborSignaledDown)
	}
}

// expire ends the session if the detection time has passed.
func (m *machine) expire(now time.Time) {
	if !wake.Due(now, m.deadline()) {
		return
	}
	lost := m.remote.MyDiscriminator
	m.forget()
	if m.state == Init || m.state == Up {
		m.enter(Down, DetectionTimeExpired)
		// The peer may still receive this end's packets. FRR and others ignore a packet that names no session and
		// would end one, so the first still names it.
		m.lost = lost
	}
}

// shutDown takes the session out of service for good.
func (m *machine) shutDown() { m.enter(AdminDown, AdministrativelyDown) }

// enter changes the state, and makes a packet due at once.
func (m *machine) enter(s State, d Diagnostic) {
	if m.state == Up {
		m.downs++
		m.failed = true
	}
	if s == Up || s == AdminDown {
		m.failed = false
	}
	m.state, m.diag, m.urgent = s, d, true
	m.offer()
}

// forget resets the peer's values to those before its first packet.
func (m *machine) forget() {
	m.remote = Packet{State: Down, RequiredMinRx: unrestricted, Diagnostic: m.remote.Diagnostic}
}

// known reports whether a packet of the peer arrived within the detection time.
func (m *machine) known() bool { return m.remote.MyDiscriminator != 0 }

// detectionTime returns the detection time (RFC 5880 section 6.8.4), 0 while the peer is unknown. A smaller Required Min RX
// applies only once the peer has acknowledged it. By then the peer sends fast enough.
func (m *machine) detectionTime() time.Duration {
	rx := max(m.offered.rx, m.agreed.rx)
	return time.Duration(m.remote.Multiplier) * max(rx, m.remote.DesiredMinTx)
}

// deadline returns the end of the detection time, zero while the peer is unknown.
func (m *machine) deadline() time.Time {
	if !m.known() {
		return time.Time{}
	}
	return m.receivedAt.Add(m.detectionTime())
}

// txInterval returns the time between two packets before jitter (RFC 5880 section 6.8.7). A greater Desired Min TX
// applies only once the peer has acknowledged it. By then the peer waits long enough.
func (m *machine) txInterval() time.Duration {
	tx := min(m.offered.tx, m.agreed.tx)
	return max(tx, m.remote.RequiredMinRx)
}

// next returns when the next packet is due, zero if none is. Chance, from 0 to 1, makes the interval up to a quarter
// shorter, and with a multiplier of 1 at least a tenth.
func (m *machine) next(chance float64) time.Time {
	if m.urgent || m.final {
		return m.sent
	}
	if m.remote.RequiredMinRx == 0 {
		return time.Time{} // the peer wants no packets
	}
	least := 0.0
	if m.multiplier == 1 {
		least = 0.10
	}
	jitter := least + (0.25-least)*chance
	return m.sent.Add(time.Duration(float64(m.txInterval()) * (1 - jitter)))
}

// packet returns the packet to send now (RFC 5880 section 6.8.7).
func (m *machine) packet(now time.Time) Packet {
	p := Packet{
		Diagnostic:        m.diag,
		State:             m.state,
		Poll:              m.polling && !m.final, // never both
		Final:             m.final,
		Multiplier:        m.multiplier,
		MyDiscriminator:   m.discriminator,
		YourDiscriminator: m.remote.MyDiscriminator,
		DesiredMinTx:      m.offered.tx,
		RequiredMinRx:     m.offered.rx,
	}
	if !m.known() {
		p.YourDiscriminator = m.lost
	}
	m.sent, m.urgent, m.final, m.lost = now, false, false, 0
	return p
}
