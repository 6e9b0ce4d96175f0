package bgp

import (
	"cmp"
	"time"

	"github.com/herald-vip/herald/bfd"
)

// BFD asks for a BFD session beside the BGP session, to notice within
// milliseconds that the path to the peer is gone.
type BFD struct {
	// Interval is the time between two packets, each way.
	Interval time.Duration
	// Multiplier is how many intervals of silence end the session.
	Multiplier uint8
	// Multihop speaks the BFD of paths over several hops (RFC 5883). Routers
	// have ideas of their own when that is: FRR for multihop sessions and for
	// all under GTSM, even on a shared link.
	Multihop bool
}

// watchPaths makes the BFD sessions those of the peers that are to have one and
// whose BGP session is up, or all but up. BGP comes first (RFC 5882 section
// 4.4): a router may make its BFD session anew when the BGP session tells it
// which addresses are used, and FRR takes its own doing for a fault then. The
// first packet of that new session is to be heard, since the next one comes a
// second later; hence all but up.
func (s *Server) watchPaths() {
	if s.closing {
		return
	}
	var list []bfd.Config
	for _, p := range s.peers {
		if p.BFD == nil || p.state != OpenConfirm && p.state != Established {
			continue
		}
		c := bfd.Config{Peer: p.addr, Local: p.LocalAddress, Interval: p.BFD.Interval, Multiplier: p.BFD.Multiplier}
		if p.BFD.Multihop {
			if c.Multihop, c.MinTTL = true, p.leastTTL(); !c.Local.IsValid() {
				c.Local = p.local
			}
			if p.ASN == p.own(s.config.ASN) && p.TTLSecurity == 0 {
				c.MinTTL = 1 // iBGP may be any number of hops long
			}
			if !c.Local.IsValid() {
				continue // known when the session is up
			}
		}
		p.pathTrouble = ""
		if err := c.Validate(); err != nil {
			p.pathTrouble = err.Error() // and the others have theirs
			continue
		}
		list = append(list, c)
	}
	if err := s.bfd.Apply(list); err != nil {
		s.log.Error("watch paths", "err", err)
	}
}

// path is what to tell of the BFD session of p, whose status is given, or nil
// if it has none at the moment.
func (p *peer) path(now *bfd.Status) *bfd.Status {
	switch {
	case p.BFD == nil:
		return nil
	case now == nil && p.state == Established:
		now = &bfd.Status{Peer: p.addr, State: bfd.Down, Since: p.since, Reason: cmp.Or(p.pathTrouble, "not begun yet")}
	case now == nil:
		now = &bfd.Status{Peer: p.addr, State: bfd.AdminDown, Since: p.since, Reason: "waits for the BGP session"}
	}
	now.Downs = p.pathDowns
	return now
}

// pathChanged ends the session of a peer whose path has failed, without waiting
// for its hold timer (RFC 5882 section 4.3), and sets about a new one. A peer
// that only ended its BFD session keeps its BGP session.
func (s *Server) pathChanged(st bfd.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(st.Peer)
	if s.closing || p == nil || p.BFD == nil || !st.Failed || p.state != OpenConfirm && p.state != Established {
		return
	}
	p.pathDowns++
	p.rest(time.Now())
	p.down("BFD: " + st.Reason)
	s.export()
	s.watchPaths()
	s.log.Warn("session lost", "peer", p.Name(), "reason", p.reason)
	s.renew(p)
}
