package bfd

// Stall calls f in the place of all else that the server does.
func (s *Server) Stall(f func()) error { return s.loop.do(f) }

// Kill ends the server without a word to its peers.
func (s *Server) Kill() {
	s.loop.abort()
	<-s.loop.done
}
