package bfd

import "golang.org/x/sys/unix"

// Stall calls f in the place of all else that the server does.
func (s *Server) Stall(f func()) error { return s.loop.do(f) }

// Kill ends the server without a word to its peers.
func (s *Server) Kill() {
	s.loop.abort()
	<-s.loop.done
}

// portOf is the port that a listener is bound to.
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
