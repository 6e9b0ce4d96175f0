package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	gobgp "github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/bfd"
)

const (
	// tick is how often sessions are looked after.
	tick = time.Second
	// examineAfter is how long a session may be down before it is examined.
	// It is examined again after examineMin, then ever more rarely up to
	// examineMax: an examination that meets a peer which has just recovered
	// holds that up for some seconds.
	examineAfter = 3 * time.Second
	examineMin   = 10 * time.Second
	examineMax   = 80 * time.Second
	// stuckAfter is how long GoBGP may try one peer before it starts afresh: it
	// waits four minutes for the OPEN of a peer that accepted and then froze.
	stuckAfter = 15 * time.Second
)

// peer is a configured peer and its session. The server's mutex guards it.
type peer struct {
	Peer
	number  uint32     // in marks
	addr    netip.Addr // where the peer is: configured or discovered
	present bool       // GoBGP knows it
	added   time.Time  // when GoBGP was last given it

	state    State
	since    time.Time
	reason   string
	drops    uint64
	local    netip.Addr
	holdTime time.Duration

	pathDowns   uint64 // how often BFD said that the path has failed
	pathTrouble string // why there can be no BFD session; empty if there can

	exported   neighbour
	extended4  bool          // the peer takes IPv4 routes with an IPv6 next hop (RFC 8950)
	hop6       netip.Addr    // found next hop for IPv6 routes over an IPv4 session
	examineAt  time.Time     // when to examine next,
	pause      time.Duration // and how long to pause after that
	examining  bool
	banned     time.Time // until when the peer is left alone
	sent       uint64    // messages sent when last looked at,
	sentChange time.Time
	usage      usage
	shorts     int // how many short sessions there were in a row

	handed time.Time // when GoBGP was last handed a connection to the peer,
	trial  bool      // and whether what came of it is not known yet

	epoch         uint64        // counts state changes, so that what is late can tell
	closed        chan struct{} // closed when the session that Close ends is gone
	stopDiscovery context.CancelFunc
}

func newPeer(conf Peer, number uint32) *peer {
	p := &peer{Peer: conf, number: number, addr: conf.Address, state: Idle, since: time.Now(), reason: "not tried yet"}
	if conf.Interface != "" {
		p.state = Waiting
		p.reason = fmt.Sprintf("no router advertisement heard on %s yet", conf.Interface)
	}
	p.examineSoon()
	return p
}

func (p *peer) session(path *bfd.Status) Session {
	s := Session{
		Peer: p.Name(), Address: p.addr, ASN: p.ASN, State: p.state, Since: p.since, Drops: p.drops,
		BFD: p.path(path),
	}
	if p.state == Established {
		s.LocalAddress, s.HoldTime = p.local, p.holdTime
		s.Reason = p.heldBack()
	} else {
		s.Reason = p.reason
		if time.Now().Before(p.banned) {
			s.Reason += ", tried again at " + p.banned.Format(time.TimeOnly)
		}
	}
	return s
}

// neighbour is what the export policy needs to know of p. Until a session is
// confirmed all routes are held back (see [Server.confirm]).
func (p *peer) neighbour() neighbour {
	n := neighbour{Peer: p.Peer, number: p.number, addr: p.addr}
	if p.state != Established {
		n.hold4, n.hold6 = true, true
		return n
	}
	if p.IPv6 && p.addr.Is4() && !p.NextHop6.IsValid() {
		n.hop6 = p.hop6
		n.hold6 = !p.hop6.IsValid()
	}
	if p.IPv4 && p.addr.Is6() && !p.NextHop4.IsValid() {
		n.hold4 = !p.extended4
	}
	return n
}

// heldBack says which routes an established session cannot carry, and why.
func (p *peer) heldBack() string {
	n := p.neighbour()
	switch {
	case n.hold6:
		return fmt.Sprintf("IPv6 routes are held back: %s has no global IPv6 address on the link to this peer, set nextHop6", p.local)
	case n.hold4:
		return "IPv4 routes are held back: the peer does not offer extended next hops (RFC 8950), set nextHop4"
	}
	return ""
}

func (p *peer) down(reason string) {
	p.state, p.since, p.reason = Idle, time.Now(), reason
	p.drops++
	p.extended4 = false
	p.local = netip.Addr{}
	p.examineSoon()
}

