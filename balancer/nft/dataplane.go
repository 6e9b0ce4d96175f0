// Package nft is the data plane of balancers in the kernel. An nftables table of Herald's own,
// `inet herald_balancer`, assigns new TCP connections to backends, and conntrack keeps each connection
// with its backend. The package changes no other table.
//
// # What outlives the process
//
// Established connections need the table's hooks, so the table is changed in place and stays while there are any.
// Listeners are elements with a timeout, which Run renews. A successor adopts them. Without a successor they
// expire and leave a table that only keeps established connections.
// See docs/decisions/0020-the-balancers-table-outlives-herald.md.
//
// # Locks
//
// A goroutine locks first changing of the [DataPlane], then the mutex of its owner, then that of the requests. Owner and
// requests refer to no type with an outer lock, so they cannot lock in another order. TestLockOrder checks it.
package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/conntrack"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// ErrUnsupported is the error of [DataPlane.Apply] if the kernel lacks a part of nftables, or if the process
// may not use it. It wraps the reason.
var ErrUnsupported = errors.New("no balancing in the kernel")

// Options adjust a DataPlane.
type Options struct {
	// Node is this node's name: nodes with different names start with different backends.
	Node string
	// Outlive is how long new connections are accepted without renewal, as between two versions of Herald. 0 means 30 s.
	Outlive time.Duration

	timeout time.Duration // of calls to the kernel, see ruleset.Socket
}

// openRetry is the pause after a failure to make the table: missing kernel features rarely appear soon.
const openRetry = 5 * time.Second

// DataPlane implements [balancer.DataPlane] in the kernel. Run keeps it alive. It makes the table when the first service or
// bridge is set: most nodes have neither.
type DataPlane struct {
	log     *slog.Logger
	host    host
	owner   *owner
	bridge  *Bridge
	outlive time.Duration // of listeners without renewal
	opened  chan struct{} // closed when the table is made

	changing sync.Mutex // held during one change of the table and the host, and guards the fields below
	failed   error      // why the table could not be made
	again    time.Time  // when to try again
	closed   bool
}

// New returns a DataPlane. When it needs the table it adopts a predecessor's, with its listeners and connections, or makes one.
func New(log *slog.Logger, o Options) *DataPlane { return newPlane(log, o, 0) }

// newPlane is New in the network namespace of a file descriptor; 0 is the process's.
func newPlane(log *slog.Logger, o Options, netns int) *DataPlane {
	timeout, outlive := cmp.Or(o.timeout, ruleset.AnswerTimeout), cmp.Or(o.Outlive, 30*time.Second)
	p := &DataPlane{
		log:  log,
		host: host{netns, ruleset.NewCalls(timeout), ruleset.NewCalls(max(timeout, endTimeout)), ruleset.NewCalls(timeout)},
		owner: &owner{
			log:    log,
			node:   o.Node,
			kernel: &kernel{ruleset.Socket{NetNS: netns, Timeout: o.timeout}},
			Keeper: ruleset.NewKeeper(timeout),
			want:   wanted{outlive: outlive},
			states: make(map[string]balancer.State),
			until:  make(map[netip.Addr]time.Time),
		},
		outlive: outlive,
		opened:  make(chan struct{}),
	}
	p.bridge = &Bridge{plane: p, wake: make(chan struct{}, 1)}
	return p
}

// open makes the table if it has not been made. p.changing is held.
func (p *DataPlane) open() error {
	switch {
	case p.isOpen():
		return nil
	case p.closed:
		return errors.New("herald is stopping")
	case time.Now().Before(p.again):
		return p.failed
	}
	if err := p.owner.adopt(); err != nil {
		p.failed, p.again = unsupported(err), time.Now().Add(openRetry)
		return p.failed
	}
	close(p.opened)
	return nil
}

// isOpen reports whether the table is made. It does not wait for a change, as a withdrawal opens the bridge.
func (p *DataPlane) isOpen() bool {
	select {
	case <-p.opened:
		return true
	default:
		return false
	}
}

// Clear removes a predecessor's listeners. Call it when neither balancers nor a bridge are configured. It removes the
// table if no connection needs it. Otherwise the table stays and keeps these connections.
func Clear() error { return clearTable(0) }

func clearTable(netns int) error {
	k := &kernel{ruleset.Socket{NetNS: netns}}
	found, err := k.Exist(ours())
	k.Close()
	if err != nil || !found {
		return err
	}
	p := newPlane(slog.New(slog.DiscardHandler), Options{}, netns)
	if err := p.open(); err != nil {
		return err
	}
	return errors.Join(p.Apply(nil), p.Close())
}

// Bridge returns the bridge for VIPs that leave this node. It uses the same table.
func (p *DataPlane) Bridge() *Bridge { return p.bridge }

