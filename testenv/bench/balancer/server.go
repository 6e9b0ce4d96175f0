package balancer

import (
	"bufio"
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

// Server is the backend of the lab. It speaks only the HTTP that its clients need and
// is as cheap as possible, so that the measurement is not of the server:
//
//	GET /        its name, and it hangs up
//	GET /readyz  200, and it listens on: a health check may stay
//	GET /served  how many of / and /echo it had, and it hangs up
//	GET /echo    its name and a newline, and then everything that it is sent
//	GET /bytes   zeroes, for as long as the client reads
type Server struct {
	// Name is the name that it answers.
	Name string

	served atomic.Uint64
}

// Listen opens a listener of plain TCP, because Multipath TCP, Go's default, costs more.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	return c.Listen(ctx, "tcp", address)
}

// Serve serves until ctx ends, closes all connections and returns when they are gone.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		all.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			defer c.Close()
			_ = s.talk(c) // errors are counted at the client's end
		})
	}
}

// talk answers the requests of one connection.
func (s *Server) talk(c net.Conn) error {
	in := bufio.NewReaderSize(c, 1024)
	for {
		path, err := request(in)
		if err != nil {
			return err
		}
		switch path {
		case "/readyz":
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
				return err
			}
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
			return echo(c, in)
		case "/bytes":
			for zeroes := make([]byte, 256<<10); ; {
				if _, err := c.Write(zeroes); err != nil {
					return err
				}
			}
		default:
			return errors.New("unknown request")
		}
	}
}

// request reads the header of a request and returns its path; empty if it is malformed.
func request(in *bufio.Reader) (path string, err error) {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		if words := bytes.Fields(line); first && len(words) == 3 && string(words[0]) == "GET" {
			path = string(words[1])
		} else if len(words) == 0 {
			return path, nil
		}
	}
}

func (s *Server) answer(c net.Conn, text string) error {
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nX-Served-By: "+s.Name+
		"\r\nContent-Length: "+strconv.Itoa(len(text))+"\r\n\r\n"+text)
	return err
}

// echo sends back each line. It needs no pipe, unlike io.Copy with a pipe per connection.
func echo(c net.Conn, in *bufio.Reader) error {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if _, err := c.Write(line); err != nil {
			return err
		}
	}
}

// get returns a request.
func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: balance\r\n\r\n" }

// ask sends a request and returns the body of the answer, which ends with the connection.
func ask(c net.Conn, path string, within time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, get(path)); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(c, 1024))
	if err != nil {
		return "", err
	}
	_, body, ok := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !ok {
		return "", io.ErrUnexpectedEOF
	}
	return string(body), nil
}
