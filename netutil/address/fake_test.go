package address

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// fakeKernel holds a host's links and addresses in memory. Addresses expire, changes may be reported
// late, and a slow watcher loses some.
type fakeKernel struct {
	mu       sync.Mutex
	links    map[int]link
	addrs    map[fakeKey]*fakeAddress
	watchers []*fakeWatcher

	old   bool          // does not know IFA_PROTO
	room  int           // queue length of a watcher in events; 0: no limit
	delay time.Duration // of reports to watchers
	fail  func(op string) error
	calls map[string]int
}

type fakeKey struct {
	ip    string
	place place
}

type fakeAddress struct {
	address
	expiry *time.Timer
}

func newFakeKernel(links ...link) *fakeKernel {
	k := &fakeKernel{
		links: make(map[int]link),
		addrs: make(map[fakeKey]*fakeAddress),
		calls: make(map[string]int),
	}
	for _, l := range links {
		k.links[l.Index] = l
	}
	return k
}

func key(a address) fakeKey { return fakeKey{a.IP.String(), place{a.Link, a.Subnet}} }

// enter counts a call and returns its error. It leaves mu locked.
func (k *fakeKernel) enter(op string) error {
	k.mu.Lock()
	fail := k.fail
	k.mu.Unlock()
	var err error
	if fail != nil {
		err = fail(op)
	}
	k.mu.Lock()
	k.calls[op]++
	return err
}

func (k *fakeKernel) Dump() ([]link, []address, error) {
	err := k.enter("dump")
	defer k.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	var addrs []address
	for _, a := range k.addrs {
		addrs = append(addrs, a.address)
	}
	return slices.Collect(maps.Values(k.links)), addrs, nil
}

func (k *fakeKernel) Link(index int) (link, error) {
	err := k.enter("link")
	defer k.mu.Unlock()
	l, ok := k.links[index]
	if err == nil && !ok {
		err = unix.ENODEV
	}
	return l, err
}

func (k *fakeKernel) Add(a address) error {
	err := k.enter("add")
	defer k.mu.Unlock()
	if _, exists := k.addrs[key(a)]; err == nil && exists {
		err = unix.EEXIST
	}
	if err != nil {
		return err
	}
	return k.set(a, false)
}

func (k *fakeKernel) Refresh(addrs ...address) error {
	err := k.enter("refresh")
	defer k.mu.Unlock()
	for _, a := range addrs {
		if err == nil {
			err = k.set(a, false)
		}
	}
	return err
}

func (k *fakeKernel) Remove(addrs ...address) error {
	err := k.enter("remove")
	defer k.mu.Unlock()
	for _, a := range addrs {
		if err == nil {
			k.unset(key(a))
		}
	}
	return err
}

// set reports to watchers only changes by others, as the watcher's filter does.
func (k *fakeKernel) set(a address, report bool) error {
	if _, ok := k.links[a.Link]; !ok {
		return unix.ENODEV
	}
	if k.old {
		a.Proto = 0
	}
	id := key(a)
	if prev := k.addrs[id]; prev != nil && prev.expiry != nil {
		prev.expiry.Stop()
	}
	fa := &fakeAddress{address: a}
	if a.Valid != rtnetlink.Infinite {
		fa.expiry = time.AfterFunc(time.Duration(a.Valid)*time.Second, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.addrs[id] == fa {
				k.unset(id)
			}
		})
	}
	k.addrs[id] = fa
	if report {
		k.report(event{Address: &a})
	}
	return nil
}

func (k *fakeKernel) unset(id fakeKey) {
	prev := k.addrs[id]
	if prev == nil {
		return
	}
	if prev.expiry != nil {
		prev.expiry.Stop()
	}
	delete(k.addrs, id)
	k.report(event{Gone: true, Address: &prev.address})
}

// Changes by the administrator.

func (k *fakeKernel) adminSet(a address) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.old {
		a.Proto = 0
	}
	_ = k.set(a, true)
}

func (k *fakeKernel) adminUnset(a address) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unset(key(a))
}

// adminLink adds or changes a link. A link that goes down loses its IPv6 addresses, which are reported first.
func (k *fakeKernel) adminLink(l link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.links[l.Index] = l
	if !l.AdminUp {
		for id, a := range k.addrs {
			if a.Link == l.Index && a.IP.Is6() {
				k.unset(id)
			}
		}
	}
	k.report(event{Link: &l})
}

func (k *fakeKernel) adminUnlink(index int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.links[index]
	if !ok {
		return
	}
	delete(k.links, index)
	for id, a := range k.addrs {
		if a.Link == index {
			k.unset(id)
		}
	}
	k.report(event{Gone: true, Link: &l})
}

func (k *fakeKernel) get(a address) (address, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fa := k.addrs[key(a)]
	if fa == nil {
		return address{}, false
	}
	return fa.address, true
}

// has reports whether lo has Herald's address.
func (k *fakeKernel) has(ip netip.Addr) bool {
	_, ok := k.get(vip(lo, ip, defaultLifetime, DefaultMark))
	return ok
}

func (k *fakeKernel) count(op string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls[op]
}

func (k *fakeKernel) failWith(fail func(op string) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = fail
}

// refuse makes the calls named ops fail.
func (k *fakeKernel) refuse(err error, ops ...string) {
	k.failWith(func(op string) error {
		if slices.Contains(ops, op) {
			return err
		}
		return nil
	})
}

func (k *fakeKernel) Close() {}

type fakeWatcher struct {
	k     *fakeKernel
	queue []event
	lost  bool
	ready chan struct{}
}

func (k *fakeKernel) Watch() (watcher, error) {
	err := k.enter("watch")
	defer k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	w := &fakeWatcher{k: k, ready: make(chan struct{}, 1)}
	k.watchers = append(k.watchers, w)
	return w, nil
}

func (k *fakeKernel) report(e event) {
	for _, w := range k.watchers {
		if k.room > 0 && len(w.queue) >= k.room {
			w.lost = true
		} else {
			w.queue = append(w.queue, e)
		}
		time.AfterFunc(k.delay, func() { wake.Up(w.ready) })
	}
}

// loseAll makes every watcher fail.
func (k *fakeKernel) loseAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.watchers {
		w.lost = true
		wake.Up(w.ready)
	}
}

func (w *fakeWatcher) Ready() <-chan struct{} { return w.ready }

func (w *fakeWatcher) Take() ([]event, error) {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	events := w.queue
	w.queue = nil
	if w.lost {
		return nil, unix.ENOBUFS
	}
	return events, nil
}

func (w *fakeWatcher) Close() {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	w.k.watchers = slices.DeleteFunc(w.k.watchers, func(other *fakeWatcher) bool { return other == w })
}
