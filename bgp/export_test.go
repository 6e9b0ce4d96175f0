package bgp

import "time"

// StuckAfter limits GoBGP's attempts with one peer.
const StuckAfter = stuckAfter

// Retry ends the delay of a peer's next session. If the peer has been idle for a moment, Retry also adds it to GoBGP
// again, so that the test does not wait for GoBGP.
func (s *Server) Retry(name string) {
	const moment = 30 * time.Millisecond
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[name]
	p.banned = time.Time{}
	if !p.present {
		s.add(p)
	} else if p.state == Idle && time.Since(p.added) > moment {
		s.renew(p)
	}
}

// Handed returns when GoBGP last got a connection to a peer, and when it last got the peer.
func (s *Server) Handed(name string) (connection, peer time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[name]
	return p.handed, p.added
}
