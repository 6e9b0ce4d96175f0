package bfd

import "golang.org/x/sys/unix"

// Stall makes the server do nothing else while it calls f.
func (s *Server) Stall(f func()) error { return s.loop.do(f) }

// Kill ends the server without goodbyes to its peers.
func (s *Server) Kill() {
	s.loop.abort()
	<-s.loop.done
}

// portOf returns the port of a listener.
func portOf(l *listener) (uint16, error) {
	sa, err := unix.Getsockname(l.fd)
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(sa.Port), err
	case *unix.SockaddrInet6:
		return uint16(sa.Port), err
	}
	return 0, err
}