// examineSoon plans the examinations of a session that has begun to be down.
func (p *peer) examineSoon() {
	p.examineAt, p.pause = p.since.Add(examineAfter), examineMin
}

// event is a change that GoBGP reports of one peer.
type event struct {
	addr       netip.Addr
	state      State
	extended4  bool
	disconnect string
}

// watch passes GoBGP's peer events to run.
func (s *Server) watch() error {
	err := s.gobgp.WatchEvent(s.ctx, gobgp.WatchEventMessageCallbacks{
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if e.Type != apiutil.PEER_EVENT_STATE {
				return
			}
			select {
			case s.events <- newEvent(e.Peer):
			case <-s.ctx.Done():
			}
		},
	}, gobgp.WatchPeer())
	if err != nil {
		return fmt.Errorf("bgp: watch sessions: %w", err)
	}
	return nil
}

func newEvent(p apiutil.Peer) event {
	e := event{
		addr:       p.State.NeighborAddress,
		disconnect: p.State.DisconnectMessage,
	}
	switch p.State.SessionState {
	case packet.BGP_FSM_ESTABLISHED:
		e.state = Established
	case packet.BGP_FSM_OPENCONFIRM:
		e.state = OpenConfirm
	case packet.BGP_FSM_OPENSENT:
		e.state = OpenSent
	case packet.BGP_FSM_ACTIVE, packet.BGP_FSM_CONNECT:
		e.state = Active
	default:
		e.state = Idle
	}
	for _, c := range p.State.RemoteCap {
		hops, ok := c.(*packet.CapExtendedNexthop)
		if !ok {
			continue
		}
		for _, t := range hops.Tuples {
			if t.NLRIAFI == packet.AFI_IP && t.NexthopAFI == packet.AFI_IP6 {
				e.extended4 = true
			}
		}
	}
	return e
}

// run looks after the sessions until the server is closed.
func (s *Server) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case e := <-s.events:
			s.handle(e)
		case now := <-ticker.C:
			s.lookAfter(now)
		}
	}
}

// handle takes in a state change.
func (s *Server) handle(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(e.addr)
	if p == nil || !p.present {
		return
	}
	p.epoch++
	was := p.state
	if e.state == Established {
		p.state = OpenConfirm
		s.confirm(p, e)
		return
	}
	p.state = e.state
	defer s.watchPaths()
	switch {
	case e.state == Active:
		s.connect(p)
	case e.state == Idle && p.trial && !s.closing: // GoBGP would leave it alone for five seconds
		p.trial = false
		s.renew(p)
	}
	if was == Established {
		reason := explainEnd(e.disconnect)
		if said := s.told.take(p.addr); said != "" {
			reason += ": " + said
		}
		p.rest(time.Now())
		p.down(reason)
		s.export()
		if p.closed != nil {
			s.log.Info("session closed", "peer", p.Name())
			close(p.closed)
			p.closed = nil
			return
		}
		s.log.Warn("session lost", "peer", p.Name(), "reason", reason)
		s.renew(p)
	}
}

