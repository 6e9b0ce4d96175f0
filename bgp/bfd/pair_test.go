package bfd

import (
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pair is two machines on a simulated network, in virtual time.
type pair struct {
	now        time.Time
	chance     *rand.Rand
	ends       [2]machine
	flying     [2][]flight // to ends[i]
	cut        [2]bool     // packets to ends[i] are lost
	receivedAt [2]time.Time
}

type flight struct {
	at     time.Time
	packet Packet
}

const (
	step  = time.Millisecond
	delay = 3 * time.Millisecond // one way
)

func newPair(seed uint64, a, b time.Duration, multiplier uint8) *pair {
	p := &pair{now: epoch, chance: rand.New(rand.NewPCG(seed, 1))}
	p.ends[0] = newMachine(mine, a, multiplier, epoch)
	p.ends[1] = newMachine(theirs, b, multiplier, epoch)
	return p
}

// advance lets one step of time pass.
func (p *pair) advance(t *rapid.T) {
	p.now = p.now.Add(step)
	for i := range p.ends {
		m := &p.ends[i]
		for len(p.flying[i]) > 0 && !p.flying[i][0].at.After(p.now) {
			if !p.cut[i] {
				m.receive(&p.flying[i][0].packet, p.now)
				p.receivedAt[i] = p.now
			}
			p.flying[i] = p.flying[i][1:]
		}
		prev, deadline := m.state, m.deadline()
		m.expire(p.now)
		if prev == Up && m.state == Down && p.now.Before(deadline) {
			t.Fatalf("end %d is down %v after the last packet, before its detection time", i, p.now.Sub(p.receivedAt[i]))
		}
		if at := m.next(p.chance.Float64()); !at.IsZero() && !p.now.Before(at) {
			p.flying[1-i] = append(p.flying[1-i], flight{p.now.Add(delay), m.packet(p.now)})
		}
	}
}

// run lets time pass.
func (p *pair) run(t *rapid.T, d time.Duration) {
	for range d / step {
		p.advance(t)
	}
}

func (p *pair) up() bool { return p.ends[0].state == Up && p.ends[1].state == Up }

// TestPair loses one or both directions several times and changes an interval. A session must go down after its
// detection time, come up soon after both directions work, and survive every change.
func TestPair(t *testing.T) {
	interval := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(10, 500).Draw(t, "ms")) * time.Millisecond
	})
	rapid.Check(t, func(t *rapid.T) {
		multiplier := rapid.Uint8Range(2, 5).Draw(t, "multiplier")
		p := newPair(rapid.Uint64().Draw(t, "seed"), interval.Draw(t, "a"), interval.Draw(t, "b"), multiplier)
		for range rapid.IntRange(1, 4).Draw(t, "faults") {
			p.cut = [2]bool{}
			p.run(t, 3*time.Second)
			if !p.up() {
				t.Fatalf("not up 3 s after the network works: %+v, %+v", p.ends[0], p.ends[1])
			}
			downs := p.ends[0].downs + p.ends[1].downs
			p.ends[0].configure(interval.Draw(t, "new interval"), multiplier)
			p.run(t, time.Second)
			if p.ends[0].polling || p.ends[0].downs+p.ends[1].downs != downs {
				t.Fatalf("a change of the interval took the session down, or is still polled for: %+v, %+v", p.ends[0], p.ends[1])
			}
			if got, want := p.ends[1].detectionTime(), time.Duration(multiplier)*max(p.ends[0].interval, p.ends[1].interval); got != want {
				t.Fatalf("detection time %v after the change, want %v", got, want)
			}
			p.cut = rapid.SampledFrom([][2]bool{{true, false}, {false, true}, {true, true}}).Draw(t, "cut")
			p.run(t, time.Duration(multiplier)*500*time.Millisecond+2*delay+2*step)
			for i, m := range p.ends {
				if m.state == Up || m.downs == 0 || !m.failed {
					t.Fatalf("end %d has not noticed the cut: %+v", i, m)
				}
			}
		}
	})
}

// FuzzMachine checks the invariants of a machine after any sequence of packets, delays and changes.
func FuzzMachine(f *testing.F) {
	f.Add(append(append([]byte{0}, onWire...), 3, 200, 1, 10))
	f.Add([]byte{1, 255, 2, 20, 3, 1, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		now := epoch
		m := newMachine(mine, 50*time.Millisecond, 3, now)
		closed := false
		for len(b) >= 2 {
			op, value := b[0], b[1]
			b = b[1:]
			var p Packet
			polled := false
			switch op % 5 {
			case 0:
				if p.Decode(b) == nil {
					m.receive(&p, now)
					polled = p.Poll && !closed
				}
				b = b[min(len(b), packetLen):]
			case 1:
				now = now.Add(time.Duration(value) * 10 * time.Millisecond)
				m.expire(now)
			case 2:
				m.configure(time.Duration(value)*time.Millisecond+MinInterval, value|1)
			case 3:
				m.expire(now)
			case 4:
				closed = true
				m.shutDown()
			}
			if closed != (m.state == AdminDown) {
				t.Fatalf("shut down: %v, but the state is %v", closed, m.state)
			}
			if m.failed && m.state == Up || m.polling && m.state != Up {
				t.Fatalf("%v with failed %v, polling %v", m.state, m.failed, m.polling)
			}
			if m.known() != (m.detectionTime() > 0) {
				t.Fatalf("the peer is known: %v, the detection time is %v", m.known(), m.detectionTime())
			}
			if m.state != Up && m.txInterval() < slow {
				t.Fatalf("%v, and sends every %v", m.state, m.txInterval())
			}
			if !m.known() && (m.state == Up || m.state == Init) {
				t.Fatalf("%v without a known peer", m.state)
			}
			if at := m.next(0.5); polled && at.IsZero() || at.After(m.sent.Add(m.txInterval())) {
				t.Fatalf("the next packet is due at %v, the last was sent at %v", at, m.sent)
			}
			if out := m.packet(now); out.Poll && out.Final || out.State != m.state || out.Final != polled {
				t.Fatalf("sends %+v", out)
			}
		}
	})
}

// A session that is up allocates nothing: garbage collection would delay packets.
func TestNoGarbage(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		now := time.Now()
		c := Config{Peer: netip.MustParseAddr(address), Interval: time.Minute, Multiplier: 3, Multihop: true, Local: netip.MustParseAddr(address)}
		l := newLoop(-1, newReporter(slog.New(slog.DiscardHandler), nil), func(f func() error) error { return f() })
		s := newSession(c, mine, now)
		l.sessions[c.Peer] = s
		socket, err := listen(endpoint{v6: c.Peer.Is6()}) // on any port
		if err != nil {
			t.Fatal(err)
		}
		defer socket.close()
		defer s.close()
		l.sockets[c.endpoint()] = socket
		at, err := portOf(socket)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.Peer, at)))
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()

		var b [packetLen]byte
		send := func(p *Packet) {
			p.Encode(&b)
			if _, err := peer.Write(b[:]); err != nil {
				t.Fatal(err)
			}
			l.drain(socket)
			l.act(time.Now())
		}
		send(fromPeer(Init))
		if s.state != Up || s.out == 0 {
			t.Fatalf("%s: %+v", address, s.status())
		}
		before := s.in
		polling := fromPeer(Up, poll) // the session answers it
		if n := testing.AllocsPerRun(100, func() { send(polling) }); n != 0 {
			t.Errorf("%s: a packet and its answer cost %v allocations", address, n)
		}
		if s.in != before+101 {
			t.Errorf("%s: %d of 101 packets taken", address, s.in-before)
		}
	}
}
