package bgp

import (
	"time"

	"github.com/herald-vip/herald/bgp/bfd"
)

// patience is how long the routes of a session that has come up wait for BFD at
// most. BFD comes up in three packets, each of which is due within a second of
// the one before (RFC 5880 section 6.8.3), and one of them may be lost.
const patience = 5 * time.Second

// wait is that of a session's routes for BFD.
type wait struct {
	until time.Time // zero if there is none
	// vain says that the last one was, and that BFD has not been up since: the
	// peer may not speak it, and is not waited for again.
	vain bool
}

func (w *wait) on() bool { return !w.until.IsZero() }

// begin begins a wait if the session that has come up needs one: it has a BFD
// session, whose status is given, and that is not up.
func (w *wait) begin(path *bfd.Status, now time.Time) {
	w.until = time.Time{}
	if path != nil && path.State != bfd.Up && !w.vain {
		w.until = now.Add(patience)
	}
}

// end ends the wait, if there is one: BFD is up, or not wanted any more.
func (w *wait) end() { *w = wait{} }

// expire ends the wait if it would be too long by the next tick, and reports
// whether it did.
func (w *wait) expire(now time.Time) bool {
	if !w.on() || now.Add(tick).Before(w.until) {
		return false
	}
	*w = wait{vain: true}
	return true
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
			p.pathTrouble = err.Error() // and the others have theirs
			continue
		}
		list = append(list, c)
	}
	if err := s.bfd.Apply(list); err != nil {
		s.log.Error("cannot watch paths", "err", err)
	}
}

// endWait sends the routes that have waited for BFD long enough.
func (s *Server) endWait(p *peer, now time.Time) {
	if p.wait.expire(now) {
		s.log.Warn("routes go out without BFD", "peer", p.Name(), "reason", p.path(s.bfd.Statuses()[p.addr]).Reason)
		s.export()
	}
}

// pathChanged ends the session of a peer whose path has failed, without waiting
// for its hold timer (RFC 5882 section 4.3), and sets about a new one. A peer
// that only ended its BFD session keeps its BGP session. When a path comes up, the
// routes that wait for it are sent.
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
