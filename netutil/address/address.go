// Package address keeps VIP addresses on links while they are wanted. It knows nothing about health or routes.
//
// Each address has a lifetime of seconds in the kernel and is refreshed while it is wanted. So
// the kernel removes the addresses of a dead or frozen process. A process that continues after
// that puts them back only after a second: the caller can unbind them until then.
package address

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// Options adjust a Binder. The zero value suits a speaker.
type Options struct {
	// Lifetime is the time from the last refresh to the expiry of an address, in whole seconds
	// from 1s to 60s. The kernel is late or early by up to a second. A third of it is the time
	// between refreshes. BindFor overrides it for one address. Default: 10s.
	Lifetime time.Duration
	// Mark is the IFA_PROTO value of Herald's addresses. Herald recognises them by it on Linux 5.18 and
	// later. Two Heralds on one host need different marks. Default: DefaultMark.
	Mark uint8
	// NetNS is a file descriptor of the network namespace to work in. The caller keeps
	// owning it. Default: the namespace of the process.
	NetNS int
	// Watcher reports changes of the host, except refreshes of addresses with Mark. Default: a new one.
	Watcher *rtnetlink.Watcher
}

const (
	// DefaultMark is the default of Options.Mark.
	DefaultMark = 72

	defaultLifetime = 10 * time.Second
	maxLifetime     = time.Minute
)

// Binding is an address on a link.
type Binding struct {
	Interface string
	Addr      netip.Addr
}

// Status is the state of one wanted binding.
type Status struct {
	Binding
	// Bound means that the link has Herald's address and the kernel answers for it.
	Bound bool
	// Restored counts how often Herald put the address back after its removal or change.
	Restored int
	// Err is the reason that it is not bound, or a fault of a bound address. Since is the time at which it was lost; zero while bound.
	Err   error
	Since time.Time
}

// Binder keeps wanted VIP addresses on links and puts removed ones back. They expire about a lifetime after
// the process stops refreshing them. Any goroutine may call its methods at any time.
type Binder struct {
	log  *slog.Logger
	opts Options

	mu       sync.Mutex // guards the fields below; held during calls to the kernel
	kernel   kernel
	view     view
	live     bool                            // Run keeps view up to date
	wants    map[string]map[netip.Addr]*want // by link name
	waiting  map[*want]struct{}              // wants with a retryAt
	retry    alarm                           // fires at the earliest retryAt.
	refresh  alarm                           // fires when a refresh is due
	reserved map[netip.Addr]error            // by reserved address: its foreign copy, nil without one.
	lossAt   time.Time                       // when changes were last lost
}

// want is a wanted binding.
type want struct {
	Status
	lifetime  time.Duration
	link      int       // index of the link that last had it; 0 for none
	had       bool      // was bound before
	refreshed time.Time // time of the last successful refresh's request.
	created   time.Time // time of the last creation
	removals  int       // by other programs, in a row
	failures  int       // in a row
	retryAt   time.Time // time of the next attempt; zero without one.
}

// New returns a Binder without bindings. Run refreshes them and puts them back.
func New(log *slog.Logger, opts Options) (*Binder, error) {
	opts.Lifetime = cmp.Or(opts.Lifetime, defaultLifetime)
	opts.Mark = cmp.Or(opts.Mark, DefaultMark)
	if err := validLifetime(opts.Lifetime); err != nil {
		return nil, err
	}
	if opts.Mark <= 3 {
		return nil, fmt.Errorf("address mark %d: the kernel reserves 0 to 3, choose another", opts.Mark)
	}
	opts.Watcher = cmp.Or(opts.Watcher, &rtnetlink.Watcher{NetNS: opts.NetNS, Mark: opts.Mark})
	return newBinder(log, opts, host{&rtnetlink.Conn{NetNS: opts.NetNS}, opts.Watcher}), nil
}

func validLifetime(d time.Duration) error {
	if d < time.Second || d > maxLifetime || d%time.Second != 0 {
		return fmt.Errorf("address lifetime %v: want whole seconds from 1s to %v", d, maxLifetime)
	}
	return nil
}

func newBinder(log *slog.Logger, opts Options, k kernel) *Binder {
	return &Binder{
		log: log, opts: opts, kernel: k,
		wants: make(map[string]map[netip.Addr]*want), waiting: make(map[*want]struct{}),
		retry: newAlarm(), refresh: newAlarm(),
	}
}

// Bind puts addr on the link named iface, as a /32 or /128. When it returns nil the kernel has the address and answers
// for it. After an error the binding is wanted too, unless iface or addr is invalid. Until Unbind, Run binds it as soon
// as possible and puts it back after a removal. Binding again is harmless.
//
// Bind does not touch an address that another program put on the host. The error is then an [ErrForeign].
func (a *Binder) Bind(iface string, addr netip.Addr) error {
	return a.BindFor(iface, addr, a.opts.Lifetime)
}

// BindFor is Bind with its own lifetime. The limits of Options.Lifetime apply.
func (a *Binder) BindFor(iface string, addr netip.Addr, lifetime time.Duration) error {
	b := Binding{iface, addr.Unmap()}
	if err := errors.Join(b.validate(), validLifetime(lifetime)); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	on := a.wants[iface]
	if on == nil {
		on = make(map[netip.Addr]*want)
		a.wants[iface] = on
	}
	w := on[b.Addr]
	if w == nil {
		w = &want{Status: Status{Binding: b}}
		on[b.Addr] = w
	}
	w.lifetime = lifetime
	if err := a.ensureView(); err != nil {
		return a.noteFailure(w, err)
	}
	defer a.checkReserved(b.Addr)
	return a.reconcile(w, true)
}

