package nft

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// keeper is the only owner of Herald's table: it holds the desired and the actual content, and calls nftables. It refers
// neither to the [DataPlane] nor to the host. So a goroutine that holds mu waits for nftables alone, and cannot take an outer lock.
type keeper struct {
	log      *slog.Logger
	node     string
	kernel   *kernel
	calls    ruleset.Calls
	requests requests // to open the bridge, with a mutex of their own

	mu      sync.Mutex // guards the fields below and is held during calls
	want    wanted
	have    *table                    // content of the table; nil if unknown
	applied bool                      // whether want has the services; before the first Apply they are the predecessor's
	states  map[string]balancer.State // of backends at the last Apply, by chain
	mended  uint64                    // repairs
	wrote   time.Time                 // last write by this process
	until   map[netip.Addr]time.Time  // when the bridge closes, by open VIP
}

// requests are VIPs to open the bridge for, with the time when it is to close. No caller holds the mutex during a call to the
// kernel, so [Bridge.Open] never blocks.
type requests struct {
	mu    sync.Mutex
	until map[netip.Addr]time.Time
}

func (r *requests) add(until time.Time, vips []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = make(map[netip.Addr]time.Time)
	}
	for _, vip := range vips {
		r.until[vip] = until
	}
}

func (r *requests) remove(vips []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, vip := range vips {
		delete(r.until, vip)
	}
}

// take removes and returns all requests.
func (r *requests) take() map[netip.Addr]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.until
	r.until = nil
	return all
}

// adopt takes over the existing table, or makes one.
func (k *keeper) adopt() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	found, _, err := k.read()
	if err != nil {
		return err
	}
	k.want.recall(found)
	if err := k.calls.Do(k.kernel.addOpening); err == nil {
		k.want.halfOpen = ruleset.Timeout(opening)
	}
	k.have = &found
	return k.sync()
}

// close closes the netlink socket.
func (k *keeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls.Do(func() error { k.kernel.Close(); return nil })
}

// apply makes services the desired ones. It returns, by service, the backends that died since the last Apply, and the
// backends that timed out.
func (k *keeper) apply(services []balancer.Service) (dead, timedOut map[string][]netip.AddrPort, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, applied := k.want, k.applied
	k.want.services, k.applied = services, true
	k.want.taken = maps.Clone(before.taken)
	maps.Copy(k.want.taken, balancer.Places(services))
	k.want.counts = maps.Clone(before.counts)
	known := make(map[string]bool)
	for _, s := range services {
		for _, b := range s.Backends {
			known[backendName(s.Name, b.Addr)] = true
		}
	}
	maps.DeleteFunc(k.want.counts, func(name string, _ uint64) bool { return !known[name] })
	if err := k.sync(); err != nil {
		k.want, k.applied = before, applied
		return nil, nil, err
	}
	dead, timedOut = make(map[string][]netip.AddrPort), make(map[string][]netip.AddrPort)
	states := make(map[string]balancer.State)
	for _, s := range services {
		for _, b := range s.Backends {
			name := backendName(s.Name, b.Addr)
			states[name] = b.State
			switch prev := k.states[name]; { // empty for a new backend
			case prev != "" && prev != balancer.Dead && b.State == balancer.Dead:
				dead[s.Name] = append(dead[s.Name], b.Addr)
			case prev == balancer.Serving && b.State == balancer.Draining && b.TimedOut:
				timedOut[s.Name] = append(timedOut[s.Name], b.Addr)
			}
		}
	}
	k.states = states
	return dead, timedOut, nil
}

// counts returns the services, the taken places and the counters of chains.
func (k *keeper) counts() (services []balancer.Service, taken map[netip.AddrPort]string, counted map[string]chain, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if counted, err = k.counted(); err != nil {
		return nil, nil, nil, err
	}
	k.want.recount(counted)
	return k.want.services, maps.Clone(k.want.taken), counted, nil
}

// services returns the desired services.
func (k *keeper) services() []balancer.Service {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.want.services
}

// places returns the taken places of a service.
func (k *keeper) places(service string) []netip.AddrPort {
	k.mu.Lock()
	defer k.mu.Unlock()
	return placesOf(k.want.taken, service)
}

