// Package address keeps VIP addresses on links for as long as they are wanted. It knows nothing of
// health or routes.
//
// A VIP address is given to the kernel with a lifetime of seconds and refreshed
// while it is wanted. So the kernel itself removes what a dead or frozen process
// left behind. A process that goes on after that puts it back only after a second, in
// which the caller can unbind it.
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

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// Options adjust a Binder. The zero value is right for a speaker.
type Options struct {
	// Lifetime is how long an address outlives the last refresh, in whole seconds
	// from 1s to 60s; the kernel is late or early by up to a second. Refreshes come
	// at a third of it. BindFor has another for one address. Default: 10s.
	Lifetime time.Duration
	// Mark is the IFA_PROTO value by which Herald recognises its addresses, on Linux
	// 5.18 and later. Two Heralds on one host need two. Default: DefaultMark.
	Mark uint8
	// NetNS is a file descriptor of the network namespace to work in, which stays
	// the caller's. Default: the namespace of the process.
	NetNS int
	// Watcher reports changes of the host, except of addresses with Mark. Default: one of its own.
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
	// Bound is whether Herald's address is there and the kernel answers for it.
	Bound bool
	// Restored counts how often the address was put back after something took it away or
	// changed it.
	Restored int
	// Err is why it is not bound, or what is wrong although it is; Since is since when it is not.
	Err   error
	Since time.Time
}

// Binder keeps VIP addresses on links: there while they are wanted, put back
// when something removes them, and gone by themselves about a lifetime after
// the process stopped refreshing them. Its methods may be called at any time from
// any goroutine.
type Binder struct {
	log  *slog.Logger
	opts Options

	mu      sync.Mutex // guards what follows, and is held during calls to the kernel
	kernel  kernel
	view    view
	live    bool                            // Run keeps view up to date
	wants   map[string]map[netip.Addr]*want // by link name
	waiting map[*want]struct{}              // those with a retryAt
	retry   alarm                           // goes off at the earliest retryAt
	refresh alarm                           // goes off when a refresh is due
	strays  map[netip.Addr]error            // of reserved addresses; nil: there is none
	lossAt  time.Time                       // when changes were last lost
}

// want is a binding to be kept.
type want struct {
	Binding
	lifetime  time.Duration
	link      int // index of the link that last had it; 0 for none
	bound     bool
	had       bool      // was bound at some time
	refreshed time.Time // when the last successful refresh was sent
	created   time.Time // when it last had to be created
	removals  int       // by others, in a row
	failures  int       // in a row
	retryAt   time.Time // when the next attempt is due; zero for none
	restored  int
	err       error
	since     time.Time // since when it is not bound
}

// New returns a Binder that wants nothing yet. Run refreshes and puts back.
func New(log *slog.Logger, opts Options) (*Binder, error) {
	opts.Lifetime = cmp.Or(opts.Lifetime, defaultLifetime)
	opts.Mark = cmp.Or(opts.Mark, DefaultMark)
	if err := validLifetime(opts.Lifetime); err != nil {
		return nil, err
	}
	if opts.Mark <= 3 {
		return nil, fmt.Errorf("address mark %d: the kernel uses 0 to 3 itself", opts.Mark)
	}
	if opts.Watcher == nil {
		opts.Watcher = &rtnetlink.Watcher{NetNS: opts.NetNS, Mark: opts.Mark}
	}
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
		log:     log,
		opts:    opts,
		kernel:  k,
		wants:   make(map[string]map[netip.Addr]*want),
		waiting: make(map[*want]struct{}),
		retry:   newAlarm(),
		refresh: newAlarm(),
	}
}

// Bind puts addr on the link named iface, as a /32 or /128. When it returns nil the
// kernel has the address and answers for it. Even if not, the binding is wanted from
// now on, unless iface or addr can never be bound: until Unbind, Run binds it as soon
// as that is possible and puts it back when something removes it. Binding again is
// harmless.
//
// Bind leaves alone an address that the host has already and that Herald did not put
// there; the error is then an [ErrForeign].
func (a *Binder) Bind(iface string, addr netip.Addr) error {
	return a.BindFor(iface, addr, a.opts.Lifetime)
}

// BindFor is Bind with another lifetime, to which the rules of Options.Lifetime apply.
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
		w = &want{Binding: b}
		on[b.Addr] = w
	}
	w.lifetime = lifetime
	if err := a.ensureView(); err != nil {
		return a.noteFailure(w, err)
	}
	defer a.lookForStray(b.Addr)
	return a.reconcile(w, true)
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

