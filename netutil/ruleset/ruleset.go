// Package ruleset reads, writes and keeps nftables tables. A [Table] is the desired content of a table, and a [Keeper]
// has it repaired. The package also has a socket, calls that return even if the kernel does not answer, reports of changes,
// and expressions that match packets.
package ruleset

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// AnswerTimeout bounds a call to the kernel. Thousands of addresses take far less.
const AnswerTimeout = time.Second

// ErrStuck means that the kernel did not answer in time: another program's huge batch may hold the
// nftables lock, or this process was suspended.
var ErrStuck = errors.New("nftables does not answer")

// Calls limits calls to the kernel to one at a time.
type Calls struct {
	timeout time.Duration
	busy    chan struct{} // holds a token during a call
}

// NewCalls returns Calls with a timeout for Do.
func NewCalls(timeout time.Duration) Calls { return Calls{timeout, make(chan struct{}, 1)} }

// Do calls f, which calls the kernel. After the timeout Do returns ErrStuck while f continues. Do also returns
// ErrStuck at once while an earlier call continues.
func (c Calls) Do(f func() error) error {
	select {
	case c.busy <- struct{}{}:
	default: // do not wait again for a call that is stuck
		return ErrStuck
	}
	deadline := time.After(c.timeout)
	done := make(chan error, 1)
	go func() {
		err := f()
		<-c.busy
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-deadline:
		return ErrStuck
	}
}

// Socket calls the kernel's nftables, one caller at a time. It stays open between calls: closing waits until deleted
// objects are unused. Do closes it after an error, so that a late answer is never taken for the next call's.
type Socket struct {
	NetNS   int           // file descriptor of a network namespace; 0: the calling thread's
	Timeout time.Duration // of each call; 0: AnswerTimeout

	conn   *nftables.Conn
	socket *netlink.Conn // used by conn
	port   atomic.Uint32 // of socket, as messages about its changes have it
}

// buffer fits the largest batch and its answers: filtering 10,000 addresses takes some 3 MB.
const buffer = 8 << 20

// Do calls f with an open connection.
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
	_ = socket.SetOption(netlink.CapAcknowledge, true) // errors need not repeat the request; older kernels do
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if at, err := unix.Getsockname(int(fd)); err == nil {
				s.port.Store(at.(*unix.SockaddrNetlink).Pid)
			}
		})
	}
	_ = socket.SetReadBuffer(buffer)
	return socket.SetWriteBuffer(buffer)
}

// Close closes the socket; the next call opens it again.
func (s *Socket) Close() {
	if s.conn != nil {
		_ = s.conn.CloseLasting()
		s.conn = nil
	}
}

// Batch sends the changes that queue adds to a batch: all take effect, or none.
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

// RemoveTables removes the tables that exist.
func (s *Socket) RemoveTables(tables ...*nftables.Table) error {
	return s.Batch(func(c *nftables.Conn) error {
		for _, t := range tables {
			c.DelTable(c.AddTable(t)) // deleting a missing table would fail
		}
		return nil
	})
}

// Replace queues an empty table in place of any existing one.
func Replace(c *nftables.Conn, t *nftables.Table) {
	c.DelTable(c.AddTable(t))
	c.AddTable(t)
}

// BaseChain returns a chain at a hook, with policy accept.
func BaseChain(in *nftables.Table, name string, kind nftables.ChainType, at *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
	accept := nftables.ChainPolicyAccept
	return &nftables.Chain{Table: in, Name: name, Type: kind, Hooknum: at, Priority: &priority, Policy: &accept}
}

// FindTable reports whether a table exists, and whether it is in force. A dormant table is not.
func FindTable(c *nftables.Conn, t *nftables.Table) (exists, inForce bool, err error) {
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

// Unsupported wraps unsupported around an error that says that this host cannot have such tables; lacks then names the
// missing kernel features. It prefixes any other error with the task that failed, and returns nil for nil.
func Unsupported(err, unsupported error, lacks, task string) error {
	var reason string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotRoot):
		return fmt.Errorf("%w: %w", unsupported, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		reason = "nftables needs the capability CAP_NET_ADMIN"
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EINVAL):
		reason = "the kernel has no nftables (CONFIG_NF_TABLES, module nf_tables)"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT):
		reason = "the kernel's nftables lacks " + lacks
	default:
		return fmt.Errorf("%s: %w", task, err)
	}
	return fmt.Errorf("%w: %s: %w", unsupported, reason, err)
}

// Fault is the text of a lasting error, empty without one.
type Fault string

// Log logs err when it first occurs or changes, and its end: begun and over are the messages.
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

// AddTimeout adds a conntrack timeout object for half-open TCP connections to a table, which it creates if missing. It
// does not change an existing object. All other TCP timeouts stay; the library would overwrite them.
//
// The error is unix.ENOENT or EOPNOTSUPP if the kernel lacks CONFIG_NF_CONNTRACK_TIMEOUT.
func (s *Socket) AddTimeout(t *nftables.Table, name string, opening time.Duration) error {
	return s.Do(func(*nftables.Conn) error {
		table := netlink.NewAttributeEncoder()
		table.String(unix.NFTA_TABLE_NAME, t.Name)
		encoded, err := table.Encode()
		if err != nil {
			return err
		}
		object, err := encodeTimeout(t, name, opening)
		if err != nil {
			return err
		}
		const ask = netlink.Request | netlink.Acknowledge | netlink.Create
		return s.sendBatch(message(unix.NFT_MSG_NEWTABLE, ask, t.Family, encoded), message(unix.NFT_MSG_NEWOBJ, ask, t.Family, object))
	})
}

