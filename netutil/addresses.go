// Package netutil is Herald's hand on the host's network: it keeps VIP addresses
// on links for as long as they are wanted and looks up the addresses the node
// itself is known by. It knows nothing of health or routes.
//
// A VIP address is given to the kernel with a lifetime of seconds and refreshed
// while it is wanted. So the kernel itself removes what a dead or frozen process
// left behind. A process that goes on after that does not put it back at once: the
// caller has a second to say whether it is still wanted.
package netutil

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
)

// Options adjust an Addresses. The zero value is right for a speaker.
type Options struct {
	// Lifetime is how long an address outlives the last refresh, in whole seconds
	// from 1s to 60s; the kernel is late or early by up to a second. Refreshes come
	// at a third of it. BindFor has another for one address. Default: 10s.
	Lifetime time.Duration
	// Mark is the IFA_PROTO value by which Herald recognises its addresses, on Linux
	// 5.18 and later. Two Heralds on one host need two. Default: 72.
	Mark uint8
	// NetNS is a file descriptor of the network namespace to work in, which stays
	// the caller's. Default: the namespace of the process.
	NetNS int
	// ReceiveBuffer is how many bytes of changes on the host may wait to be read
	// before some are lost, which costs a look at everything. Default: 4 MiB.
	ReceiveBuffer int
}

const (
	defaultLifetime = 10 * time.Second
	maxLifetime     = time.Minute
	defaultMark     = 72
	defaultBuffer   = 4 << 20
)

// Binding is an address on a link.
type Binding struct {
	Interface string
	Addr      netip.Addr
}

// AddressStatus is the state of one wanted binding.
type AddressStatus struct {
	Binding
	// Bound is whether Herald's address is there and the kernel answers for it.
	Bound bool
	// Since is when Bound last changed.
	Since time.Time
	// Restored counts how often the address was put back after something took it away.
	Restored int
	// Err is why it is not bound, or what is wrong although it is.
	Err error
}

// Addresses keeps VIP addresses on links: there while they are wanted, put back
// when something removes them, and gone by themselves about a lifetime after
// the process stopped refreshing them. Its methods may be called at any time from
// any goroutine.
type Addresses struct {
	log     *slog.Logger
	opts    Options
	changed chan struct{}

	mu      sync.Mutex // guards what follows, and is held during calls to the kernel
	kernel  kernel
	view    view
	live    bool                            // Run keeps view up to date
	wants   map[string]map[netip.Addr]*want // by link name
	waiting map[*want]struct{}              // for their retryAt
	retry   alarm                           // at the earliest of them
	refresh alarm                           // when what is bound is to be refreshed
	deafAt  time.Time                       // when changes last went unheard
}

// want is a binding to be kept.
type want struct {
	Binding
	lifetime  time.Duration
	link      int // that it was last put on; 0 for none
	bound     bool
	since     time.Time // of bound
	had       bool      // was bound at some time
	refreshed time.Time // when the kernel last took it
	created   time.Time // when it last had to be created
	removals  int       // by others, in a row
	failures  int       // in a row
	retryAt   time.Time // when the next attempt is due; zero for none
	restored  int
	err       error
}

// NewAddresses returns an Addresses that wants nothing yet. Refreshing and putting
// back need Run.
func NewAddresses(log *slog.Logger, opts Options) (*Addresses, error) {
	opts.Lifetime = cmp.Or(opts.Lifetime, defaultLifetime)
	opts.Mark = cmp.Or(opts.Mark, defaultMark)
	opts.ReceiveBuffer = cmp.Or(opts.ReceiveBuffer, defaultBuffer)
	if err := validLifetime(opts.Lifetime); err != nil {
		return nil, err
	}
	if opts.Mark <= 3 {
		return nil, fmt.Errorf("address mark %d: the kernel uses 0 to 3 itself", opts.Mark)
	}
	return newAddresses(log, opts, &rtnetlink{netns: opts.NetNS, buffer: opts.ReceiveBuffer, mark: opts.Mark}), nil
}

func validLifetime(d time.Duration) error {
	if d < time.Second || d > maxLifetime || d%time.Second != 0 {
		return fmt.Errorf("address lifetime %v: want whole seconds from 1s to %v", d, maxLifetime)
	}
	return nil
}

func newAddresses(log *slog.Logger, opts Options, k kernel) *Addresses {
	a := &Addresses{
		log:     log,
		opts:    opts,
		changed: make(chan struct{}, 1),
		kernel:  k,
		wants:   make(map[string]map[netip.Addr]*want),
		waiting: make(map[*want]struct{}),
		retry:   newAlarm(),
		refresh: newAlarm(),
	}
	return a
}

// Bind puts addr on the link named iface, as a /32 or /128. When it returns nil the
// kernel has the address and answers for it. Even if not, the binding is wanted from
// now on, unless iface or addr can never be bound: until Unbind, Run binds it as soon
// as that is possible and puts it back when something removes it. Binding again is
// harmless.
//
// An address that the host has already without Herald's doing is left alone; the
// error is then an [ErrForeign].
func (a *Addresses) Bind(iface string, addr netip.Addr) error {
	return a.BindFor(iface, addr, a.opts.Lifetime)
}

// BindFor is Bind with a lifetime of its own, to which Options.Lifetime's rules apply.
func (a *Addresses) BindFor(iface string, addr netip.Addr, lifetime time.Duration) error {
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
		w = &want{Binding: b, since: time.Now()}
		on[b.Addr] = w
	}
	w.lifetime = lifetime
	if err := a.upToDate(); err != nil {
		return a.failed(w, err)
	}
	return a.settle(w, true)
}

