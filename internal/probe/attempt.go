package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes. OK succeeds; Stalled and Local say nothing about the target; all others are failures.
const (
	// OK: connected and, if asked for, identified.
	OK Outcome = "ok"
	// Refused: the host answered that nothing listens there.
	Refused Outcome = "refused"
	// Timeout: no answer within Prober.Timeout.
	Timeout Outcome = "timeout"
	// Reset: the connection was closed by the other end before it was of use.
	Reset Outcome = "reset"
	// Unreachable: no route, no neighbour, or a router said so.
	Unreachable Outcome = "unreachable"
	// Other: connected, but the answer was not TLS or HTTP; or a rarer error.
	Other Outcome = "other"
	// Stalled: no answer, but the prober itself was not running for a good part of the time.
	Stalled Outcome = "stalled"
	// Local: the prober lacked ports, descriptors or memory.
	Local Outcome = "local"
)

func outcomes() []Outcome {
	return []Outcome{OK, Refused, Timeout, Reset, Unreachable, Other, Stalled, Local}
}

// UnmarshalText accepts the name of an outcome.
func (o *Outcome) UnmarshalText(text []byte) error {
	*o = Outcome(text)
	if !slices.Contains(outcomes(), *o) {
		return fmt.Errorf("unknown outcome %q", text)
	}
	return nil
}

// Failed reports whether the outcome speaks against the target.
func (o Outcome) Failed() bool { return o != OK && !o.Inconclusive() }

// Inconclusive reports whether the outcome says nothing about the target: the prober was at fault.
func (o Outcome) Inconclusive() bool { return o == Stalled || o == Local }

// Attempt is one connection attempt.
type Attempt struct {
	// Start is when the attempt began, since Result.Began, by the monotonic clock.
	Start time.Duration `json:"startNs"`
	// Delay is how long after its planned time the attempt began.
	Delay time.Duration `json:"delayNs"`
	// Latency is the time from Start to the outcome.
	Latency time.Duration `json:"latencyNs"`
	// Outcome is how it ended.
	Outcome Outcome `json:"outcome"`
	// Server is the name of the server that answered, if Identify was set and it told.
	Server string `json:"server,omitempty"`
}

// servedBy is the header with the server's name.
const servedBy = "X-Served-By"

// attempt connects once. It does not follow the context of Run: an attempt cut
// short by the end of the run would look like a failure.
func (p *Prober) attempt() (Outcome, string) {
	ctx, cancel := context.WithTimeout(context.Background(), p.Timeout)
	defer cancel()
	server, err := p.connect(ctx)
	return classify(err), server
}

func (p *Prober) connect(ctx context.Context) (server string, err error) {
	conn, err := p.Dial(ctx, "tcp", p.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// Closing with a reset leaves no TIME_WAIT behind: at 200 connections a
	// second those would use up the ports within minutes.
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			return "", err
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if p.TLS != nil {
		secured := tls.Client(conn, p.TLS)
		if err := secured.HandshakeContext(ctx); err != nil {
			return "", err
		}
		conn = secured
	}
	if !p.Identify {
		return "", nil
	}
	return identify(conn, p.address)
}

// identify asks the server for its name.
func identify(conn net.Conn, host string) (string, error) {
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	// The body is of no interest, and closing it would read it to its end.
	return resp.Header.Get(servedBy), nil
}

// classify maps the error of an attempt to its outcome.
func classify(err error) Outcome {
	isAny := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	var netErr net.Error
	switch {
	case err == nil:
		return OK
	case isAny(syscall.ECONNREFUSED):
		return Refused
	case isAny(syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, io.EOF, io.ErrUnexpectedEOF):
		return Reset
	case isAny(syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN,
		syscall.EACCES, syscall.EPERM): // the last two: a prohibit route, a firewall's reject
		return Unreachable
	case isAny(syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM):
		return Local
	case isAny(context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return Timeout
	default:
		return Other
	}
}
