package bfd

import (
	"testing"
	"time"
)

const (
	mine   = 0x11 // discriminators
	theirs = 0x22
)

// epoch is the time at which the tests of the machine begin.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fromPeer returns a packet of a peer that runs at 50 ms with a multiplier of 3.
func fromPeer(s State, change ...func(*Packet)) *Packet {
	p := &Packet{
		State: s, Multiplier: 3, MyDiscriminator: theirs, YourDiscriminator: mine,
		DesiredMinTx: 50 * time.Millisecond, RequiredMinRx: 50 * time.Millisecond,
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func poll(p *Packet)  { p.Poll = true }
func final(p *Packet) { p.Final = true }

// in returns a machine in the state at epoch, which has just received a packet. No packet is due, and no poll runs.
func in(s State) machine {
	m := newMachine(mine, 50*time.Millisecond, 3, epoch)
	switch s {
	case AdminDown:
		m.receive(fromPeer(Up), epoch)
		m.shutDown()
	case Down:
		m.receive(fromPeer(AdminDown), epoch)
	case Init:
		m.receive(fromPeer(Down), epoch)
	case Up:
		m.receive(fromPeer(Init), epoch)
		m.receive(fromPeer(Up, final), epoch)
	}
	m.packet(epoch)
	return m
}

// TestTransitions covers every state and event of RFC 5880 section 6.2, and the timer of section 6.8.4. A packet is
// due at once after a change, and only then.
func TestTransitions(t *testing.T) {
	const expired State = 9 // not a packet: the detection time passes
	const none = NoDiagnostic
	for _, test := range []struct {
		from, event State
		dst         State
		diag        Diagnostic
		failed      bool
	}{
		{from: AdminDown, event: AdminDown, dst: AdminDown, diag: AdministrativelyDown},
		{from: AdminDown, event: Down, dst: AdminDown, diag: AdministrativelyDown},
		{from: AdminDown, event: Init, dst: AdminDown, diag: AdministrativelyDown},
		{from: AdminDown, event: Up, dst: AdminDown, diag: AdministrativelyDown},
		{from: AdminDown, event: expired, dst: AdminDown, diag: AdministrativelyDown},

		{from: Down, event: AdminDown, dst: Down, diag: none},
		{from: Down, event: Down, dst: Init, diag: none},
		{from: Down, event: Init, dst: Up, diag: none},
		{from: Down, event: Up, dst: Down, diag: none},
		{from: Down, event: expired, dst: Down, diag: none},

		{from: Init, event: AdminDown, dst: Down, diag: NeighborSignaledDown},
		{from: Init, event: Down, dst: Init, diag: none},
		{from: Init, event: Init, dst: Up, diag: none},
		{from: Init, event: Up, dst: Up, diag: none},
		{from: Init, event: expired, dst: Down, diag: DetectionTimeExpired},

		{from: Up, event: AdminDown, dst: Down, diag: NeighborSignaledDown},
		{from: Up, event: Down, dst: Down, diag: NeighborSignaledDown, failed: true},
		{from: Up, event: Init, dst: Up, diag: none},
		{from: Up, event: Up, dst: Up, diag: none},
		{from: Up, event: expired, dst: Down, diag: DetectionTimeExpired, failed: true},
	} {
		m, name := in(test.from), test.from.String()+" receives "+test.event.String()
		if m.state != test.from {
			t.Fatalf("the test begins in %v, not %v", m.state, test.from)
		}
		if test.event == expired {
			name = test.from.String() + " receives nothing"
			m.expire(epoch.Add(m.detectionTime()))
		} else {
			m.receive(fromPeer(test.event), epoch.Add(time.Millisecond))
		}
		if m.state != test.dst || m.diag != test.diag || m.failed != test.failed {
			t.Errorf("%s: %v, %v, failed %v; want %v, %v, %v", name, m.state, m.diag, m.failed, test.dst, test.diag, test.failed)
		}
		if changed := test.dst != test.from; m.urgent != changed {
			t.Errorf("%s: a packet is due at once: %v, want %v", name, m.urgent, changed)
		}
		if down := test.from == Up && test.dst == Down; (m.downs == 1) != down {
			t.Errorf("%s: it went down %d times", name, m.downs)
		}
		if p := m.packet(epoch); p.State != test.dst || p.Diagnostic != test.diag || p.MyDiscriminator != mine {
			t.Errorf("%s: the packet is %+v", name, p)
		}
	}
}

// A path counts as failed until the session is up again or the peer shuts it down.
func TestFailedUntil(t *testing.T) {
	for _, test := range []struct {
		name  string
		event State
		want  bool
	}{
		{"the peer sends Down", Down, true},
		{"the peer shuts the session down", AdminDown, false},
		{"the session is up", Init, false},
	} {
		m := in(Up)
		m.expire(epoch.Add(time.Second))
		if m.receive(fromPeer(test.event), epoch.Add(2*time.Second)); m.failed != test.want {
			t.Errorf("%s: failed %v, want %v", test.name, m.failed, test.want)
		}
	}
}

// The values of a silent peer are reset (RFC 5880 section 6.8.1).
func TestForgetsSilentPeer(t *testing.T) {
	for _, s := range []State{AdminDown, Down, Init, Up} {
		m := in(s)
		m.remote.RequiredMinRx = 0
		deadline := m.deadline()
		m.expire(deadline.Add(-1))
		if m.packet(deadline).YourDiscriminator != theirs {
			t.Errorf("%v: forgotten too early", s)
		}
		m.expire(deadline)
		got := m.packet(deadline).YourDiscriminator
		if lost := s == Init || s == Up; lost != (got == theirs) {
			t.Errorf("%v: the first packet has the discriminator %#x", s, got)
		}
		if p := m.packet(deadline); p.YourDiscriminator != 0 || !m.deadline().IsZero() || m.detectionTime() != 0 {
			t.Errorf("%v: not forgotten: %+v", s, m.remote)
		}
		if m.next(0).IsZero() {
			t.Errorf("%v: no packet is due to a lost peer that had asked for none", s)
		}
	}
}

// The slower end sets the pace (RFC 5880 sections 6.8.3, 6.8.4 and 6.8.7).
func TestIntervals(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name               string
		state              State
		interval           time.Duration
		remoteTx, remoteRx time.Duration
		multiplier         uint8
		tx, detection      time.Duration
	}{
		{"alike", Up, 50 * ms, 50 * ms, 50 * ms, 3, 50 * ms, 150 * ms},
		{"the peer receives slower", Up, 50 * ms, 50 * ms, 300 * ms, 3, 300 * ms, 150 * ms},
		{"the peer sends slower", Up, 50 * ms, 400 * ms, 50 * ms, 3, 50 * ms, 1200 * ms},
		{"the peer is faster", Up, 50 * ms, 10 * ms, 10 * ms, 5, 50 * ms, 250 * ms},
		{"not up", Init, 50 * ms, 50 * ms, 50 * ms, 3, time.Second, 150 * ms},
		{"not up, and slow anyway", Init, 2 * time.Second, 50 * ms, 50 * ms, 3, 2 * time.Second, 6 * time.Second},
	} {
		m := newMachine(mine, test.interval, 3, epoch)
		intervals := func(p *Packet) {
			p.DesiredMinTx, p.RequiredMinRx, p.Multiplier = test.remoteTx, test.remoteRx, test.multiplier
		}
		m.receive(fromPeer(Down, intervals), epoch)
		if test.state == Up {
			m.receive(fromPeer(Up, intervals), epoch)
			m.receive(fromPeer(Up, intervals, final), epoch)
		}
		if m.state != test.state || m.txInterval() != test.tx || m.detectionTime() != test.detection {
			t.Errorf("%s: %v, sends every %v, waits for %v; want %v, %v, %v",
				test.name, m.state, m.txInterval(), m.detectionTime(), test.state, test.tx, test.detection)
		}
	}
}

func TestRequiredMinRxZero(t *testing.T) {
	m := in(Up)
	none := func(p *Packet) { p.RequiredMinRx = 0 }
	m.receive(fromPeer(Up, none), epoch)
	if at := m.next(1); !at.IsZero() {
		t.Errorf("a packet is due at %v", at)
	}
	m.receive(fromPeer(Up, none, poll), epoch)
	if m.next(1).IsZero() {
		t.Error("a poll gets no answer")
	}
}

// Jitter makes an interval up to a quarter shorter, and with a multiplier of 1 at least a tenth (RFC 5880 section 6.8.7).
func TestJitter(t *testing.T) {
	for _, test := range []struct {
		multiplier  uint8
		chance      float64
		least, most time.Duration
	}{
		{3, 0, 1000 * time.Microsecond, 1000 * time.Microsecond},
		{3, 0.9999999, 750 * time.Microsecond, 751 * time.Microsecond},
		{1, 0, 899 * time.Microsecond, 900 * time.Microsecond},
		{1, 0.9999999, 750 * time.Microsecond, 751 * time.Microsecond},
	} {
		m := in(Up)
		m.configure(50*time.Millisecond, test.multiplier)
		got := m.next(test.chance).Sub(epoch) / 50
		if got < test.least || got > test.most {
			t.Errorf("multiplier %d, chance %v: %v thousandths of an interval, want %v to %v", test.multiplier, test.chance, got, test.least, test.most)
		}
	}
}

// A session that comes up changes from the slow rate to its own by a Poll Sequence, which lasts until the peer answers.
func TestPollsWhenUp(t *testing.T) {
	m := newMachine(mine, 50*time.Millisecond, 3, epoch)
	if p := m.packet(epoch); p.DesiredMinTx != slow || p.RequiredMinRx != 50*time.Millisecond || p.Poll {
		t.Errorf("down: %+v", p)
	}
	m.receive(fromPeer(Init), epoch)
	for range 3 {
		if p := m.packet(epoch); !p.Poll || p.DesiredMinTx != 50*time.Millisecond {
			t.Errorf("up: %+v", p)
		}
	}
	m.receive(fromPeer(Up, poll), epoch)
	if p := m.packet(epoch); !p.Final || p.Poll {
		t.Errorf("answer to a poll: %+v", p)
	}
	if p := m.packet(epoch); !p.Poll || p.Final {
		t.Errorf("after the answer: %+v", p)
	}
	m.receive(fromPeer(Up, final), epoch)
	if p := m.packet(epoch); p.Poll || p.Final {
		t.Errorf("after the peer's answer: %+v", p)
	}
	if m.receive(fromPeer(Down), epoch); m.packet(epoch).DesiredMinTx != slow {
		t.Error("down again, and not slow")
	}
}

// After a change of a session that is up, the safer of the old and the new value counts until the peer answers. That
// is the shorter time between packets, and the longer detection time.
func TestChange(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name                 string
		dst                  time.Duration
		tx, detection        time.Duration // during the poll
		txAfter, detectAfter time.Duration
	}{
		{"slower", 200 * ms, 50 * ms, 600 * ms, 200 * ms, 600 * ms},
		{"faster", 10 * ms, 10 * ms, 150 * ms, 10 * ms, 30 * ms},
	} {
		m := in(Up)
		fast := func(p *Packet) { p.DesiredMinTx, p.RequiredMinRx = 10*ms, 10*ms }
		m.receive(fromPeer(Up, fast), epoch)
		m.configure(test.dst, 3)
		if !m.urgent || m.txInterval() != test.tx || m.detectionTime() != test.detection {
			t.Errorf("%s: polls at once %v, sends every %v, waits for %v; want %v, %v", test.name, m.urgent, m.txInterval(), m.detectionTime(), test.tx, test.detection)
		}
		if p := m.packet(epoch); !p.Poll || p.DesiredMinTx != test.dst || p.RequiredMinRx != test.dst {
			t.Errorf("%s: offers %+v", test.name, p)
		}
		m.receive(fromPeer(Up, fast, final), epoch)
		if m.state != Up || m.txInterval() != test.txAfter || m.detectionTime() != test.detectAfter {
			t.Errorf("%s: %v, afterwards sends every %v, waits for %v; want %v, %v", test.name, m.state, m.txInterval(), m.detectionTime(), test.txAfter, test.detectAfter)
		}
	}
}

// A change during a poll waits until that poll ends: the answer to the first must not count for the second.
func TestChangeDuringPoll(t *testing.T) {
	m := in(Up)
	m.configure(20*time.Millisecond, 3)
	m.packet(epoch)
	m.configure(10*time.Millisecond, 4)
	if p := m.packet(epoch); p.DesiredMinTx != 20*time.Millisecond || p.Multiplier != 4 {
		t.Errorf("first poll: %+v", p)
	}
	m.receive(fromPeer(Up, final), epoch)
	if p := m.packet(epoch); !p.Poll || p.DesiredMinTx != 10*time.Millisecond {
		t.Errorf("second poll: %+v", p)
	}
	m.receive(fromPeer(Up, final), epoch)
	if p := m.packet(epoch); p.Poll {
		t.Errorf("after both: %+v", p)
	}
}
