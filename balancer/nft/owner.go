package nft

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// owner is the only owner of Herald's table: it holds the desired and the actual content, and calls nftables. It refers
// neither to the [DataPlane] nor to the host. So a goroutine that holds the mutex waits for nftables alone, and cannot take an
// outer lock.
type owner struct {
	log      *slog.Logger
	node     string
	kernel   *kernel
	requests requests // to open the bridge, with a mutex of their own

	*ruleset.Keeper // its mutex guards the fields below

	want    wanted
	have    *table                    // content of the table; nil if unknown
	applied bool                      // whether want has the services; before the first Apply they are the predecessor's
	states  map[string]balancer.State // of backends at the last Apply, by chain
	mended  uint64                    // repairs
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
func (o *owner) adopt() error {
	o.Lock()
	defer o.Unlock()
	found, err := o.read()
	if err != nil {
		return err
	}
	o.want.recall(found)
	if err := o.Call(o.kernel.addOpening); err == nil {
		o.want.halfOpen = ruleset.Timeout(opening)
	}
	o.have = &found
	return o.sync()
}

// close closes the netlink socket.
func (o *owner) close() error {
	o.Lock()
	defer o.Unlock()
	return o.Call(func() error { o.kernel.Close(); return nil })
}

// apply makes services the desired ones. It returns, by service, the backends that died since the last Apply, and the
// backends that timed out.
func (o *owner) apply(services []balancer.Service) (dead, timedOut map[string][]netip.AddrPort, err error) {
	o.Lock()
	defer o.Unlock()
	before, applied := o.want, o.applied
	o.want.services, o.applied = services, true
	o.want.taken = maps.Clone(before.taken)
	maps.Copy(o.want.taken, balancer.Places(services))
	o.want.counts = maps.Clone(before.counts)
	known := make(map[string]bool)
	for _, s := range services {
		for _, b := range s.Backends {
			known[backendName(s.Name, b.Addr)] = true
		}
	}
	maps.DeleteFunc(o.want.counts, func(name string, _ uint64) bool { return !known[name] })
	if err := o.sync(); err != nil {
		o.want, o.applied = before, applied
		return nil, nil, err
	}
	dead, timedOut = make(map[string][]netip.AddrPort), make(map[string][]netip.AddrPort)
	states := make(map[string]balancer.State)
	for _, s := range services {
		for _, b := range s.Backends {
			name := backendName(s.Name, b.Addr)
			states[name] = b.State
			switch prev := o.states[name]; { // empty for a new backend
			case prev != "" && prev != balancer.Dead && b.State == balancer.Dead:
				dead[s.Name] = append(dead[s.Name], b.Addr)
			case prev == balancer.Serving && b.State == balancer.Draining && b.TimedOut:
				timedOut[s.Name] = append(timedOut[s.Name], b.Addr)
			}
		}
	}
	o.states = states
	return dead, timedOut, nil
}

// counts returns the services, the taken places and the counters of chains.
func (o *owner) counts() (services []balancer.Service, taken map[netip.AddrPort]string, counted map[string]chain, err error) {
	o.Lock()
	defer o.Unlock()
	if counted, err = o.counted(); err != nil {
		return nil, nil, nil, err
	}
	o.want.recount(counted)
	return o.want.services, maps.Clone(o.want.taken), counted, nil
}

func (o *owner) services() []balancer.Service {
	o.Lock()
	defer o.Unlock()
	return o.want.services
}

func (o *owner) places(service string) []netip.AddrPort {
	o.Lock()
	defer o.Unlock()
	return placesOf(o.want.taken, service)
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

// repair restores the table if another program changed it.
func (o *owner) repair() error {
	o.Lock()
	defer o.Unlock()
	for range 2 { // a read may be incomplete while other programs change their tables
		found, err := o.read()
		if err != nil {
			return err
		}
		if change(found, o.desired(found)).empty() {
			o.want.recount(found.chains)
			o.have = &found
			return nil
		}
		o.have = &found
	}
	if err := o.sync(); err != nil {
		return err
	}
	o.mended++
	o.log.Warn("restored the balancer's nftables table, which another program changed")
	return nil
}

// renew restarts the timeouts of listeners. A predecessor's listeners are left to expire until Apply confirms them.
func (o *owner) renew() error {
	o.Lock()
	defer o.Unlock()
	var todo plan
	for place, service := range balancer.Places(o.want.services) {
		f := familyOf(place.Addr())
		todo.renew(edit{listen + f.version, placeKey(place), element{chain: serviceName(f, service), lasts: o.want.outlive}})
	}
	return o.write(todo, base())
}

// remember notes in the table the links that are about to get route_localnet.
func (o *owner) remember(links []string) error {
	o.Lock()
	defer o.Unlock()
	before := o.want.localnet
	o.want.localnet = maps.Clone(before)
	for _, link := range links {
		o.want.localnet[link] = true
	}
	err := o.sync()
	if err != nil {
		o.want.localnet = before
	}
	return err
}

// stale returns the taken places without a listener; none before the first Apply.
func (o *owner) stale() []netip.AddrPort {
	o.Lock()
	defer o.Unlock()
	if !o.applied {
		return nil
	}
	listening := balancer.Places(o.want.services)
	var out []netip.AddrPort
	for place := range o.want.taken {
		_, listened := listening[place]
		_, bridged := o.want.masters[place.Addr()]
		if !listened && (place.Port() != 0 || !bridged) {
			out = append(out, place)
		}
	}
	return out
}

// free forgets taken places. If no loopback address is left it returns the links with route_localnet.
func (o *owner) free(places []netip.AddrPort) (links []string) {
	o.Lock()
	defer o.Unlock()
	if !o.applied {
		return nil
	}
	for _, place := range places {
		delete(o.want.taken, place)
	}
	if slices.ContainsFunc(slices.Collect(maps.Keys(o.want.taken)), isLoopback) {
		return nil
	}
	return slices.Sorted(maps.Keys(o.want.localnet))
}

// forget forgets links that no longer have route_localnet, and updates the table. It removes the table if nothing needs it.
func (o *owner) forget(links []string) error {
	o.Lock()
	defer o.Unlock()
	if !o.applied {
		return nil
	}
	for _, link := range links {
		delete(o.want.localnet, link)
	}
	return o.sync()
}

// prepare sets the masters of the bridge by VIP, and closes it for other VIPs.
func (o *owner) prepare(masters map[netip.Addr][]netip.Addr) error {
	o.Lock()
	defer o.Unlock()
	maps.DeleteFunc(o.until, func(vip netip.Addr, _ time.Time) bool { return len(masters[vip]) == 0 })
	o.want.masters = masters
	return o.sync()
}

// openBridge carries out the requests.
func (o *owner) openBridge() error {
	o.Lock()
	defer o.Unlock()
	asked := o.requests.take()
	if len(asked) == 0 {
		return nil
	}
	o.want.taken = maps.Clone(o.want.taken)
	var todo plan
	now := time.Now()
	for vip, until := range asked {
		f := familyOf(vip)
		lasts := until.Sub(now).Truncate(time.Millisecond)
		if len(o.want.masters[vip]) == 0 || lasts <= 0 {
			continue
		}
		if !o.until[vip].After(now) {
			todo.fill = append(todo.fill, bridgeChain+dashed(vip)) // resets the counter
		}
		o.until[vip] = until
		todo.renew(edit{bridge + f.version, addrKey(vip), element{chain: bridgeChain + dashed(vip), lasts: lasts}})
		place := netip.AddrPortFrom(vip, 0)
		if _, ok := o.want.taken[place]; !ok {
			o.want.taken[place] = ""
			todo.put = append(todo.put, edit{taken + f.version, placeKey(place), element{}})
		}
	}
	return o.write(todo, wanted{masters: o.want.masters, halfOpen: o.want.halfOpen}.table())
}

// closeBridge closes the bridge for VIPs.
func (o *owner) closeBridge(vips []netip.Addr) error {
	o.Lock() // waits for an openBridge that has taken the requests
	defer o.Unlock()
	for _, vip := range vips {
		delete(o.until, vip)
	}
	return o.sync()
}

// received returns the bridge's counter of a VIP.
func (o *owner) received(vip netip.Addr) (uint64, error) {
	o.Lock()
	defer o.Unlock()
	counted, err := o.counted()
	return counted[bridgeChain+dashed(vip)].packets(), err
}

// slack is the largest expected difference between the kernel's and Herald's time of expiry of an element.
const slack = 100 * time.Millisecond

// left returns the remaining time of each open VIP. About the time of expiry the found table decides whether
// the VIP is still open. The mutex is held.
func (o *owner) left(found table) map[netip.Addr]time.Duration {
	out := make(map[netip.Addr]time.Duration)
	for vip, until := range o.until {
		left := time.Until(until)
		_, present := found.sets[bridge+familyOf(vip).version].elements[addrKey(vip)]
		switch {
		case left > slack, present && left > -slack:
			out[vip] = max(left, slack)
		case left < -slack:
			delete(o.until, vip)
		}
	}
	return out
}

// read reads the table. The mutex is held.
func (o *owner) read() (table, error) {
	var found table
	if err := o.Call(func() (err error) { found, err = o.kernel.read(); return err }); err != nil {
		return table{}, err // a stuck call may still write to the variable
	}
	return found, nil
}

// counted reads the counters of chains. The mutex is held.
func (o *owner) counted() (map[string]chain, error) {
	chains := make(map[string]chain)
	if err := o.Call(func() error { return o.kernel.rules(chains) }); err != nil {
		return nil, err // as in read
	}
	return chains, nil
}

// desired returns the desired table, given the found one. The mutex is held.
func (o *owner) desired(found table) table {
	t := o.rebuilt(found)
	if !o.applied {
		t.addServices(found)
	}
	return t
}

// rebuilt is desired without a predecessor's services, which are known only by name and cannot be made anew.
func (o *owner) rebuilt(found table) table {
	w := o.want
	w.buckets = assign(found, w.services, o.node)
	w.open = o.left(found)
	if o.applied && len(w.services)+len(w.taken)+len(w.localnet)+len(w.masters) == 0 {
		return table{}
	}
	return w.table()
}

// sync makes the table match the desired one. The mutex is held.
func (o *owner) sync() error {
	if o.have != nil {
		if err := o.change(*o.have, o.desired(*o.have)); err == nil || errors.Is(err, ruleset.ErrStuck) {
			return err
		}
	}
	// Another program has changed it.
	found, err := o.read()
	if err != nil {
		return err
	}
	if err := o.change(found, o.desired(found)); err == nil || errors.Is(err, ruleset.ErrStuck) {
		return err
	}
	// It cannot be changed in place, for instance because another version made it.
	want := o.rebuilt(found)
	if err := o.Call(func() error { return o.kernel.replace(want) }); err != nil {
		return err
	}
	o.have = &want
	return nil
}

// change turns the table have into want. The mutex is held.
func (o *owner) change(have, want table) (err error) {
	todo := change(have, want)
	switch {
	case todo.empty():
	case len(want.chains) == 0:
		err = o.Call(func() error { return o.kernel.RemoveTables(ours()) })
	default:
		err = o.Call(func() error { return o.kernel.carryOut(todo, want, false) })
	}
	if err != nil {
		o.have = nil
		return err
	}
	o.have = &want
	return nil
}

// write carries out a plan for elements and counters of the desired table. It does not derive that table, because a
// withdrawal waits for the bridge. The table part describes the sets and chains of the plan. The mutex is held.
func (o *owner) write(todo plan, part table) error {
	switch {
	case todo.empty():
		return nil
	case o.have == nil:
		return o.sync()
	}
	err := o.Call(func() error { return o.kernel.carryOut(todo, part, false) })
	if err == nil {
		for _, e := range todo.put {
			o.have.sets[e.set].elements[e.key] = e.element
		}
		return nil
	}
	o.have = nil
	if errors.Is(err, ruleset.ErrStuck) {
		return err
	}
	return o.sync()
}
