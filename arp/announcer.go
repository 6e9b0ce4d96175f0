package arp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

const defaultRefresh = time.Minute

// Announcer announces and watches addresses on links. Any goroutine may call its methods at any time. They
// wait only for each other, and return soon.
type Announcer struct {
	log      *slog.Logger
	opts     Options
	net      network
	wake     chan struct{} // wakes the loop for work that is due earlier
	reported chan struct{} // wakes the goroutine that handles reports

	mu      sync.Mutex // guards the fields below
	readers sync.WaitGroup
	running bool
	links   map[string]link.Link
	own     map[mac]bool // hardware addresses of this node
	members map[mac]bool // hardware addresses of the electorate
	states  map[string]*linkState
	reports []func() // queue of log messages and calls of Observe
	stats   Stats
}

// New returns an Announcer without addresses. It sends and receives nothing before Run.
func New(log *slog.Logger, o Options) *Announcer {
	watcher := cmp.Or(o.Watcher, new(rtnetlink.Watcher))
	return newAnnouncer(log, o, host{watcher, func(f func() error) error { return f() }})
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

// Announce announces on the link that addrs are at this node: at once, six times more within 3 s, and every
// Options.Refresh until Withdraw. It starts again when the link comes up or changes its hardware address. An error
// means that some frames were not sent now; they follow as soon as possible. No frame is sent after until, unless until
// is zero; see Limit. Announcing again starts a new burst.
func (a *Announcer) Announce(until time.Time, link string, addrs ...netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	s := a.stateOf(now, link)
	entries := make([]*entry, 0, len(addrs))
	var failed error // the first; others are mostly the same
	for _, addr := range addrs {
		addr = addr.Unmap()
		if !announceable(addr) {
			failed = cmp.Or(failed, fmt.Errorf("%q is not a global unicast address without a zone", addr))
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
		return fmt.Errorf("announce %s on %s: %w", text.Addresses(addrs), link, failed)
	}
	return nil
}

func announceable(addr netip.Addr) bool { return addr.IsGlobalUnicast() && addr.Zone() == "" }

// Try returns the error that would prevent announcements on every link, such as a missing right.
func (a *Announcer) Try() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.states {
		if s.wires != [2]wire{} {
			return nil // a socket was opened
		}
	}
	return a.net.permitted()
}

// Limit ends announcements of addrs on the link at until. A holder extends it at each renewal of its
// lease. So a process that was stopped does not announce addresses that it has lost meanwhile.
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

// Withdraw ends the announcements of addrs on the link. No frame is sent after it returns.
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

// Apply replaces the watched addresses; the list has at most one entry per link and address. It ignores addresses
// that Announce rejects. Findings of addresses that stay are kept. Apply opens the sockets of their links, so that
// Announce is quick.
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
		_ = a.fitWires(now, s) // retried later; Announce returns the error
	}
	wake.Up(a.wake)
}

// Members sets the hardware addresses of members of the electorate, which may use the watched addresses. An
// address that only members use is Free.
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

// Status returns the Finding of every watched address, ordered by link and address.
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

// Stats returns the counters.
func (a *Announcer) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// stateOf returns the state of a link, new if necessary.
func (a *Announcer) stateOf(now time.Time, link string) *linkState {
	s := a.states[link]
	if s == nil {
		s = &linkState{name: link, entries: make(map[netip.Addr]*entry)}
		s.takeLink(now, a.links[link], a.opts.Refresh)
		a.states[link] = s
	}
	return s
}

// fitWires opens and closes a link's wires as its entries need them.
func (a *Announcer) fitWires(now time.Time, s *linkState) error {
	if !a.running {
		return errors.New("frames can be sent only during Run")
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

// announce sends an announcement unless the entry's limit has passed.
func (a *Announcer) announce(now time.Time, s *linkState, e *entry) error {
	e.done(now)
	if !e.allowed(time.Now()) { // now may be long past
		return nil
	}
	if err := s.send(e.addr, announcement(s.src, e.addr)...); err != nil {
		a.stats.Failed++
		return err
	}
	a.stats.Announced++
	return nil
}

// pruneEntries removes entries that are neither announced nor watched.
func (a *Announcer) pruneEntries(s *linkState) {
	maps.DeleteFunc(s.entries, func(_ netip.Addr, e *entry) bool { return !e.announced && e.watch == nil })
	if len(s.entries) == 0 {
		s.closeWires()
		delete(a.states, s.name)
	}
}

// clearOffenders removes offenders that are rightful now, and makes addresses without offenders Free.
func (a *Announcer) clearOffenders() {
	for _, s := range a.states {
		for _, e := range s.entries {
			if e.watch != nil && e.watch.clearOffenders(a.rightful) {
				a.reportState(s, e)
			}
		}
	}
}

// rightful reports whether this node or a member has the hardware address.
func (a *Announcer) rightful(m mac) bool { return a.own[m] || a.members[m] }

// Log messages and calls of Options.Observe go through a queue to a separate goroutine, so that they never delay
// announcements. The functions that queue them are called with the Announcer's mutex held.

func (a *Announcer) reportState(s *linkState, e *entry) {
	f, policy, prev := s.finding(e), e.watch.policy, e.watch.reported
	e.watch.reported = f.State
	a.enqueue(func() {
		switch {
		case f.State == Taken:
			a.log.Error("a host that is not a member uses a VIP",
				"address", f.Addr, "link", f.Link, "mac", f.MAC.String(), "policy", policy)
		case f.State == Free && prev == Taken:
			a.log.Info("only members use the VIP again", "address", f.Addr, "link", f.Link)
		}
		if a.opts.Observe != nil {
			a.opts.Observe(f)
		}
	})
}

// reportWires reports that a link's sockets cannot be opened, and the end of that.
func (a *Announcer) reportWires(s *linkState, err error) {
	if s.broken == (err != nil) {
		return
	}
	if s.broken = err != nil; s.broken {
		a.logLater(slog.LevelError, "cannot announce or watch VIPs on a link", "link", s.name, "err", err)
	} else {
		a.logLater(slog.LevelInfo, "can announce and watch VIPs on the link again", "link", s.name)
	}
}

func (a *Announcer) logLater(level slog.Level, message string, attributes ...any) {
	a.enqueue(func() { a.log.Log(context.Background(), level, message, attributes...) })
}

func (a *Announcer) enqueue(f func()) {
	a.reports = append(a.reports, f)
	wake.Up(a.reported)
}

// report handles the queue until ctx is done.
func (a *Announcer) report(ctx context.Context) {
	wake.Loop(ctx, a.reported, func() (never time.Time) {
		a.mu.Lock()
		reports := a.reports
		a.reports = nil
		a.mu.Unlock()
		for _, f := range reports {
			f()
		}
		return never
	})
}
