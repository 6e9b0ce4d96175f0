package bfd

// Enter has f called by the goroutine that owns the sockets, before it opens any.
func (s *Server) Enter(f func()) { s.enter = f }