func (b Binding) validate() error {
	switch {
	case b.Interface == "" || len(b.Interface) >= unix.IFNAMSIZ:
		return fmt.Errorf("bind %s: %q is not the name of a link", b.Addr, b.Interface)
	case !b.Addr.IsGlobalUnicast() || b.Addr.Zone() != "":
		return fmt.Errorf("bind %q on %s: not a global unicast address without a zone", b.Addr, b.Interface)
	}
	return nil
}

// Unbind removes Herald's addresses among addrs from the link named iface and no longer wants any of addrs there. When
// it returns nil they are gone from the kernel. After an error some may be left, and expire within their lifetime;
// Unbind of each shows which. A missing right to remove addresses is no error if this process could never add them.
func (a *Binder) Unbind(iface string, addrs ...netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.ensureView()
	var gone []address
	known := false // the link has or had at least one of them
	for _, addr := range addrs {
		b := Binding{iface, addr.Unmap()}
		for _, l := range a.linksOf(b) {
			own := vip(l, b.Addr, a.opts.Lifetime, a.opts.Mark)
			own.Label = "" // labels change when a link is renamed
			at, there := a.view.places[own.IP][place{l.Index, own.Subnet}]
			if there && !Ours(at, iface, a.opts.Mark, a.view.marks) && !a.holds(b.Addr, l.Index) {
				continue
			}
			known = known || there
			// Removed even if the view lacks it: the view may lag, and a left-over address would send
			// the node's own clients to a dead server.
			gone = append(gone, own)
		}
		if w := a.wants[iface][b.Addr]; w != nil {
			known = known || w.had
			a.dropWant(w)
		}
	}
	if err == nil {
		err = a.kernel.Remove(gone...)
		if errors.Is(err, unix.EPERM) && !known {
			err = nil // without the right to remove it, this process cannot have added it
		}
	}
	if err != nil {
		return fmt.Errorf("unbind %s from %s: %w", text.Addresses(addrs), iface, err)
	}
	for _, at := range gone {
		a.view.drop(at)
	}
	for _, addr := range addrs {
		a.checkReserved(addr.Unmap())
	}
	return nil
}

// Try returns the error that Bind would return now, without binding: for the link, a foreign address, or a missing right.
// For a wanted binding it returns the reason that it is not bound.
func (a *Binder) Try(iface string, addr netip.Addr) error {
	b := Binding{iface, addr.Unmap()}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.wants[iface][b.Addr]; w != nil {
		if w.Bound {
			return nil
		}
		return w.Err
	}
	if err := errors.Join(b.validate(), a.ensureView()); err != nil {
		return err
	}
	if step, err := a.plan(b); step == leave {
		return err
	}
	// The kernel checks the right before it looks for the link.
	if err := a.kernel.Remove(vip(link{Index: noLink}, b.Addr, a.opts.Lifetime, a.opts.Mark)); err != nil {
		return explainError(b, err)
	}
	return nil
}

// noLink is an unused link index.
const noLink = 1<<31 - 1

// linksOf returns the links that may have a binding's address: the link of that name, and a link that got the
// address and was renamed since. It omits the latter if a binding under its new name wants the address too.
func (a *Binder) linksOf(b Binding) (links []link) {
	if l, ok := a.view.byName(b.Interface); ok {
		links = append(links, l)
	}
	if w := a.wants[b.Interface][b.Addr]; w != nil {
		if l, ok := a.view.links[w.link]; ok && l.Name != b.Interface && a.wants[l.Name][b.Addr] == nil {
			links = append(links, l)
		}
	}
	return links
}

// Sweep removes the addresses that an earlier Herald left on the host, except wanted ones and the ones
// in keep. Addresses in keep stay until they expire, Bind adopts them or Unbind removes them.
func (a *Binder) Sweep(keep []Binding) error {
	kept := make(map[Binding]bool, len(keep))
	for _, b := range keep {
		kept[Binding{b.Interface, b.Addr.Unmap()}] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ensureView(); err != nil {
		return fmt.Errorf("remove left-over addresses: %w", err)
	}
	var errs []error
	for ip, places := range a.view.places {
		for _, at := range places {
			iface := a.view.links[at.Link].Name
			if !Ours(at, iface, a.opts.Mark, a.view.marks) || kept[Binding{iface, ip}] || a.wants[iface][ip] != nil {
				continue
			}
			if err := a.kernel.Remove(at); err != nil {
				errs = append(errs, fmt.Errorf("remove %s from %s: %w", ip, iface, err))
				continue
			}
			a.view.drop(at)
			a.log.Info("removed VIP address left by an earlier run", "address", ip, "link", iface)
		}
	}
	return errors.Join(errs...)
}

// Status returns the state of every wanted binding, ordered by link and address.
func (a *Binder) Status() []Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Status
	for w := range a.bindings() {
		out = append(out, w.Status)
	}
	slices.SortFunc(out, func(x, y Status) int {
		return cmp.Or(cmp.Compare(x.Interface, y.Interface), x.Addr.Compare(y.Addr))
	})
	return out
}

func (a *Binder) dropWant(w *want) {
	delete(a.waiting, w)
	delete(a.wants[w.Interface], w.Addr)
	if len(a.wants[w.Interface]) == 0 {
		delete(a.wants, w.Interface)
	}
}

// ensureView reads the host unless Run keeps the view up to date.
func (a *Binder) ensureView() error {
	if a.live {
		return nil
	}
	return a.readHost()
}

// readHost reads all links and addresses into a new view.
func (a *Binder) readHost() error {
	links, addrs, err := a.kernel.Dump()
	if err != nil {
		return err
	}
	a.view = newView(links, addrs)
	return nil
}