// Apply implements [balancer.DataPlane]. It resets connections only of backends that this process has seen alive, so the
// first Apply resets none.
func (p *DataPlane) Apply(services []balancer.Service) error {
	services, refused := reachable(services)
	p.changing.Lock()
	defer p.changing.Unlock()
	if len(services) == 0 && !p.isOpen() {
		return nil
	}
	if err := p.open(); err != nil {
		return fmt.Errorf("%w; a balancer with mode: proxy does not need it", err)
	}
	host := p.prepareHost(services)
	dead, timedOut, err := p.owner.apply(services)
	if err != nil {
		return err
	}
	p.end("dead", dead, func(conntrack.Phase) bool { return true })
	p.end("timed-out", timedOut, func(phase conntrack.Phase) bool { return phase == conntrack.Opening })
	return errors.Join(refused, host)
}

// Counts implements [balancer.DataPlane]. It does not wait for slow calls to the host, such as ending connections.
func (p *DataPlane) Counts() ([]balancer.Count, error) {
	if !p.isOpen() {
		return nil, nil
	}
	services, taken, counted, err := p.owner.counts()
	if err != nil {
		return nil, err
	}
	var out []balancer.Count
	for _, s := range services {
		open, err := p.connected(p.host.counts, placesOf(taken, s.Name))
		for _, b := range s.Backends {
			count := balancer.Count{Service: s.Name, Backend: b.Addr, Connections: counted[backendName(s.Name, b.Addr)].packets(), Open: open[b.Addr]}
			if err != nil {
				count.Open = -1
			}
			out = append(out, count)
		}
	}
	return out, nil
}

// Close leaves the table to a successor. Without one the listeners expire after Options.Outlive, and established connections
// stay. Call it after Run has returned.
func (p *DataPlane) Close() error {
	p.changing.Lock()
	p.closed = true
	p.changing.Unlock()
	if !p.isOpen() {
		return nil
	}
	return cmp.Or(p.refresh(), p.owner.close())
}

// Bridge forwards new TCP connections to a VIP, at any port, to healthy masters. It sends them to a
// master's own address, never to a VIP, so no second bridge forwards them again: there is one hop.
// Forwarded connections are masqueraded. Its methods are safe for concurrent use.
type Bridge struct {
	plane *DataPlane
	wake  chan struct{} // holds one element while there are requests
}

// Prepare sets the masters of each VIP: their own addresses, of the VIP's family, if they are healthy. It opens no VIP, but
// spreads the connections of open ones over the new masters at once. It closes VIPs that masters does not have, and VIPs of
// a family that this host cannot forward. Call it again after an error.
//
// The Bridge keeps masters and changes it.
func (b *Bridge) Prepare(masters map[netip.Addr][]netip.Addr) error {
	p := b.plane
	p.changing.Lock()
	defer p.changing.Unlock()
	if len(masters) == 0 && !p.isOpen() {
		return nil
	}
	if err := p.open(); err != nil {
		return err
	}
	var unforwarded error
	for _, vip := range slices.SortedFunc(maps.Keys(masters), netip.Addr.Compare) {
		if err := p.forward(vip.Is4()); err != nil {
			delete(masters, vip) // a client notices a refused connection sooner than a lost one
			unforwarded = cmp.Or(unforwarded, err)
		}
	}
	if err := p.owner.prepare(masters); err != nil {
		return fmt.Errorf("prepare bridge: %w", err)
	}
	return unforwarded
}

// Open forwards new connections to vips for at most limit, after which the kernel stops by itself. Opening again sets a new
// limit. Open never blocks: DataPlane.Run carries it out, and logs errors. VIPs without masters stay closed.
func (b *Bridge) Open(limit time.Duration, vips ...netip.Addr) {
	b.plane.owner.requests.add(time.Now().Add(limit), vips)
	wake.Up(b.wake)
}

// Close stops forwarding new connections to vips. Established ones stay. Call it before a VIP is bound or announced here again.
func (b *Bridge) Close(vips ...netip.Addr) error {
	b.plane.owner.requests.remove(vips)
	if !b.plane.isOpen() {
		return nil
	}
	if err := b.plane.owner.closeBridge(vips); err != nil {
		return fmt.Errorf("close bridge: %w", err)
	}
	return nil
}

// Received returns how many new connections to vip were forwarded since it was last opened.
func (b *Bridge) Received(vip netip.Addr) (uint64, error) {
	if !b.plane.isOpen() {
		return 0, nil
	}
	n, err := b.plane.owner.received(vip)
	if err != nil {
		return 0, fmt.Errorf("count forwarded connections: %w", err)
	}
	return n, nil
}

// run carries out requests until ctx ends.
func (b *Bridge) run(ctx context.Context) {
	wake.Loop(ctx, b.wake, func() (never time.Time) {
		if err := b.plane.owner.openBridge(); err != nil {
			b.plane.log.Error("bridge not opened", "err", err)
		}
		return never
	})
}
