package announce

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/speaker/flat"
	"github.com/herald-vip/herald/tenant"
)

// address is one that Services have, or had until a moment ago.
type address struct {
	addr   netip.Addr
	pool   *addressPool // nil: it is in none
	claims []*backing   // the Services that have it, the oldest first

	route   *route        // that leads here for it; nil if it is not announced
	parting []parting     // what else still leads here, as going
	since   time.Time     // its stage
	flat    *flat.Address // nil: this node may not hold it
	service string        // whose it is, or was
	origin  tenant.Origin
}

// parting is a route that an address is about to leave, and when.
type parting struct {
	route *route
	until time.Time
}

func (x *address) stage() gracefulshutdown.Stage {
	switch {
	case x.route != nil:
		return gracefulshutdown.Announced
	case len(x.parting) > 0:
		return gracefulshutdown.Draining
	}
	return gracefulshutdown.Withdrawn
}

// served says whether the claim of a Service counts: that of the oldest, and of
// those that share the address with it on the same terms. That their ports differ is
// up to the writer.
func (x *address) served(b *backing) bool {
	first := x.claims[0]
	return b == first || b.wants.share != "" && b.wants.share == first.wants.share && b.wants.policy == first.wants.policy
}

// backed is whether the endpoints of those whose address it is let a node announce it.
func (a *Announcer) backed(x *address) service.Verdict {
	var out service.Verdict
	family := pool.FamilyOf(x.addr)
	for _, b := range x.claims {
		if !x.served(b) {
			continue
		}
		if out = a.rule(b).Backed(a.config.Node, family, b.endpoints()); out.OK() {
			break
		}
	}
	return out
}

// rule is where a Service is to have an endpoint.
func (a *Announcer) rule(b *backing) service.Rule {
	if b.wants.local {
		return service.OnNode
	}
	return a.config.RequireEndpoints
}

// mayAnnounce says whether this node announces an address by BGP, and whether it may hold it
// on a flat layer 2.
func (a *Announcer) mayAnnounce(x *address) (route, flat service.Verdict) {
	var common service.Verdict
	switch {
	case a.reservedIn(netip.PrefixFrom(x.addr, x.addr.BitLen())):
		common = service.Failed("it is a virtual IP of this node's own file")
	case len(x.claims) == 0:
		common = service.Planned("no Service has it any more")
	case x.pool == nil:
		common = service.Planned("it is in no address pool")
	default:
		backed := a.backed(x)
		route, flat = x.pool.unrouted, x.pool.flat.And(backed)
		if b := x.bgp(); b != nil {
			route = b.verdict[pool.FamilyOf(x.addr)]
		}
		route = route.And(backed)
		if reason := a.drain.Reason(); reason != "" {
			route = service.Planned("%s", reason).And(route)
		}
		return route, flat
	}
	return common, common
}

// reservedIn says whether one of the node's own VIPs is in a network.
func (a *Announcer) reservedIn(network netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(a.reserved, network.Addr(), netip.Addr.Compare)
	return i < len(a.reserved) && network.Contains(a.reserved[i])
}

// bgp is how the address is announced by BGP; nil if it is not.
func (x *address) bgp() *poolBGP {
	for _, b := range x.pool.exceptions {
		if b.services.Match(x.claims[0].wants.labels) {
			return b
		}
	}
	return x.pool.bgp
}

// network is what to announce for an address of a pool with BGP: its aggregate, or the
// address alone if the aggregate has addresses that are another pool's, nobody's,
// or a VIP of this node.
func (a *Announcer) network(x *address) netip.Prefix {
	host := netip.PrefixFrom(x.addr, x.addr.BitLen())
	length := x.bgp().lengths[pool.FamilyOf(x.addr)]
	if length <= 0 || length >= x.addr.BitLen() {
		return host
	}
	network, err := x.addr.Prefix(length)
	if err != nil || !a.holds(x.pool, network) || a.reservedIn(network) {
		return host
	}
	return network
}

