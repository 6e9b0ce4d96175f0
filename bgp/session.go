package bgp

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/wake"
)

const (
	// tick is the time between two inspections of the sessions.
	tick = time.Second
	// stuckAfter limits GoBGP's attempts with one peer before a restart: it waits
	// four minutes for the OPEN of a peer that accepted the connection and then froze.
	stuckAfter = 15 * time.Second
)

// watch passes GoBGP's peer events to run.
func (s *Server) watch() error {
	err := s.gobgp.WatchEvent(s.ctx, gobgp.WatchEventMessageCallbacks{
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if e.Type != apiutil.PEER_EVENT_STATE {
				return
			}
			select {
			case s.events <- e.Peer.State:
			case <-s.ctx.Done():
			}
		},
	}, gobgp.WatchPeer())
	if err != nil {
		return fmt.Errorf("bgp: watch sessions: %w", err)
	}
	return nil
}

// run handles events and inspects the sessions until the server is closed.
func (s *Server) run() {
	ticks := time.Tick(tick)
	for {
		select {
		case <-s.ctx.Done():
			return
		case e := <-s.events:
			s.handle(e)
		case now := <-ticks:
			s.lookAfter(now)
		}
	}
}

func (s *Server) handle(e apiutil.PeerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(e.NeighborAddress)
	if p == nil || !p.present {
		return
	}
	p.epoch++
	prev, state := p.state, stateOf(e.SessionState)
	if state == Established {
		p.state, p.remoteASN = OpenConfirm, e.PeerASN
		if reason := mismatch(p.Peer, ownASN(p.Peer, s.config.ASN), e.PeerASN); reason != "" { // GoBGP accepts any number for an open ASN
			s.expel(p, reason)
			return
		}
		s.confirm(p, offersOf(e.RemoteCap))
		return
	}
	p.state = state
	defer s.watchPaths()
	switch {
	case state == Active:
		s.connect(p)
	case state == Idle && p.trial && !s.closing: // GoBGP would wait for five seconds
		p.trial = false
		s.renew(p)
	}
	if prev == Established {
		reason := explainEnd(e)
		if said := s.reasons.take(p.addr); said != "" {
			reason += ": " + said
		}
		s.lose(p, reason)
	}
}

// confirm waits until GoBGP treats the session as established, and then sends the routes. GoBGP reports a
// session as up, and dumps its table to the peer, a moment before it passes on changes: a withdrawal in between
// would never reach the peer. So no route is exported before that moment.
func (s *Server) confirm(p *peer, o offers) {
	epoch := p.epoch
	s.wg.Go(func() {
		for !s.confirmed(p, epoch, o) && wake.Pause(s.ctx, time.Millisecond) {
		}
	})
}

// confirmed reports whether the wait is over.
func (s *Server) confirmed(p *peer, epoch uint64, o offers) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.epoch != epoch {
		return true // it is down again
	}
	p.sent, p.sentChange = 0, time.Now()
	if !s.inspect(p, p.sentChange) {
		return false
	}
	p.state, p.since, p.reason = Established, time.Now(), ""
	p.trial = false
	p.offers = o
	p.hop6 = netip.Addr{} // the session may have another local address now
	s.watchPaths()
	p.wait.begin(s.bfd.Statuses()[p.addr], p.since)
	s.findNextHop(p)
	s.reasons.take(p.addr) // an older reason no longer applies
	s.export()
	s.log.Info("session established", "peer", p.Name(), "state", "established", "asn", p.remoteASN)
	if p.wait.on() {
		s.log.Info("routes wait for BFD", "peer", p.Name(), "limit", patience)
	}
	return true
}

// lookAfter does the periodic work that GoBGP lacks.
func (s *Server) lookAfter(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	defer s.watchPaths() // retries failed ones
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
			s.endWait(p, now)
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

// inspect reads the session data that only GoBGP's list of peers has, and reports whether GoBGP treats the session
// as established.
func (s *Server) inspect(p *peer, now time.Time) (established bool) {
	// The only possible error is that the peer has just been deleted.
	_ = s.gobgp.ListPeer(s.ctx, &api.ListPeerRequest{Address: p.addr.String()}, func(g *api.Peer) {
		if local, err := netip.ParseAddr(g.GetTransport().GetLocalAddress()); err == nil {
			p.local = local.WithZone("").Unmap()
		}
		p.holdTime = time.Duration(g.GetTimers().GetState().GetNegotiatedHoldTime()) * time.Second
		if sent := g.GetState().GetMessages().GetSent().GetTotal(); sent != p.sent {
			p.sent, p.sentChange = sent, now
		}
		p.usage = usage{refreshes: g.GetState().GetMessages().GetReceived().GetRefresh()}
		for _, f := range g.GetAfiSafis() {
			p.usage.routes += f.GetState().GetReceived()
		}
		established = g.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
	})
	return established
}

// expel ends the session of a peer that exceeded a limit, and delays the next one.
func (s *Server) expel(p *peer, reason string) {
	if p.closed != nil {
		return // Close ends its session
	}
	s.log.Warn("session ended", "peer", p.Name(), "state", "down", "reason", reason, "for", ban)
	s.drop(p)
	p.reason, p.banned = reason, time.Now().Add(ban)
	s.export()
	s.watchPaths()
}

// watchSending resets the session of a peer that has stopped reading (RFC 9687). Keepalives are due every third
// of the hold time. If none was sent for the whole hold time, the connection's buffers are full.
func (s *Server) watchSending(p *peer, now time.Time) {
	if now.Sub(p.sentChange) <= p.holdTime+tick {
		return
	}
	s.log.Warn("peer does not read: send hold timer expired", "peer", p.Name(), "after", p.holdTime)
	p.sentChange = now
	s.reasons.put(p.addr, fmt.Sprintf("the peer does not read: no message was sent for %v", p.holdTime))
	if err := s.gobgp.ResetPeer(s.ctx, &api.ResetPeerRequest{Address: p.addr.String(), Communication: "send hold timer expired"}); err != nil {
		s.log.Warn("cannot reset the session", "peer", p.Name(), "err", err)
	}
}

// findNextHop finds the next hop of IPv6 routes on an IPv4 session: a global IPv6 address on the link with the
// session's local address.
func (s *Server) findNextHop(p *peer) {
	if s.options.NextHop6 == nil || !p.Carries(v1alpha1.IPv6) || !p.addr.Is4() || p.NextHop6.IsValid() || p.hop6.IsValid() || !p.local.IsValid() {
		return
	}
	hop, err := s.options.NextHop6(p.local)
	if err != nil {
		return // heldBack reports it
	}
	p.hop6 = hop
	s.export()
}

// examine finds out in the background why the session with p does not come up.
func (s *Server) examine(p *peer, now time.Time) {
	p.examined++
	p.examining, p.examineAt = true, now.Add(examinePauses.After(p.examined))
	config, conf, addr, known := s.config, p.Peer, p.addr, s.reasons.take(p.addr)
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
