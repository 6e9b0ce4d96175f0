package bgp

import "time"

// StuckAfter is how long GoBGP may try a peer.
const StuckAfter = stuckAfter

// Retry ends the time for which a peer is left alone, and gives it to GoBGP
// afresh if it has been idle for a moment, so that it need not be waited for.
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

// Handed tells when GoBGP was last handed a connection to a peer, and when it was given
// the peer.
func (s *Server) Handed(name string) (connection, peer time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[name]
	return p.handed, p.added
}