// decide brings an address to where it ought to be. The deltas that follow from it are
// sent at the end of the event.
func (a *Announcer) decide(x *address) {
	a.changes++
	if !a.synced {
		return
	}
	if len(x.claims) > 0 {
		x.service, x.origin = x.claims[0].key, x.claims[0].wants.origin
	}
	now := time.Now()
	before := x.stage()
	a.drop(x, func(p parting) bool { return wake.Due(now, p.until) })
	route, flat := a.mayAnnounce(x)
	switch {
	case route.OK():
		a.enter(x, a.reach(a.network(x)), now)
	case route.Failed:
		a.leave(x)
	case x.route != nil:
		a.part(x, now)
	}
	if x.stage() != before {
		x.since = now
		a.moves = append(a.moves, moveOf(x, route.Reason))
	}
	a.offer(x, flat.OK())
	a.forgetAddress(x)
}

// enter has a route lead here for an address. The one that did so before leaves
// with notice, and so does this one leave peers that it was for.
func (a *Announcer) enter(x *address, r *route, now time.Time) {
	r.terms = x.bgp().terms
	if r.sent.terms == nil { // nobody has it
		r.audience = gracefulshutdown.Audience{Peers: r.terms.peers}
	}
	var again time.Time
	if r.audience, again = r.audience.Next(now, r.terms.peers, a.peers); !again.IsZero() {
		a.look(x, now)
	}
	a.touch(r)
	if x.route == r {
		return
	}
	if x.route != nil {
		a.part(x, now)
	}
	x.route = r
	r.entered++
}

// part has the route of an address leave with notice.
func (a *Announcer) part(x *address, now time.Time) {
	r := x.route
	x.route = nil
	r.entered--
	r.parting++
	x.parting = append(x.parting, parting{r, now.Add(gracefulshutdown.Notice)})
	a.look(x, now)
	a.touch(r)
}

// look has an address decided about again when what leaves now has left.
func (a *Announcer) look(x *address, now time.Time) {
	a.departures = append(a.departures, due{x, now.Add(gracefulshutdown.Notice)})
}

// leave has all routes of an address leave at once.
func (a *Announcer) leave(x *address) {
	if r := x.route; r != nil {
		x.route = nil
		r.entered--
		a.touch(r)
	}
	a.drop(x, func(parting) bool { return true })
}

// drop ends those partings of an address.
func (a *Announcer) drop(x *address, which func(parting) bool) {
	x.parting = slices.DeleteFunc(x.parting, func(p parting) bool {
		if !which(p) {
			return false
		}
		p.route.parting--
		a.touch(p.route)
		return true
	})
}

// forgetAddress forgets an address if nobody has it any more.
func (a *Announcer) forgetAddress(x *address) {
	if len(x.claims) > 0 || x.stage() != gracefulshutdown.Withdrawn {
		return
	}
	if known, ok := a.addresses.Get(x); ok && known == x { // and not its successor
		a.addresses.Delete(x)
	}
}

func (a *Announcer) decideAll() {
	a.addresses.Ascend(func(x *address) bool {
		a.affected = append(a.affected, x)
		return true
	})
	a.decideAffected()
}

// decideAffected decides for what an event has affected.
func (a *Announcer) decideAffected() {
	for _, x := range a.affected {
		a.decide(x)
	}
	clear(a.affected)
	a.affected = a.affected[:0]
}

// due is when an address leaves a route, or its route a peer.
type due struct {
	address *address
	at      time.Time
}

// next is when time alone will change something; zero is never.
func (a *Announcer) next() time.Time {
	if len(a.departures) == 0 {
		return a.retry
	}
	return wake.Earlier(a.retry, a.departures[0].at) // all are of the same length, so they are in order
}

// elapse does what was due.
func (a *Announcer) elapse() {
	now := time.Now()
	for len(a.departures) > 0 && wake.Due(now, a.departures[0].at) {
		a.affected = append(a.affected, a.departures[0].address)
		a.departures = a.departures[1:]
	}
	if len(a.departures) == 0 {
		a.departures = nil // and what it has grown to
	}
	a.decideAffected()
	if wake.Due(now, a.retry) {
		a.retry = time.Time{}
		for _, r := range slices.SortedFunc(maps.Keys(a.failing), func(x, y *route) int { return x.prefix.Compare(y.prefix) }) {
			a.touch(r)
		}
	}
}
