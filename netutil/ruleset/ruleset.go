// Package ruleset writes Herald's tables of nftables: it has a socket to the kernel, calls
// that end even if the kernel does not answer, reports of changes, and expressions that
// match packets.
package ruleset

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// AnswerTimeout is how long a call to the kernel may take: far more than thousands of
// addresses need, and soon enough to report.
const AnswerTimeout = time.Second

// ErrStuck means that the kernel did not answer within a second, as while another
// program's huge batch holds the lock of nftables, or that this process stood still
// for so long.
var ErrStuck = errors.New("nftables does not answer")

// Calls makes calls to the kernel, at most one at a time.
type Calls struct {
	timeout time.Duration
	busy    chan struct{} // holds one for the call that is under way
}

// NewCalls returns Calls whose Do waits no longer than the timeout.
func NewCalls(timeout time.Duration) Calls { return Calls{timeout, make(chan struct{}, 1)} }

// Do calls do, which calls the kernel. After the timeout Do returns ErrStuck, and do goes
// on.
func (c Calls) Do(do func() error) error {
	select {
	case c.busy <- struct{}{}:
	default: // the last one is still stuck; do not wait for it again
		return ErrStuck
	}
	deadline := time.NewTimer(c.timeout)
	defer deadline.Stop()
	done := make(chan error, 1)
	go func() {
		err := do()
		<-c.busy
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-deadline.C:
		return ErrStuck
	}
}

// Socket calls the kernel's nftables, for one caller at a time. It stays open from one
// call to the next, because closing it waits for what was deleted to be out of use. Do
// closes it after an error, so that a late answer is never taken for the next one's.
type Socket struct {
	NetNS   int           // file descriptor of a network namespace; 0: the process's
	Timeout time.Duration // of a call; 0: AnswerTimeout

	conn   *nftables.Conn
	socket *netlink.Conn // conn's
}

// buffer holds the largest batch, and the answers to it: gating 10,000 addresses takes some 3 MB.
const buffer = 8 << 20

// Do calls f with a connection.
func (s *Socket) Do(f func(*nftables.Conn) error) error {
	if s.conn == nil {
		conn, err := nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(s.NetNS), nftables.WithSockOptions(s.setUp))
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		s.conn = conn
	}
	err := s.socket.SetDeadline(time.Now().Add(cmp.Or(s.Timeout, AnswerTimeout)))
	if err == nil {
		err = f(s.conn)
	}
	if err != nil {
		s.Close()
	}
	return err
}

func (s *Socket) setUp(socket *netlink.Conn) error {
	s.socket = socket
	_ = socket.SetOption(netlink.CapAcknowledge, true) // errors need not repeat the request; harmless if they do
	_ = socket.SetReadBuffer(buffer)
	return socket.SetWriteBuffer(buffer)
}

// Close frees what is held between calls; another call may follow.
func (s *Socket) Close() {
	if s.conn != nil {
		_ = s.conn.CloseLasting()
		s.conn = nil
	}
}

// Batch sends what queue adds to a batch: all of it takes effect, or none.
func (s *Socket) Batch(queue func(*nftables.Conn) error) error {
	return s.Do(func(c *nftables.Conn) error {
		if err := queue(c); err != nil {
			return err
		}
		return flush(c)
	})
}

// flush sends the batch. It returns the first error, from which the others follow.
func flush(c *nftables.Conn) error {
	err := c.Flush()
	var several interface{ Unwrap() []error }
	for errors.As(err, &several) {
		err = several.Unwrap()[0]
	}
	return err
}

// RemoveTables removes tables, if they are there.
func (s *Socket) RemoveTables(tables ...*nftables.Table) error {
	return s.Batch(func(c *nftables.Conn) error {
		for _, t := range tables {
			c.DelTable(c.AddTable(t)) // added so that deleting cannot fail
		}
		return nil
	})
}

// Replace adds to a batch that a table is there, empty.
func Replace(c *nftables.Conn, t *nftables.Table) {
	c.DelTable(c.AddTable(t))
	c.AddTable(t)
}

// BaseChain is a chain that packets come to by themselves, and pass unless a rule says otherwise.
func BaseChain(in *nftables.Table, name string, kind nftables.ChainType, at *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{Table: in, Name: name, Type: kind, Hooknum: at, Priority: &priority, Policy: &accept}
}

// FindTable reports whether a table is there, and whether its chains are in force, which those of a
// dormant table are not.
func FindTable(c *nftables.Conn, t *nftables.Table) (there, inForce bool, err error) {
	tables, err := c.ListTablesOfFamily(t.Family)
	if err != nil {
		return false, false, fmt.Errorf("list tables: %w", err)
	}
	for _, found := range tables {
		if found.Name == t.Name {
			return true, found.Flags == 0, nil
		}
	}
	return false, false, nil
}

// Unsupported makes err wrap unsupported if it means that there can be no such tables here: lacks
// is what the kernel's nftables then is without. Another error is one of what was to be done.
func Unsupported(err, unsupported error, lacks, todo string) error {
	var reason string
	switch {
	case errors.Is(err, ErrNotRoot):
		return fmt.Errorf("%w: %w", unsupported, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		reason = "nftables needs the capability CAP_NET_ADMIN"
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EINVAL):
		reason = "the kernel has no nftables (CONFIG_NF_TABLES, module nf_tables)"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT):
		reason = "the kernel's nftables lacks " + lacks
	default:
		return fmt.Errorf("%s: %w", todo, err)
	}
	return fmt.Errorf("%w: %s: %w", unsupported, reason, err)
}

// Fault is the text of an error that lasts, empty while there is none.
type Fault string

// Log logs an error when it begins or changes, and its end.
func (f *Fault) Log(log *slog.Logger, err error, begun, over string) {
	var now Fault
	if err != nil {
		now = Fault(err.Error())
	}
	switch {
	case now == *f:
	case err != nil:
		log.Error(begun, "err", err)
	default:
		log.Info(over)
	}
	*f = now
}
