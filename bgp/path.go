package bgp

import (
	"time"

	"github.com/herald-vip/herald/bgp/bfd"
)

// patience limits the wait of a new session's routes for BFD. BFD comes up in three
// packets, each within a second of the previous one (RFC 5880 section 6.8.3), and one of them may be lost.
const patience = 5 * time.Second

// wait is the wait of a session's routes for BFD.
type wait struct {
	until time.Time // zero without a wait
	// vain reports that the last wait expired and BFD has not been up since: the
	// peer may not speak BFD, so the next session does not wait.
	vain bool
}

func (w *wait) on() bool { return !w.until.IsZero() }

// begin starts a wait if the new session has a BFD session, with the given status, that is not up.
func (w *wait) begin(path *bfd.Status, now time.Time) {
	w.until = time.Time{}
	if path != nil && path.State != bfd.Up && !w.vain {
		w.until = now.Add(patience)
	}
}

// end ends the wait: BFD is up, or no longer configured.
func (w *wait) end() { *w = wait{} }

// expire ends the wait if it would exceed its limit before the next tick, and reports whether it did.
func (w *wait) expire(now time.Time) bool {
	if !w.on() || now.Add(tick).Before(w.until) {
		return false
	}
	*w = wait{vain: true}
	return true
}

// watchPaths configures BFD sessions for the peers with BFD in the states OpenConfirm and Established. BGP
// comes first (RFC 5882 section 4.4). A router may recreate its BFD session once the BGP session shows the
// addresses, and FRR treats the loss of the old one as a failure. OpenConfirm is early enough to
// receive the first packet of the new session; the next one comes a second later.
func (s *Server) watchPaths() {
	if s.closing {
		return
	}
	var list []bfd.Config
	for _, p := range s.peers {
		if p.BFD == nil || p.state != OpenConfirm && p.state != Established {
			continue
		}
		c := bfd.Config{Peer: p.addr, Local: p.LocalAddress, Interval: p.BFD.Interval.Duration, Multiplier: p.BFD.Multiplier}
		if p.BFD.Multihop != nil && *p.BFD.Multihop {
			if c.Multihop, c.MinTTL = true, leastTTL(p.Peer); !c.Local.IsValid() {
				c.Local = p.local
			}
			if uint32(p.ASN) == ownASN(p.Peer, s.config.ASN) && p.TTLSecurity == 0 {
				c.MinTTL = 1 // iBGP may be any number of hops long
			}
			if !c.Local.IsValid() {
				continue // known when the session is up
			}
		}
		p.pathTrouble = ""
		if err := c.Validate(); err != nil {
			p.pathTrouble = err.Error() // other peers keep their sessions
			continue
		}
		list = append(list, c)
	}
	if err := s.bfd.Apply(list); err != nil {
		s.log.Error("cannot watch paths", "err", err)
	}
}

// endWait sends the routes that have waited for BFD for too long.
func (s *Server) endWait(p *peer, now time.Time) {
	if p.wait.expire(now) {
		s.log.Warn("routes are sent without BFD", "peer", p.Name(), "reason", p.path(s.bfd.Statuses()[p.addr]).Reason)
		s.export()
	}
}

// pathChanged ends the session of a peer with a failed path, without waiting for its hold timer (RFC 5882
// section 4.3), and starts a new one. If the peer only shut its BFD session down, the BGP session stays. When the
// path comes up, the waiting routes are sent.
func (s *Server) pathChanged(st bfd.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(st.Peer)
	if s.closing || p == nil || p.BFD == nil || p.state != OpenConfirm && p.state != Established {
		return
	}
	switch {
	case st.Failed:
		p.pathDowns++
		s.lose(p, "BFD: "+st.Reason)
		s.watchPaths()
	case st.State == bfd.Up:
		p.wait.end()
		s.export()
	}
}
