package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// lookEvery is the time between two checks that the socket is still at its path.
const lookEvery = time.Second

// socket is a Unix listener that creates its socket again after another process removes or replaces it.
type socket struct {
	path string
	log  *slog.Logger

	mu       sync.Mutex
	listener *net.UnixListener
	made     os.FileInfo // the file, for comparison
	trouble  string      // the last logged error
	closed   bool
}

// open creates the socket.
func (s *socket) open() error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("admin socket: %w", err)
	}
	if conn, err := net.DialTimeout("unix", s.path, time.Second); err == nil {
		conn.Close()
		return fmt.Errorf("admin socket: another herald answers on %s: a node runs only one", s.path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if info, err := os.Lstat(s.path); err == nil && info.Mode().Type() != os.ModeSocket {
			return fmt.Errorf("admin socket: %s is not a socket: remove it, or set admin.socket to another path", s.path)
		}
		if err := os.Remove(s.path); err != nil {
			return fmt.Errorf("admin socket: remove the stale one: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("admin socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // another process may have the path by then
	err = os.Chmod(s.path, 0o600)
	if err == nil {
		s.made, err = os.Lstat(s.path)
	}
	if err != nil {
		l.Close()
		return fmt.Errorf("admin socket: %w", err)
	}
	s.listener = l
	return nil
}

// Accept implements [net.Listener].
func (s *socket) Accept() (net.Conn, error) {
	for {
		s.mu.Lock()
		l := s.listener
		s.mu.Unlock()
		if err := l.SetDeadline(time.Now().Add(lookEvery)); err != nil {
			return nil, err
		}
		conn, err := l.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return conn, err
		}
		s.restore()
	}
}

// restore creates the socket again if it is missing. It logs a failure once.
func (s *socket) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.there() {
		return
	}
	old := s.listener
	err := s.open()
	if err == nil {
		s.trouble = ""
		s.log.Warn("admin socket was removed: created it again", "socket", s.path)
		old.Close()
	} else if s.trouble != err.Error() {
		s.trouble = err.Error()
		s.log.Error("admin socket was removed and cannot be created again yet", "err", err)
	}
}

// there reports whether the path still leads to the socket.
func (s *socket) there() bool {
	now, err := os.Lstat(s.path)
	return err == nil && os.SameFile(now, s.made)
}

// Close implements [net.Listener]. It removes the socket, unless another has its path.
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if !s.closed && s.there() {
		err = os.Remove(s.path)
	}
	s.closed = true
	return errors.Join(err, s.listener.Close())
}

// Addr implements [net.Listener].
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }
