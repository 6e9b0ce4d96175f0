package bgp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/internal/wake"
)

// A session is examined once it has been down for examineAfter, and again after each of examinePauses. The pauses grow
// because an examination delays the session of a peer that has just recovered by some seconds.
const examineAfter = 3 * time.Second

var examinePauses = wake.Backoff{Min: 10 * time.Second, Max: 80 * time.Second}

// peer is a configured peer and its session. The server's mutex guards it.
type peer struct {
	v1alpha1.Peer
	number    uint32     // in marks
	addr      netip.Addr // configured or discovered
	remoteASN uint32     // the ASN of the peer's last OPEN
	present   bool       // GoBGP knows it
	added     time.Time  // when GoBGP last got it

	state    State
	since    time.Time
	reason   string
	drops    uint64
	local    netip.Addr
	holdTime time.Duration

	pathDowns   uint64 // counts path failures that BFD reported
	pathTrouble string // why BFD is impossible; empty if it is possible
	wait        wait   // for BFD

	offers     offers     // capabilities of the peer in the current session
	hop6       netip.Addr // discovered next hop for IPv6 routes over an IPv4 session
	examineAt  time.Time  // time of the next examination
	examined   int        // examinations since the session went down
	examining  bool
	banned     time.Time // no session before this time
	sent       uint64    // messages sent at the last inspection
	sentChange time.Time
	usage      usage
	shorts     int // number of short sessions in a row

	handed time.Time // when GoBGP last got a connection to the peer
	trial  bool      // the outcome of that connection is not known yet

	epoch         uint64        // counts state changes, to recognise late results
	closed        chan struct{} // closed when the session ended by Close is down
	stopDiscovery context.CancelFunc
}

func newPeer(conf v1alpha1.Peer, number uint32) *peer {
	p := &peer{Peer: conf, number: number, addr: conf.Address, state: Idle, since: time.Now(), reason: "no answer yet"}
	if conf.Interface != "" {
		p.state = Waiting
		p.reason = fmt.Sprintf("no router advertisement received on %s yet", conf.Interface)
	} else if !conf.Address.IsValid() {
		p.state = Waiting
		p.reason = "no default route of the main routing table has a gateway: waiting for one"
	}
	p.examineSoon()
	return p
}

func (p *peer) session(path *bfd.Status) Session {
	asn := uint32(p.ASN)
	if p.ASN == v1alpha1.External {
		asn = p.remoteASN
	}
	s := Session{
		Name: p.Name(), Address: p.addr, ASN: asn, State: p.state, Since: p.since, Drops: p.drops,
		IPv4: p.Carries(v1alpha1.IPv4), IPv6: p.Carries(v1alpha1.IPv6), BFD: p.path(path),
	}
	if p.DefaultGateway != "" {
		s.Gateway = v1alpha1.GatewayName(p.DefaultGateway)
	}
	if p.state == Established {
		s.LocalAddress, s.HoldTime = p.local, seconds.Duration(p.holdTime)
		s.Reason = p.heldBack()
	} else {
		s.Reason = p.reason
		if time.Now().Before(p.banned) {
			s.Reason += ", tried again at " + p.banned.Format(time.TimeOnly)
		}
	}
	return s
}

// receiver returns p for the export policy. It holds all routes back until the session is confirmed
// (see [Server.confirm]) and BFD is up, or the wait for BFD is over.
func (p *peer) receiver() receiver {
	n := receiver{Peer: p.Peer, number: p.number, addr: p.addr}
	if p.state != Established || p.wait.on() {
		n.hold4, n.hold6 = true, true
		return n
	}
	if p.Carries(v1alpha1.IPv6) && p.addr.Is4() && !p.NextHop6.IsValid() {
		n.NextHop6 = p.hop6
		n.hold6 = !p.hop6.IsValid()
	}
	if p.Carries(v1alpha1.IPv4) && p.addr.Is6() && !p.NextHop4.IsValid() {
		n.hold4 = !p.offers.extended4
	}
	return n
}