func (b Binding) validate() error {
	switch {
	case b.Interface == "" || len(b.Interface) >= unix.IFNAMSIZ:
		return fmt.Errorf("bind %s: %q is not the name of a link", b.Addr, b.Interface)
	case !b.Addr.IsGlobalUnicast() || b.Addr.Zone() != "":
		return fmt.Errorf("bind %q on %s: not a unicast address beyond the link", b.Addr, b.Interface)
	}
	return nil
}

// Unbind takes addrs off the link named iface as far as they are Herald's, and no
// longer wants them there. When it returns nil Herald's addresses are gone from the
// kernel. On error some may be left, which Unbind of each tells, and expire within
// their lifetime. That this process may not remove addresses is no error where it was
// never able to add them.
func (a *Addresses) Unbind(iface string, addrs ...netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.upToDate()
	var gone []address
	known := false // one of them is, or was, on its link
	for _, addr := range addrs {
		b := Binding{iface, addr.Unmap()}
		for _, l := range a.on(b) {
			own := vip(l, b.Addr, a.opts.Lifetime, a.opts.Mark)
			own.label = "" // a link that got another name changes them
			at, there := a.view.places[own.ip][place{l.index, own.subnet}]
			if there && !ours(at, iface, a.opts.Mark, a.view.marks) {
				continue
			}
			known = known || there
			// Also when the view lacks it: it may be late, and an address left behind
			// sends the node's own clients to a dead server.
			gone = append(gone, own)
		}
		if w := a.wants[iface][b.Addr]; w != nil {
			known = known || w.had
			a.forget(w)
		}
	}
	if err == nil {
		err = a.kernel.remove(gone...)
		if errors.Is(err, unix.EPERM) && !known {
			err = nil // who may not take it away could not put it there
		}
	}
	if err != nil {
		return fmt.Errorf("unbind %s from %s: %w", list(addrs), iface, err)
	}
	for _, at := range gone {
		a.view.drop(at)
	}
	return nil
}

// on lists the links that a binding may be on: the one of that name and, if that is
// another one by now, the one that it was put on, unless it is wanted there as well.
func (a *Addresses) on(b Binding) (links []link) {
	if l, ok := a.view.byName(b.Interface); ok {
		links = append(links, l)
	}
	if w := a.wants[b.Interface][b.Addr]; w != nil {
		if l, ok := a.view.links[w.link]; ok && l.name != b.Interface && a.wants[l.name][b.Addr] == nil {
			links = append(links, l)
		}
	}
	return links
}

// list names an address, or says how many there are.
func list(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%d addresses", len(addrs))
}

// Sweep removes what an earlier Herald left on the host, except what is wanted by
// now and what keep lists. The latter stays until it expires, unless Bind adopts it
// or Unbind removes it before.
func (a *Addresses) Sweep(keep []Binding) error {
	kept := make(map[Binding]bool, len(keep))
	for _, b := range keep {
		kept[Binding{b.Interface, b.Addr.Unmap()}] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.upToDate(); err != nil {
		return fmt.Errorf("sweep left-over addresses: %w", err)
	}
	var left []address
	for ip, places := range a.view.places {
		for _, at := range places {
			iface := a.view.links[at.link].name
			if ours(at, iface, a.opts.Mark, a.view.marks) && !kept[Binding{iface, ip}] && a.wants[iface][ip] == nil {
				left = append(left, at)
			}
		}
	}
	var errs []error
	for _, at := range left {
		iface := a.view.links[at.link].name
		if err := a.remove(at, iface); err != nil {
			errs = append(errs, err)
			continue
		}
		a.log.Info("removed VIP address left by an earlier run", "address", at.ip, "interface", iface)
	}
	return errors.Join(errs...)
}

// Status tells the state of every wanted binding, ordered by link and address.
func (a *Addresses) Status() []AddressStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []AddressStatus
	for _, on := range a.wants {
		for _, w := range on {
			out = append(out, AddressStatus{Binding: w.Binding, Bound: w.bound, Since: w.since, Restored: w.restored, Err: w.err})
		}
	}
	slices.SortFunc(out, func(x, y AddressStatus) int {
		return cmp.Or(cmp.Compare(x.Interface, y.Interface), x.Addr.Compare(y.Addr))
	})
	return out
}

// Changed receives after the status of a binding has changed. It is for one receiver,
// who looks at Status then: changes in quick succession add up to one.
func (a *Addresses) Changed() <-chan struct{} { return a.changed }

func (a *Addresses) remove(at address, iface string) error {
	if err := a.kernel.remove(at); err != nil {
		return fmt.Errorf("remove %s from %s: %w", at.ip, iface, err)
	}
	a.view.drop(at)
	return nil
}

func (a *Addresses) forget(w *want) {
	delete(a.waiting, w)
	delete(a.wants[w.Interface], w.Addr)
	if len(a.wants[w.Interface]) == 0 {
		delete(a.wants, w.Interface)
	}
}

// upToDate looks at the host unless Run keeps the view up to date.
func (a *Addresses) upToDate() error {
	if a.live {
		return nil
	}
	return a.look()
}

// look reads everything anew.
func (a *Addresses) look() error {
	links, addrs, err := a.kernel.dump()
	if err != nil {
		return err
	}
	a.view = newView(links, addrs)
	return nil
}
