package arp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

const defaultRefresh = time.Minute

// Announcer announces and watches addresses on links. Its methods may be called at
// any time from any goroutine. They wait for nothing but each other, and none of them is long.
type Announcer struct {
	log      *slog.Logger
	opts     Options
	net      network
	wake     chan struct{} // receives when something is due earlier than the loop knows
	reported chan struct{} // receives when there is something to tell

	mu      sync.Mutex // guards what follows
	readers sync.WaitGroup
	running bool
	links   map[string]link.Link
	own     map[mac]bool // hardware addresses of this node
	members map[mac]bool // those of the electorate
	states  map[string]*linkState
	reports []func() // the queue of what is to be told
	stats   Stats
}

// New returns an Announcer that announces and watches nothing yet. It does
// neither before Run.
func New(log *slog.Logger, o Options) *Announcer {
	if o.Watcher == nil {
		o.Watcher = new(rtnetlink.Watcher)
	}
	return newAnnouncer(log, o, host{o.Watcher, func(f func() error) error { return f() }})
}

func newAnnouncer(log *slog.Logger, o Options, n network) *Announcer {
	o.Refresh = cmp.Or(o.Refresh, defaultRefresh)
	return &Announcer{
		log:      log,
		opts:     o,
		net:      n,
		wake:     make(chan struct{}, 1),
		reported: make(chan struct{}, 1),
		states:   make(map[string]*linkState),
	}
}

// Announce says on the link that addrs are at this node: at once, six times more
// within 3 s, and every Options.Refresh until Withdraw; anew when the link comes up
// or changes its hardware address. An error means that not all was sent now; the
// rest happens all the same, as soon as it can. Nothing is sent from until on, unless it is zero; see
// Limit. Announcing again starts anew.
func (a *Announcer) Announce(until time.Time, link string, addrs ...netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	s := a.stateOf(now, link)
	entries := make([]*entry, 0, len(addrs))
	var failed error // first; the others say the same in most cases
	for _, addr := range addrs {
		addr = addr.Unmap()
		if !announceable(addr) {
			failed = cmp.Or(failed, fmt.Errorf("%q is not a unicast address beyond the link", addr))
			continue
		}
		e := s.entry(addr)
		e.announce(now, until, a.opts.Refresh)
		if e.watch != nil && e.watch.announced() {
			a.reportState(s, e)
		}
		entries = append(entries, e)
	}
	failed = cmp.Or(failed, a.fitWires(now, s))
	for _, e := range entries {
		failed = cmp.Or(failed, a.announce(now, s, e))
	}
	a.pruneEntries(s)
	wake.Up(a.wake)
	if failed != nil {
		return fmt.Errorf("announce %s on %s: %w", list(addrs), link, failed)
	}
	return nil
}

func announceable(addr netip.Addr) bool { return addr.IsGlobalUnicast() && addr.Zone() == "" }

// list names an address, or says how many there are.
func list(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%d addresses", len(addrs))
}

// Try says why nothing could be announced on any link: a missing right.
func (a *Announcer) Try() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.states {
		if s.wires != [2]wire{} {
			return nil // as one has been opened
		}
	}
	return a.net.permitted()
}

// Limit has addrs not announced on the link from until on. A holder moves it on whenever
// its lease is renewed: should this process stand still, it does not announce what
// it has lost meanwhile.
func (a *Announcer) Limit(until time.Time, link string, addrs ...netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.states[link]; s != nil {
		for _, addr := range addrs {
			if e := s.entries[addr.Unmap()]; e != nil {
				e.until = until
			}
		}
	}
}

// Withdraw ends the announcements of addrs on the link. When it returns nothing more
// is sent.
func (a *Announcer) Withdraw(link string, addrs ...netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.states[link]
	if s == nil {
		return
	}
	for _, addr := range addrs {
		if e := s.entries[addr.Unmap()]; e != nil {
			e.announced = false
		}
	}
	a.pruneEntries(s)
}