// confirm waits until GoBGP treats the session as established, and then sends
// the routes. GoBGP reports a session as up, and dumps its table to the peer, a
// moment before it begins to pass on changes: a withdrawal in between would
// never reach the peer. So the peer has nothing until that moment is over.
func (s *Server) confirm(p *peer, e event) {
	epoch := p.epoch
	s.wg.Go(func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for !s.confirmed(p, epoch, e) {
			select {
			case <-s.ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
}

// confirmed reports whether there is nothing more to wait for.
func (s *Server) confirmed(p *peer, epoch uint64, e event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.epoch != epoch {
		return true // it has fallen again
	}
	p.sent, p.sentChange = 0, time.Now()
	if !s.inspect(p, p.sentChange) {
		return false
	}
	p.state, p.since, p.reason = Established, time.Now(), ""
	p.trial = false
	p.extended4 = e.extended4
	p.hop6 = netip.Addr{} // the session may have another local address now
	s.findNextHop(p)
	s.told.take(p.addr) // what was said before is of no interest now
	s.export()
	s.watchPaths()
	s.log.Info("session established", "peer", p.Name(), "asn", p.ASN)
	return true
}

func (s *Server) find(addr netip.Addr) *peer {
	for _, p := range s.peers {
		if p.addr == addr {
			return p
		}
	}
	return nil
}

// renew gives the peer to GoBGP afresh: a new peer is tried within two
// seconds, one that was lost only after GoBGP's fixed idle time of five.
func (s *Server) renew(p *peer) {
	if err := s.gobgp.DeletePeer(s.ctx, &api.DeletePeerRequest{Address: p.addr.String()}); err != nil {
		s.log.Debug("delete peer", "peer", p.Name(), "err", err)
	}
	p.present = false
	p.epoch++
	s.add(p)
}

// lookAfter does what GoBGP leaves undone.
func (s *Server) lookAfter(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	defer s.watchPaths() // for what did not work before
	for _, p := range s.peers {
		s.add(p)
		if !p.present {
			continue
		}
		s.findNextHop(p)
		if p.state == Established {
			before := p.usage
			s.inspect(p, now)
			if reason := excess(before, p.usage, p.holdTime, s.options.MaxRoutes); reason != "" {
				s.expel(p, reason)
			} else {
				s.watchSending(p, now)
			}
			continue
		}
		if !p.examining && now.After(p.examineAt) {
			s.examine(p, now)
		}
		if now.Sub(p.added) > stuckAfter {
			s.renew(p)
		}
	}
}

// inspect reads what only GoBGP's list of peers tells of a session, and reports
// whether it is established there.
func (s *Server) inspect(p *peer, now time.Time) (established bool) {
	// The only error is a peer that has just gone.
	_ = s.gobgp.ListPeer(s.ctx, &api.ListPeerRequest{Address: p.addr.String()}, func(g *api.Peer) {
		if local, err := netip.ParseAddr(g.GetTransport().GetLocalAddress()); err == nil {
			p.local = local.WithZone("").Unmap()
		}
		p.holdTime = time.Duration(g.GetTimers().GetState().GetNegotiatedHoldTime()) * time.Second
		if sent := g.GetState().GetMessages().GetSent().GetTotal(); sent != p.sent {
			p.sent, p.sentChange = sent, now
		}
		p.usage = newUsage(g)
		established = g.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
	})
	return established
}

// watchSending gives up a peer that has stopped reading (RFC 9687): keepalives
// are due every third of the hold time, so if none went for the whole of it
// the connection's buffers are full.
func (s *Server) watchSending(p *peer, now time.Time) {
	if now.Sub(p.sentChange) <= p.holdTime+tick {
		return
	}
	s.log.Warn("peer does not read: send hold timer expired", "peer", p.Name(), "after", p.holdTime)
	p.sentChange = now
	s.told.put(p.addr, fmt.Sprintf("the peer does not read what is sent: nothing went for %v", p.holdTime))
	if err := s.gobgp.ResetPeer(s.ctx, &api.ResetPeerRequest{Address: p.addr.String(), Communication: "send hold timer expired"}); err != nil {
		s.log.Warn("reset peer", "peer", p.Name(), "err", err)
	}
}

// findNextHop looks for the next hop of IPv6 routes on an IPv4 session: the
// global IPv6 address beside the session's own on the same link.
func (s *Server) findNextHop(p *peer) {
	if s.options.NextHop6 == nil || !p.IPv6 || !p.addr.Is4() || p.NextHop6.IsValid() || p.hop6.IsValid() || !p.local.IsValid() {
		return
	}
	hop, err := s.options.NextHop6(p.local)
	if err != nil {
		return // heldBack says so
	}
	p.hop6 = hop
	s.export()
}

// examine finds out in the background why p does not come up.
func (s *Server) examine(p *peer, now time.Time) {
	p.examining, p.examineAt = true, now.Add(p.pause)
	p.pause = min(2*p.pause, examineMax)
	config, conf, addr, known := s.config, p.Peer, p.addr, s.told.take(p.addr)
	s.wg.Go(func() {
		reason := diagnose(s.ctx, config, conf, addr, known)
		s.mu.Lock()
		defer s.mu.Unlock()
		p.examining = false
		if reason == "" || p.state == Established || reason == p.reason || p.addr != addr {
			return
		}
		p.reason = reason
		s.log.Warn("session does not come up", "peer", p.Name(), "reason", reason)
	})
}
