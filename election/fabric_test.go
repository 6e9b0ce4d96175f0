package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/transport"
)

// fabric is a network in memory, for virtual time: it delays, loses, duplicates
// and cuts as it is told.
type fabric struct {
	mu     sync.Mutex
	random *rand.Rand
	ports  map[netip.AddrPort]*port
	cut    map[[2]netip.AddrPort]bool // from, to
	tcp    map[[2]netip.AddrPort]bool // from, to: only connections get there
	delay  time.Duration              // of each packet, up to
	loss   float64                    // of packets
	twice  float64                    // packets that come again
	sent   func(from, to netip.AddrPort, b []byte)
}

func newFabric() *fabric {
	return &fabric{
		random: rand.New(rand.NewPCG(1, 2)), ports: make(map[netip.AddrPort]*port),
		cut: make(map[[2]netip.AddrPort]bool), tcp: make(map[[2]netip.AddrPort]bool), delay: time.Millisecond,
	}
}

// part cuts the connection between two, in both directions, or mends it.
func (f *fabric) part(a, b netip.AddrPort, cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut[[2]netip.AddrPort{a, b}], f.cut[[2]netip.AddrPort{b, a}] = cut, cut
}

// filter drops packets between two, in both directions, or no more: connections
// still get there.
func (f *fabric) filter(a, b netip.AddrPort, drop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tcp[[2]netip.AddrPort{a, b}], f.tcp[[2]netip.AddrPort{b, a}] = drop, drop
}

// open serves as an listener.
func (f *fabric) open(at netip.AddrPort, a *transport.Admission) (memberlist.NodeAwareTransport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ports[at] != nil {
		return nil, errors.New("address already in use")
	}
	p := &port{fabric: f, at: at, admission: a, packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	f.ports[at] = p
	return p, nil
}

// route returns where a packet goes, now and how much later, or nil. No packet at
// all stands for a connection.
func (f *fabric) route(from netip.AddrPort, to string, b []byte) (*port, []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, nil
	}
	if f.sent != nil {
		f.sent(from, at, b)
	}
	if f.cut[[2]netip.AddrPort{from, at}] || b != nil && f.tcp[[2]netip.AddrPort{from, at}] || f.random.Float64() < f.loss {
		return nil, nil
	}
	delays := []time.Duration{time.Duration(f.random.Int64N(int64(f.delay)))}
	if f.random.Float64() < f.twice {
		delays = append(delays, f.delay+delays[0])
	}
	return f.ports[at], delays
}

// port is a memberlist.Transport on a fabric.
type port struct {
	fabric    *fabric
	at        netip.AddrPort
	admission *transport.Admission
	packets   chan *memberlist.Packet
	streams   chan net.Conn
	ctx       context.Context
	cancel    context.CancelFunc
}

func (p *port) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return p.at.Addr().AsSlice(), int(p.at.Port()), nil
}

func (p *port) WriteTo(b []byte, to string) (time.Time, error) {
	target, delays := p.fabric.route(p.at, to, b)
	for _, d := range delays {
		if target == nil {
			break
		}
		packet := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(p.at)}
		time.AfterFunc(d, func() {
			if !target.admission.AdmitPacket(p.at) {
				return
			}
			packet.Timestamp = time.Now()
			select {
			case target.packets <- packet:
			default: // overrun
			}
		})
	}
	return time.Now(), nil
}

func (p *port) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return p.WriteTo(b, to.Addr)
}

func (p *port) PacketCh() <-chan *memberlist.Packet { return p.packets }
func (p *port) StreamCh() <-chan net.Conn           { return p.streams }

func (p *port) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	target, _ := p.fabric.route(p.at, to, nil)
	if target == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	here, there := net.Pipe()
	select {
	case target.streams <- there:
		return here, nil
	case <-target.ctx.Done():
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *port) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return p.DialTimeout(to.Addr, timeout)
}

func (p *port) Shutdown() error {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	delete(p.fabric.ports, p.at)
	p.cancel()
	return nil
}