// placesOf returns the places of a service in order.
func placesOf(taken map[netip.AddrPort]string, service string) []netip.AddrPort {
	var out []netip.AddrPort
	for place, name := range taken {
		if name == service {
			out = append(out, place)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

// outlive returns how long listeners last without renewal.
func (k *keeper) outlive() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.want.outlive
}

// repairDelay returns how long to wait before reading the table after a notification. The kernel also notifies of this process's
// own writes, and a read takes long.
func (k *keeper) repairDelay() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(0, again-time.Since(k.wrote))
}

// repair restores the table if another program changed it.
func (k *keeper) repair() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range 2 { // a read may be incomplete while other programs change their tables
		found, _, err := k.read()
		if err != nil {
			return err
		}
		if change(found, k.desired(found)).empty() {
			k.want.recount(found.chains)
			k.have = &found
			return nil
		}
		k.have = &found
	}
	if err := k.sync(); err != nil {
		return err
	}
	k.mended++
	k.log.Warn("restored the balancer's nftables table, which another program changed")
	return nil
}

// renew restarts the timeouts of listeners. A predecessor's listeners are left to expire until Apply confirms them.
func (k *keeper) renew() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var todo plan
	for place, service := range balancer.Places(k.want.services) {
		f := familyOf(place.Addr())
		todo.renew(edit{listen + f.version, placeKey(place), element{chain: serviceName(f, service), lasts: k.want.outlive}})
	}
	return k.write(todo, base())
}

// remember notes in the table the links that are about to get route_localnet.
func (k *keeper) remember(links []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.want.localnet
	k.want.localnet = maps.Clone(before)
	for _, link := range links {
		k.want.localnet[link] = true
	}
	err := k.sync()
	if err != nil {
		k.want.localnet = before
	}
	return err
}

// stale returns the taken places without a listener; none before the first Apply.
func (k *keeper) stale() []netip.AddrPort {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.applied {
		return nil
	}
	listening := balancer.Places(k.want.services)
	var out []netip.AddrPort
	for place := range k.want.taken {
		_, listened := listening[place]
		_, bridged := k.want.masters[place.Addr()]
		if !listened && (place.Port() != 0 || !bridged) {
			out = append(out, place)
		}
	}
	return out
}

// free forgets taken places. If no loopback address is left it returns the links with route_localnet.
func (k *keeper) free(places []netip.AddrPort) (links []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.applied {
		return nil
	}
	for _, place := range places {
		delete(k.want.taken, place)
	}
	if slices.ContainsFunc(slices.Collect(maps.Keys(k.want.taken)), isLoopback) {
		return nil
	}
	return slices.Sorted(maps.Keys(k.want.localnet))
}

// forget forgets links that no longer have route_localnet, and updates the table. It removes the table if nothing needs it.
func (k *keeper) forget(links []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.applied {
		return nil
	}
	for _, link := range links {
		delete(k.want.localnet, link)
	}
	return k.sync()
}

// prepare sets the masters of the bridge by VIP, and closes it for other VIPs.
func (k *keeper) prepare(masters map[netip.Addr][]netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.until, func(vip netip.Addr, _ time.Time) bool { return len(masters[vip]) == 0 })
	k.want.masters = masters
	return k.sync()
}

// openBridge carries out the requests.
func (k *keeper) openBridge() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked := k.requests.take()
	if len(asked) == 0 {
		return nil
	}
	k.want.taken = maps.Clone(k.want.taken)
	var todo plan
	now := time.Now()
	for vip, until := range asked {
		f := familyOf(vip)
		lasts := until.Sub(now).Truncate(time.Millisecond)
		if len(k.want.masters[vip]) == 0 || lasts <= 0 {
			continue
		}
		if !k.until[vip].After(now) {
			todo.fill = append(todo.fill, bridgeChain+dashed(vip)) // resets the counter
		}
		k.until[vip] = until
		todo.renew(edit{bridge + f.version, addrKey(vip), element{chain: bridgeChain + dashed(vip), lasts: lasts}})
		place := netip.AddrPortFrom(vip, 0)
		if _, ok := k.want.taken[place]; !ok {
			k.want.taken[place] = ""
			todo.put = append(todo.put, edit{taken + f.version, placeKey(place), element{}})
		}
	}
	return k.write(todo, wanted{masters: k.want.masters, halfOpen: k.want.halfOpen}.table())
}

// closeBridge closes the bridge for VIPs.
func (k *keeper) closeBridge(vips []netip.Addr) error {
	k.mu.Lock() // waits for an openBridge that has taken the requests
	defer k.mu.Unlock()
	for _, vip := range vips {
		delete(k.until, vip)
	}
	return k.sync()
}