// Apply makes the watched addresses those listed, one for each link and address, except
// for what Announce refuses. What is known of those that stay remains. Their links
// are made ready for Announce.
func (a *Announcer) Apply(watched []Watched) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	wanted := make(map[*entry]bool, len(watched))
	for _, w := range watched {
		addr := w.Addr.Unmap()
		if !announceable(addr) {
			continue
		}
		s := a.stateOf(now, w.Link)
		e := s.entry(addr)
		wanted[e] = true
		if e.watch == nil {
			e.watch = newWatch(now, w.Policy, w.Probe && !e.announced)
			a.reportState(s, e)
		}
		e.watch.policy = w.Policy
	}
	for _, s := range a.states {
		for _, e := range s.entries {
			if !wanted[e] {
				e.watch = nil
			}
		}
		a.pruneEntries(s)
		_ = a.fitWires(now, s) // tried again, and Announce tells
	}
	wake.Up(a.wake)
}

// Members tells the hardware addresses at which members of the electorate use the
// watched addresses rightfully. An address that only they use is Free.
func (a *Announcer) Members(macs []net.HardwareAddr) {
	members := make(map[mac]bool, len(macs))
	for _, hw := range macs {
		if m, ok := macOf(hw); ok {
			members[m] = true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.members = members
	a.clearOffenders()
	wake.Up(a.wake)
}

// Status tells the Finding of every watched address, ordered by link and address.
func (a *Announcer) Status() []Finding {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Finding
	for _, s := range a.states {
		for _, e := range s.entries {
			if e.watch != nil {
				out = append(out, s.finding(e))
			}
		}
	}
	slices.SortFunc(out, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(x.Link, y.Link), x.Addr.Compare(y.Addr))
	})
	return out
}

// Stats tells what was counted.
func (a *Announcer) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// stateOf returns the state of a link, which it makes if there is none.
func (a *Announcer) stateOf(now time.Time, link string) *linkState {
	s := a.states[link]
	if s == nil {
		s = &linkState{name: link, entries: make(map[netip.Addr]*entry)}
		s.takeLink(now, a.links[link], a.opts.Refresh)
		a.states[link] = s
	}
	return s
}

// fitWires opens and closes the wires of a link as it needs.
func (a *Announcer) fitWires(now time.Time, s *linkState) error {
	if !a.running {
		return errors.New("nothing can be sent before Run and after it")
	}
	if err := s.usable(); err != nil {
		return err
	}
	err := s.fitWires(now, a.net, func(f family, w wire) {
		a.readers.Go(func() { a.read(s, f, w) })
	})
	a.reportWires(s, err)
	return err
}

// announce sends an announcement if it is allowed.
func (a *Announcer) announce(now time.Time, s *linkState, e *entry) error {
	e.done(now)
	if !e.allowed(time.Now()) { // now may have passed long ago
		return nil
	}
	if err := s.send(e.addr, announcement(s.src, e.addr)...); err != nil {
		a.stats.Failed++
		return err
	}
	a.stats.Announced++
	return nil
}

// pruneEntries forgets what is neither announced nor watched.
func (a *Announcer) pruneEntries(s *linkState) {
	maps.DeleteFunc(s.entries, func(_ netip.Addr, e *entry) bool { return !e.announced && e.watch == nil })
	if len(s.entries) == 0 {
		s.closeWires()
		delete(a.states, s.name)
	}
}

// clearOffenders makes free what only those use who may.
func (a *Announcer) clearOffenders() {
	for _, s := range a.states {
		for _, e := range s.entries {
			if e.watch != nil && e.watch.clearOffenders(a.rightful) {
				a.reportState(s, e)
			}
		}
	}
}

// rightful is whether this node or a member has the hardware address.
func (a *Announcer) rightful(m mac) bool { return a.own[m] || a.members[m] }
