package balance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Server is the backend of the lab. It speaks as much HTTP as its clients need and
// is otherwise as cheap as a server can be, so that a measurement is not of the server:
//
//	GET /        its name, and it hangs up
//	GET /readyz  200, and it listens on: a health check may stay
//	GET /served  how many of / and /echo it had, and it hangs up
//	GET /echo    its name and a newline, and from then on what it is sent
//	GET /bytes   zeroes, for as long as the client reads
type Server struct {
	// Name is what it calls itself.
	Name string

	served atomic.Uint64
	mu     sync.Mutex
	conns  map[net.Conn]bool
}

// longestRequest bounds a request's header, in bytes.
const longestRequest = 4096

// Listen opens a listener of plain TCP. Go's default, Multipath TCP, costs more.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	return c.Listen(ctx, "tcp", address)
}

// Serve serves until ctx ends, closes all connections and returns when they are gone.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.conns = make(map[net.Conn]bool)
	var all sync.WaitGroup
	defer all.Wait()
	stop := context.AfterFunc(ctx, func() {
		l.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.Close()
		}
	})
	defer stop()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		all.Go(func() {
			_ = s.talk(c) // the client's end of it is measured, not this one
			c.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		})
		if ctx.Err() != nil { // it may have come after all others were closed
			c.Close()
		}
	}
}

var errRequest = errors.New("no request that this server knows")

// talk answers the requests of one connection.
func (s *Server) talk(c net.Conn) error {
	var space [longestRequest]byte
	have := 0
	for {
		n, err := c.Read(space[have:])
		if err != nil {
			return err
		}
		have += n
		end := bytes.Index(space[:have], []byte("\r\n\r\n"))
		if end < 0 {
			if have == len(space) {
				return errRequest
			}
			continue
		}
		line, _, _ := bytes.Cut(space[:end], []byte("\r\n"))
		words := bytes.Split(line, []byte(" "))
		if len(words) != 3 || string(words[0]) != "GET" {
			return errRequest
		}
		switch string(words[1]) {
		case "/readyz":
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
				return err
			}
			have = copy(space[:], space[end+4:have])
			continue
		case "/":
			s.served.Add(1)
			return s.answer(c, s.Name)
		case "/served":
			return s.answer(c, strconv.FormatUint(s.served.Load(), 10))
		case "/echo":
			s.served.Add(1)
			if _, err := io.WriteString(c, s.Name+"\n"); err != nil {
				return err
			}
			return echo(c)
		case "/bytes":
			for zeroes := make([]byte, 256<<10); ; {
				if _, err := c.Write(zeroes); err != nil {
					return err
				}
			}
		}
		return errRequest
	}
}

func (s *Server) answer(c net.Conn, text string) error {
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nX-Served-By: "+s.Name+
		"\r\nContent-Length: "+strconv.Itoa(len(text))+"\r\n\r\n"+text)
	return err
}

// echo sends back what comes in. It has no need of a pipe, as io.Copy has for each connection.
func echo(c net.Conn) error {
	var space [64]byte
	for {
		n, err := c.Read(space[:])
		if n > 0 {
			if _, err := c.Write(space[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// Dial connects by a context's dialer; [net.Dialer.DialContext] and that of a lab's node are such.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// ask sends a request and returns the body of the answer, which ends with the connection.
func ask(c net.Conn, path string, within time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: balance\r\n\r\n"); err != nil {
		return "", err
	}
	var space [1024]byte
	have := 0
	for have < len(space) {
		n, err := c.Read(space[have:])
		have += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	_, body, ok := bytes.Cut(space[:have], []byte("\r\n\r\n"))
	if !ok {
		return "", io.ErrUnexpectedEOF
	}
	return string(body), nil
}