// heldBack explains which routes an established session cannot carry; empty if it carries all.
func (p *peer) heldBack() string {
	n := p.receiver()
	switch {
	case p.wait.on():
		return "routes wait for BFD, at most until " + p.wait.until.Format(time.TimeOnly)
	case p.Carries(v1alpha1.IPv6) && !p.offers.ipv6:
		return "the peer takes no IPv6 routes: activate this neighbor for IPv6 there, or leave ipv6 out of families"
	case p.Carries(v1alpha1.IPv4) && !p.offers.ipv4:
		return "the peer takes no IPv4 routes: activate this neighbor for IPv4 there, or leave ipv4 out of families"
	case n.hold6:
		return fmt.Sprintf("IPv6 routes are held back: %s has no global IPv6 address on the link to this peer, set nextHop6", p.local)
	case n.hold4:
		return "IPv4 routes are held back: the peer does not offer extended next hops (RFC 8950), set nextHop4"
	}
	return ""
}

// path returns the BFD status to report for p, given the status of its BFD session; nil if it has no session at the moment.
func (p *peer) path(now *bfd.Status) *bfd.Status {
	switch {
	case p.BFD == nil:
		return nil
	case now == nil && p.state == Established:
		now = &bfd.Status{Peer: p.addr, State: bfd.Down, Since: p.since, Reason: cmp.Or(p.pathTrouble, "not started yet")}
	case now == nil:
		now = &bfd.Status{Peer: p.addr, State: bfd.AdminDown, Since: p.since, Reason: "waits for the BGP session"}
	}
	now.Downs = p.pathDowns
	return now
}

func (p *peer) down(reason string) {
	p.state, p.since, p.reason = Idle, time.Now(), reason
	p.drops++
	p.offers = offers{}
	p.local = netip.Addr{}
	p.examineSoon()
}

// examineSoon schedules the examinations of a session that has just gone down.
func (p *peer) examineSoon() {
	p.examineAt, p.examined = p.since.Add(examineAfter), 0
}

// Herald bounds the resources that a peer can use. GoBGP has no bounds: it stores every route, although the import
// policy rejects them all. It sends the whole table again for each ROUTE-REFRESH, and queues messages for a peer that
// does not read. It has a prefix limit, but counts all prefixes again at every UPDATE, which takes half a minute of CPU
// time.

const (
	// defaultMaxRoutes is far above the number of routes that a router sends to a node on purpose. So many take about 10 MB.
	defaultMaxRoutes = 10_000
	// maxRefreshes limits the ROUTE-REFRESHs of a peer between two inspections. Operators cause
	// one for each family at a time.
	maxRefreshes = 10
	// ban is the pause after a session that was ended for its excess.
	ban = time.Minute
	// A session is short if it lasts less than short. After the third short session in a row, the
	// next one is delayed by the pauses of damping. Otherwise a peer could flap a hundred times a second.
	short = time.Second
)

var damping = wake.Backoff{Min: time.Second, Max: 30 * time.Second}

// usage is the resource usage of a session.
type usage struct {
	routes    uint64 // received, of all families
	refreshes uint64 // asked for since the session came up
}

// excess describes the limit that a session exceeds; empty if it exceeds none. before is its usage at the
// previous inspection.
func excess(before, now usage, holdTime time.Duration, maxRoutes uint32) string {
	switch {
	case now.routes > uint64(maxRoutes):
		return fmt.Sprintf("the peer sent more than %d routes, which Herald does not use: filter the routes to this node there", maxRoutes)
	case now.refreshes > before.refreshes+maxRefreshes:
		return fmt.Sprintf("the peer asked for all routes again %d times in a second", now.refreshes-before.refreshes)
	case holdTime == 0:
		return "the peer proposes a hold time of 0, which disables the detection of a dead peer: set its timers"
	}
	return ""
}

// damp returns the pause before the next session after n short ones in a row (the peer oscillation damping of
// RFC 4271 section 8.1.1).
func damp(n int) time.Duration {
	const free = 3
	return damping.After(n - free)
}
