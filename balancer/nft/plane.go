// Package nft carries the connections of balancers in the kernel: an nftables table of
// Herald's own, `inet herald_balancer`, gives new TCP connections to backends, and conntrack
// keeps each with its backend. No other table is touched.
//
// # What outlives the process
//
// Established connections need the table's hooks, so it is changed in place and never
// deleted while there are any. What it listens at are elements with a timeout, which Run
// refreshes: a successor adopts them, and without one they end, and leave a table that only
// keeps what is established. See docs/decisions/0020-the-balancers-table-outlives-herald.md.
package nft

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/conntrack"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// ErrUnsupported is [Plane.Apply]'s when the kernel lacks what is needed of nftables, or the process
// has no right to use it. It comes with the reason.
var ErrUnsupported = errors.New("no balancing in the kernel")

// Options adjust a Plane.
type Options struct {
	// Node is this node's name: nodes with different names begin with different backends.
	Node string
	// Outlive is for how long new connections are taken when nobody refreshes the table any
	// more, as between two versions of Herald. 0 is 30 s.
	Outlive time.Duration

	timeout time.Duration // of calls to the kernel, see ruleset.Socket
}

// openRetry is how long after a failure it is tried again to have a table: a kernel that lacks
// something lacks it for long.
const openRetry = 5 * time.Second

// Plane is the kernel's [balancer.Plane]. Run keeps it alive. It touches nothing until something is to be
// carried: most nodes have neither balancers nor, before others are known, a bridge.
type Plane struct {
	log    *slog.Logger
	node   string
	host   host
	kernel *kernel
	calls  ruleset.Calls
	bridge *Bridge
	opened chan struct{} // closed once there is a table

	counting sync.Mutex // held by who counts connections

	applying sync.Mutex // held by who has more to do than to write the table, and for what follows
	failed   error      // why there is no table, and
	again    time.Time  // when that is to be tried again
	closed   bool

	mu      sync.Mutex // for what follows, and to write the table
	want    wanted
	have    *table                    // what the table is; nil: not known
	applied bool                      // Apply has said what is wanted; before, it is what was found
	states  map[string]balancer.State // of backends, by their chains, as this Plane was told; of others Dead
	mended  uint64
	wrote   time.Time // this process, last
}

var _ balancer.Plane = (*Plane)(nil)

// New returns a Plane that adopts the table of a predecessor, or makes one, when it is needed: what is
// listened at goes on then, and so does everything that is established.
func New(log *slog.Logger, o Options) *Plane { return newPlane(log, o, 0) }

// newPlane is New in the network namespace of a file descriptor, 0 for the process's.
func newPlane(log *slog.Logger, o Options, netns int) *Plane {
	const outlive = 30 * time.Second
	timeout := cmp.Or(o.timeout, ruleset.AnswerTimeout)
	p := &Plane{
		log:    log,
		node:   o.Node,
		host:   newHost(netns, timeout),
		kernel: &kernel{ruleset.Socket{NetNS: netns, Timeout: o.timeout}},
		calls:  ruleset.NewCalls(timeout),
		opened: make(chan struct{}),
		want:   wanted{outlive: cmp.Or(o.Outlive, outlive)},
		states: make(map[string]balancer.State),
	}
	p.bridge = newBridge(p)
	return p
}

// open has a table be there. applying is held.
func (p *Plane) open() error {
	switch {
	case p.isOpen():
		return nil
	case p.closed:
		return errors.New("herald is stopping")
	case time.Now().Before(p.again):
		return p.failed
	}
	if err := p.adopt(); err != nil {
		p.failed, p.again = unsupported(err), time.Now().Add(openRetry)
		return p.failed
	}
	close(p.opened)
	return nil
}

// isOpen does not wait for a table that is being made, as a withdrawal opens the bridge.
func (p *Plane) isOpen() bool {
	select {
	case <-p.opened:
		return true
	default:
		return false
	}
}

// adopt makes the table that there is this Plane's, or a new one.
func (p *Plane) adopt() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, _, err := p.read()
	if err != nil {
		return err
	}
	p.want.recall(found)
	if err := p.calls.Do(p.kernel.addOpening); err == nil {
		p.want.brief = ruleset.Timeout(opening)
	}
	p.have = &found
	return p.sync()
}

// Clear is for who has no balancers and no bridge: it ends all listening that a predecessor has
// left. The table goes if no connection needs it any more; otherwise it stays, and only keeps those.
func Clear() error { return clearTable(0) }

func clearTable(netns int) error {
	k := &kernel{ruleset.Socket{NetNS: netns}}
	_, left, err := k.read()
	k.Close()
	if err != nil || !left {
		return err
	}
	p := newPlane(slog.New(slog.DiscardHandler), Options{}, netns)
	if err := p.open(); err != nil {
		return err
	}
	return errors.Join(p.Apply(nil), p.Close())
}

// Bridge is the same table's, for VIPs that this node is about to lose.
func (p *Plane) Bridge() *Bridge { return p.bridge }

// Apply is [balancer.Plane]'s. A backend that is Dead was not so before only if this Plane has been
// told that: the first Apply ends no connections.
func (p *Plane) Apply(services []balancer.Service) error {
	services, refused := reachable(services)
	p.applying.Lock()
	defer p.applying.Unlock()
	if len(services) == 0 && !p.isOpen() {
		return nil
	}
	if err := p.open(); err != nil {
		return fmt.Errorf("%w; a balancer with mode: proxy does without", err)
	}
	host := p.prepareHost(services)
	dead, silent, err := p.apply(services)
	if err != nil {
		return err
	}
	p.end("dead", dead, func(conntrack.Phase) bool { return true })
	p.end("silent", silent, func(phase conntrack.Phase) bool { return phase == conntrack.Opening })
	return errors.Join(refused, host)
}