// received returns the bridge's counter of a VIP.
func (k *keeper) received(vip netip.Addr) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	counted, err := k.counted()
	return counted[bridgeChain+dashed(vip)].packets(), err
}

// slack is the largest expected difference between the kernel's and Herald's time of expiry of an element.
const slack = 100 * time.Millisecond

// left returns the remaining time of each open VIP. About the time of expiry the found table decides whether
// the VIP is still open. k.mu is held.
func (k *keeper) left(found table) map[netip.Addr]time.Duration {
	out := make(map[netip.Addr]time.Duration)
	for vip, until := range k.until {
		left := time.Until(until)
		_, present := found.sets[bridge+familyOf(vip).version].elements[addrKey(vip)]
		switch {
		case left > slack, present && left > -slack:
			out[vip] = max(left, slack)
		case left < -slack:
			delete(k.until, vip)
		}
	}
	return out
}

// read reads the table. k.mu is held.
func (k *keeper) read() (table, bool, error) {
	var (
		found table
		ok    bool
	)
	if err := k.calls.Do(func() (err error) { found, ok, err = k.kernel.read(); return err }); err != nil {
		return table{}, false, err // a stuck call may still write to the variables
	}
	return found, ok, nil
}

// counted reads the counters of chains. k.mu is held.
func (k *keeper) counted() (map[string]chain, error) {
	chains := make(map[string]chain)
	if err := k.calls.Do(func() error { return k.kernel.rules(chains) }); err != nil {
		return nil, err // as in read
	}
	return chains, nil
}

// desired returns the desired table, given the found one. k.mu is held.
func (k *keeper) desired(found table) table {
	t := k.rebuilt(found)
	if !k.applied {
		keep := func(name string) bool { return balancing(name) && !strings.HasPrefix(name, localnet) }
		t.add(found.only(keep), keep)
	}
	return t
}

// rebuilt is desired without a predecessor's services, which are known only by name and cannot be made anew.
func (k *keeper) rebuilt(found table) table {
	w := k.want
	w.buckets = assign(found, w.services, k.node)
	w.open = k.left(found)
	if k.applied && len(w.services)+len(w.taken)+len(w.localnet)+len(w.masters) == 0 {
		return table{}
	}
	return w.table()
}

// sync makes the table match the desired one. k.mu is held.
func (k *keeper) sync() error {
	if k.have != nil {
		if err := k.change(*k.have, k.desired(*k.have)); err == nil || errors.Is(err, ruleset.ErrStuck) {
			return err
		}
	}
	// Another program has changed it.
	found, _, err := k.read()
	if err != nil {
		return err
	}
	if err := k.change(found, k.desired(found)); err == nil || errors.Is(err, ruleset.ErrStuck) {
		return err
	}
	// It cannot be changed in place, for instance because another version made it.
	want := k.rebuilt(found)
	if err := k.calls.Do(func() error { return k.kernel.replace(want) }); err != nil {
		return err
	}
	k.have, k.wrote = &want, time.Now()
	return nil
}

// change turns the table have into want. k.mu is held.
func (k *keeper) change(have, want table) (err error) {
	todo := change(have, want)
	switch {
	case todo.empty():
	case len(want.chains) == 0:
		err = k.calls.Do(func() error { return k.kernel.RemoveTables(ours()) })
	default:
		err = k.calls.Do(func() error { return k.kernel.apply(todo, want) })
	}
	if err != nil {
		k.have = nil
		return err
	}
	if k.have = &want; !todo.empty() {
		k.wrote = time.Now()
	}
	return nil
}

// write carries out a plan that changes only timeouts and counters of the desired table. The table part
// describes the sets and chains of the plan. k.mu is held.
func (k *keeper) write(todo plan, part table) error {
	if todo.empty() {
		return nil
	}
	slices.SortFunc(todo.remove, edit.compare) // groups the edits of each set
	slices.SortFunc(todo.put, edit.compare)
	if k.have != nil {
		err := k.calls.Do(func() error { return k.kernel.apply(todo, part) })
		if err == nil {
			k.wrote = time.Now()
			for _, e := range todo.put {
				k.have.sets[e.set].elements[e.key] = e.element
			}
			return nil
		}
		k.have = nil
		if errors.Is(err, ruleset.ErrStuck) {
			return err
		}
	}
	return k.sync()
}