// AddNumbers adds a map of numbers below n, as numgen and jhash return them, to chains. The table must exist. The program nft
// loads rules with such a map only if its user data say that the keys are such numbers.
func (s *Socket) AddNumbers(t *nftables.Table, name string, n uint32) error {
	const integer, verdict, numgen = 4, 0xffffff00, 23 // of nft: TYPE_INTEGER, NFT_DATA_VERDICT, EXPR_NUMGEN
	const typ, data, modulus, offset = 0, 1, 1, 2      // NFTNL_UDATA_SET_TYPEOF_*, NFTNL_UDATA_SET_KEY_NUMGEN_*
	generator := userdata.AppendUint32(userdata.AppendUint32(nil, typ, unix.NFT_NG_INCREMENTAL), modulus, n)
	keys := userdata.Append(userdata.AppendUint32(nil, typ, numgen), data, userdata.AppendUint32(generator, offset, 0))
	const hostOrder = 1
	user := userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, hostOrder)
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	attrs.String(unix.NFTA_SET_TABLE, t.Name)
	attrs.String(unix.NFTA_SET_NAME, name)
	attrs.Uint32(unix.NFTA_SET_FLAGS, unix.NFT_SET_MAP)
	attrs.Uint32(unix.NFTA_SET_KEY_TYPE, integer)
	attrs.Uint32(unix.NFTA_SET_KEY_LEN, 4)
	attrs.Uint32(unix.NFTA_SET_DATA_TYPE, verdict)
	attrs.Uint32(unix.NFTA_SET_ID, 1)
	user = userdata.Append(user, userdata.NFTNL_UDATA_SET_KEY_TYPEOF, keys)
	user = userdata.Append(user, userdata.NFTNL_UDATA_SET_DATA_TYPEOF, userdata.Append(userdata.AppendUint32(nil, typ, 1), data, nil))
	attrs.Bytes(unix.NFTA_SET_USERDATA, user)
	encoded, err := attrs.Encode()
	if err != nil {
		return err
	}
	return s.Do(func(*nftables.Conn) error {
		return s.sendBatch(message(unix.NFT_MSG_NEWSET, netlink.Request|netlink.Acknowledge|netlink.Create, t.Family, encoded))
	})
}

func encodeTimeout(t *nftables.Table, name string, opening time.Duration) ([]byte, error) {
	const synSent, synRecv, synSent2 = 1, 2, 9 // CTA_TIMEOUT_TCP_*, linux/netfilter/nfnetlink_cttimeout.h
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	attrs.String(unix.NFTA_OBJ_TABLE, t.Name)
	attrs.String(unix.NFTA_OBJ_NAME, name)
	attrs.Uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_CT_TIMEOUT)
	attrs.Nested(unix.NFTA_OBJ_DATA, func(object *netlink.AttributeEncoder) error {
		object.Uint8(expr.NFTA_CT_TIMEOUT_L4PROTO, unix.IPPROTO_TCP)
		object.Nested(expr.NFTA_CT_TIMEOUT_DATA, func(times *netlink.AttributeEncoder) error {
			for _, state := range []uint16{synSent, synRecv, synSent2} {
				times.Uint32(state, uint32(opening/time.Second))
			}
			return nil
		})
		return nil
	})
	return attrs.Encode()
}

// Timeout applies the object of [Socket.AddTimeout] to the packet's connection. The packet must be its first.
func Timeout(name string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_CT_TIMEOUT, Name: name}}
}

// ErrNotRoot means that this process may not create a network namespace. The kernel's error follows in the text.
var ErrNotRoot = errors.New("only root can try")

// Try calls f in a new network namespace that ends when f returns. The host's namespace is not touched. Goroutines
// that f starts run outside it.
func Try(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays in the new namespace and ends with the goroutine
		done <- try(f)
	}()
	return <-done
}

func try(f func() error) error {
	switch err := unix.Unshare(unix.CLONE_NEWNET); {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", ErrNotRoot, err)
	case err != nil:
		return fmt.Errorf("create a network namespace: %w", err)
	}
	return f()
}

// ChainID names an existing chain of nftables or iptables-nft.
type ChainID struct {
	Family string // ip, ip6, or inet, which is both
	Table  string
	Name   string
}

// Sees reports whether the chain sees packets of the address's family.
func (c ChainID) Sees(addr netip.Addr) bool {
	return c.Family == "inet" || addr.Is4() == (c.Family == "ip")
}

// String returns the name as nft commands take it, such as "ip filter FORWARD".
func (c ChainID) String() string { return c.Family + " " + c.Table + " " + c.Name }

// ForwardDrops returns the chains of this network namespace that drop forwarded packets by policy. Their rules may still
// accept some. It needs CAP_NET_ADMIN.
func ForwardDrops() ([]ChainID, error) {
	var all []*nftables.Chain
	s := Socket{}
	defer s.Close()
	err := s.Do(func(c *nftables.Conn) (err error) { all, err = c.ListChains(); return err })
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	return forwardDrops(all), nil
}

func forwardDrops(all []*nftables.Chain) []ChainID {
	families := map[nftables.TableFamily]string{ // the bridge family sees no routed packets
		nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	}
	var out []ChainID
	for _, c := range all {
		family, routed := families[c.Table.Family]
		if routed && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			out = append(out, ChainID{family, c.Table.Name, c.Name})
		}
	}
	slices.SortFunc(out, func(x, y ChainID) int { return cmp.Compare(x.String(), y.String()) })
	return out
}