// apply makes services the ones that are carried, and returns by service which backends have died,
// and which have fallen silent.
func (p *Plane) apply(services []balancer.Service) (dead, silent map[string][]netip.AddrPort, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, applied := p.want, p.applied
	p.want.services, p.applied = services, true
	p.want.taken = maps.Clone(before.taken)
	maps.Copy(p.want.taken, balancer.Places(services))
	p.want.counts = maps.Clone(before.counts)
	wanted := make(map[string]bool)
	for _, s := range services {
		for _, b := range s.Backends {
			wanted[backendName(s.Name, b.Addr)] = true
		}
	}
	maps.DeleteFunc(p.want.counts, func(name string, _ uint64) bool { return !wanted[name] })
	if err := p.sync(); err != nil {
		p.want, p.applied = before, applied
		return nil, nil, err
	}
	dead, silent = make(map[string][]netip.AddrPort), make(map[string][]netip.AddrPort)
	states := make(map[string]balancer.State)
	for _, s := range services {
		for _, b := range s.Backends {
			name := backendName(s.Name, b.Addr)
			states[name] = b.State
			switch was := p.states[name]; { // of one that is new: Dead
			case was != balancer.Dead && b.State == balancer.Dead:
				dead[s.Name] = append(dead[s.Name], b.Addr)
			case was == balancer.Serving && b.State == balancer.Draining && b.Silent:
				silent[s.Name] = append(silent[s.Name], b.Addr)
			}
		}
	}
	p.states = states
	return dead, silent, nil
}

// Counts is [balancer.Plane]'s.
func (p *Plane) Counts() ([]balancer.Count, error) {
	if !p.isOpen() {
		return nil, nil
	}
	p.mu.Lock()
	services := p.want.services
	counted, err := p.counted()
	if err == nil {
		p.want.recount(counted)
	}
	taken := maps.Clone(p.want.taken)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p.counting.Lock()
	defer p.counting.Unlock()
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

// Close leaves the table as it is, for a successor: without one, it takes no new connections
// after Options.Outlive, and keeps those that are established. Run has to have ended.
func (p *Plane) Close() error {
	p.applying.Lock()
	p.closed = true
	p.applying.Unlock()
	if !p.isOpen() {
		return nil
	}
	err := p.refresh()
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(err, p.calls.Do(func() error { p.kernel.Close(); return nil }))
}

// placesOf are those of a service.
func placesOf(taken map[netip.AddrPort]string, service string) []netip.AddrPort {
	var out []netip.AddrPort
	for place, of := range taken {
		if of == service {
			out = append(out, place)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

// read finds out what the table is.
func (p *Plane) read() (table, bool, error) {
	var (
		found table
		ok    bool
	)
	if err := p.calls.Do(func() (err error) { found, ok, err = p.kernel.read(); return err }); err != nil {
		return table{}, false, err // a call that is stuck may still write to the variables
	}
	return found, ok, nil
}

// counted reads what chains have counted.
func (p *Plane) counted() (map[string]chain, error) {
	chains := make(map[string]chain)
	if err := p.calls.Do(func() error { return p.kernel.rules(chains) }); err != nil {
		return nil, err // as above
	}
	return chains, nil
}

// wanted is what the table is to be, of which found is what was there.
func (p *Plane) wanted(found table) table {
	t := p.rebuilt(found)
	if !p.applied {
		keep := func(name string) bool { return balancing(name) && !strings.HasPrefix(name, localnet) }
		t.add(found.only(keep), keep)
	}
	return t
}

// rebuilt is wanted without what a predecessor balanced: that is known by its names only, and
// cannot be made anew.
func (p *Plane) rebuilt(found table) table {
	w := p.want
	w.buckets = assign(found, w.services, p.node)
	w.open = p.bridge.left(found)
	if p.applied && len(w.services)+len(w.taken)+len(w.localnet)+len(w.masters) == 0 {
		return table{}
	}
	return w.table()
}

// sync makes the table what is wanted. mu is held.
func (p *Plane) sync() error {
	if p.have != nil {
		if err := p.change(*p.have, p.wanted(*p.have)); err == nil || errors.Is(err, ruleset.ErrStuck) {
			return err
		}
	}
	// Somebody else has changed it.
	found, _, err := p.read()
	if err != nil {
		return err
	}
	if err := p.change(found, p.wanted(found)); err == nil || errors.Is(err, ruleset.ErrStuck) {
		return err
	}
	// It is nothing that can be changed into what is wanted, such as another version's.
	want := p.rebuilt(found)
	if err := p.calls.Do(func() error { return p.kernel.replace(want) }); err != nil {
		return err
	}
	p.have, p.wrote = &want, time.Now()
	return nil
}

// change makes want of have.
func (p *Plane) change(have, want table) (err error) {
	todo := change(have, want)
	switch {
	case todo.empty():
	case len(want.chains) == 0:
		err = p.calls.Do(func() error { return p.kernel.RemoveTables(ours()) })
	default:
		err = p.calls.Do(func() error { return p.kernel.apply(todo, want) })
	}
	if err != nil {
		p.have = nil
		return err
	}
	if p.have = &want; !todo.empty() {
		p.wrote = time.Now()
	}
	return nil
}
