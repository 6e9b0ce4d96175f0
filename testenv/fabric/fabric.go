// Package fabric is a network in memory for elections in virtual time.
package fabric

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

// Fabric is a network in memory, for virtual time: it delays, loses, duplicates and
// cuts packets as set. Its mutex guards its fields while it is in use.
type Fabric struct {
	sync.Mutex
	Ports map[netip.AddrPort]*Port
	Delay time.Duration // largest delay of a packet
	Loss  float64       // probability that a packet is lost
	Twice float64       // probability that a packet is duplicated
	Sent  func(src, dst netip.AddrPort, b []byte)

	random *rand.Rand
	cut    map[[2]netip.AddrPort]bool // from, to
	tcp    map[[2]netip.AddrPort]bool // from, to: only connections get through
}

// New returns a network without ports, which delays packets by up to a millisecond.
func New() *Fabric {
	return &Fabric{
		random: rand.New(rand.NewPCG(1, 2)), Ports: make(map[netip.AddrPort]*Port),
		cut: make(map[[2]netip.AddrPort]bool), tcp: make(map[[2]netip.AddrPort]bool), Delay: time.Millisecond,
	}
}

// Part cuts both directions between two addresses, or mends them.
func (f *Fabric) Part(a, b netip.AddrPort, cut bool) {
	f.Cut(a, b, cut)
	f.Cut(b, a, cut)
}

// Cut cuts one direction, or mends it.
func (f *Fabric) Cut(src, dst netip.AddrPort, cut bool) {
	f.Lock()
	defer f.Unlock()
	f.cut[[2]netip.AddrPort{src, dst}] = cut
}

// Filter drops packets between two addresses, in both directions, or stops dropping
// them; connections still get through.
func (f *Fabric) Filter(a, b netip.AddrPort, drop bool) {
	f.Lock()
	defer f.Unlock()
	f.tcp[[2]netip.AddrPort{a, b}], f.tcp[[2]netip.AddrPort{b, a}] = drop, drop
}

// Open serves as an election.Listener.
func (f *Fabric) Open(at netip.AddrPort, a *transport.Admission) (memberlist.Transport, error) {
	f.Lock()
	defer f.Unlock()
	if f.Ports[at] != nil {
		return nil, errors.New("address already in use")
	}
	p := &Port{fabric: f, at: at, admission: a, Packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	f.Ports[at] = p
	return p, nil
}

// route returns the destination of a packet and the delays of its copies, or nil. A
// nil packet stands for a connection.
func (f *Fabric) route(from netip.AddrPort, dst string, b []byte) (*Port, []time.Duration) {
	f.Lock()
	defer f.Unlock()
	at, err := netip.ParseAddrPort(dst)
	if err != nil {
		return nil, nil
	}
	if f.Sent != nil {
		f.Sent(from, at, b)
	}
	if f.cut[[2]netip.AddrPort{from, at}] || b != nil && f.tcp[[2]netip.AddrPort{from, at}] || f.random.Float64() < f.Loss {
		return nil, nil
	}
	delays := []time.Duration{time.Duration(f.random.Int64N(int64(f.Delay)))}
	if f.random.Float64() < f.Twice {
		delays = append(delays, f.Delay+delays[0])
	}
	return f.Ports[at], delays
}

// Port is a memberlist.Transport on a fabric.
type Port struct {
	fabric    *Fabric
	at        netip.AddrPort
	admission *transport.Admission
	Packets   chan *memberlist.Packet
	Frozen    func() (thaw <-chan struct{}, dead bool) // if set: the member here neither sends nor receives until thaw is closed or, if dead, ever again
	streams   chan net.Conn
	ctx       context.Context
	cancel    context.CancelFunc
}

func (p *Port) frozen() (thaw <-chan struct{}, dead bool) {
	if p.Frozen == nil {
		return nil, false
	}
	return p.Frozen()
}

// Await waits while the member is frozen; it returns false if the member is dead.
func Await(frozen func() (thaw <-chan struct{}, dead bool)) bool {
	for {
		thaw, dead := frozen()
		if dead || thaw == nil {
			return !dead
		}
		<-thaw
	}
}

func (p *Port) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return p.at.Addr().AsSlice(), int(p.at.Port()), nil
}

func (p *Port) WriteTo(b []byte, address string) (time.Time, error) {
	target, delays := p.fabric.route(p.at, address, b)
	thaw, dead := p.frozen()
	for _, d := range delays {
		if target == nil || dead {
			break
		}
		packet := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(p.at)}
		time.AfterFunc(d, func() {
			if thaw != nil && !Await(p.frozen) { // otherwise the packet is on its way, even if the sender has died
				return
			}
			if !Await(target.frozen) || !target.admission.AdmitPacket(p.at) {
				return
			}
			packet.Timestamp = time.Now()
			select {
			case target.Packets <- packet:
			default: // overrun
			}
		})
	}
	return time.Now(), nil
}

func (p *Port) PacketCh() <-chan *memberlist.Packet { return p.Packets }
func (p *Port) StreamCh() <-chan net.Conn           { return p.streams }

func (p *Port) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	target, _ := p.fabric.route(p.at, address, nil)
	if target == nil || !Await(p.frozen) || !Await(target.frozen) {
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

func (p *Port) Shutdown() error {
	p.fabric.Lock()
	defer p.fabric.Unlock()
	if p.fabric.Ports[p.at] == p {
		delete(p.fabric.Ports, p.at)
	}
	p.cancel()
	return nil
}