// Unbind removes those of addrs that Herald put on the link named iface, and no longer
// wants any of them there. When it returns nil Herald's addresses are gone from the
// kernel. After an error some may be left, which expire within their lifetime; Unbind
// of each shows which. A missing right to remove addresses is no error if this process
// was never able to add them.
func (a *Binder) Unbind(iface string, addrs ...netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.ensureView()
	var gone []address
	known := false // one of them is, or was, on its link
	for _, addr := range addrs {
		b := Binding{iface, addr.Unmap()}
		for _, l := range a.linksOf(b) {
			own := vip(l, b.Addr, a.opts.Lifetime, a.opts.Mark)
			own.Label = "" // a link that got another name changes them
			at, there := a.view.places[own.IP][place{l.Index, own.Subnet}]
			if there && !Ours(at, iface, a.opts.Mark, a.view.marks) && !a.holds(b.Addr, l.Index) {
				continue
			}
			known = known || there
			// Also when the view lacks it: the view may be late, and an address left
			// behind sends the node's own clients to a dead server.
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
		return fmt.Errorf("unbind %s from %s: %w", describeAddrs(addrs), iface, err)
	}
	for _, at := range gone {
		a.view.drop(at)
	}
	for _, addr := range addrs {
		a.lookForStray(addr.Unmap())
	}
	return nil
}

// Try says why Bind would fail now, as far as that is known without doing it: the link, somebody else's
// address, or a missing right. Of a wanted binding it says why it is not bound.
func (a *Binder) Try(iface string, addr netip.Addr) error {
	b := Binding{iface, addr.Unmap()}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.wants[iface][b.Addr]; w != nil {
		if w.bound {
			return nil
		}
		return w.err
	}
	if err := errors.Join(b.validate(), a.ensureView()); err != nil {
		return err
	}
	if step, err := a.plan(b); step == leave {
		return err
	}
	// The kernel looks at the right before it finds that there is no such link.
	if err := a.kernel.Remove(vip(link{Index: noLink}, b.Addr, a.opts.Lifetime, a.opts.Mark)); err != nil {
		return explainError(b, err)
	}
	return nil
}

// noLink is an index that no link has.
const noLink = 1<<31 - 1

// linksOf lists the links that may have a binding's address: the one of that name and,
// if another link has taken the name, the one that got the address, unless a binding
// under that link's present name wants it too.
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

// describeAddrs names a single address, and counts several.
func describeAddrs(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%d addresses", len(addrs))
}

// Sweep removes what an earlier Herald left on the host, except wanted addresses and
// those that keep lists, which stay until they expire, Bind adopts them or Unbind
// removes them.
func (a *Binder) Sweep(keep []Binding) error {
	kept := make(map[Binding]bool, len(keep))
	for _, b := range keep {
		kept[Binding{b.Interface, b.Addr.Unmap()}] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ensureView(); err != nil {
		return fmt.Errorf("sweep left-over addresses: %w", err)
	}
	var left []address
	for ip, places := range a.view.places {
		for _, at := range places {
			iface := a.view.links[at.Link].Name
			if Ours(at, iface, a.opts.Mark, a.view.marks) && !kept[Binding{iface, ip}] && a.wants[iface][ip] == nil {
				left = append(left, at)
			}
		}
	}
	var errs []error
	for _, at := range left {
		iface := a.view.links[at.Link].Name
		if err := a.kernel.Remove(at); err != nil {
			errs = append(errs, fmt.Errorf("remove %s from %s: %w", at.IP, iface, err))
			continue
		}
		a.view.drop(at)
		a.log.Info("removed VIP address left by an earlier run", "address", at.IP, "link", iface)
	}
	return errors.Join(errs...)
}

// Status returns the state of every wanted binding, ordered by link and address.
func (a *Binder) Status() []Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Status
	for _, on := range a.wants {
		for _, w := range on {
			out = append(out, Status{Binding: w.Binding, Bound: w.bound, Restored: w.restored, Err: w.err, Since: w.since})
		}
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

// readHost makes a new view of everything that the host has.
func (a *Binder) readHost() error {
	links, addrs, err := a.kernel.Dump()
	if err != nil {
		return err
	}
	a.view = newView(links, addrs)
	return nil
}
