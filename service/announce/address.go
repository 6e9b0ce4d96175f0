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
)

// address is an address of Services, or the former address of one until it is withdrawn.
type address struct {
	addr   netip.Addr
	pool   *addressPool // nil if it is in no pool
	claims []*backing   // the Services that have it, oldest first

	route   *route        // nil if not announced
	stale   []stalePath   // draining routes
	since   time.Time     // start of the stage
	flat    *flat.Address // nil if not permitted here
	service string        // the oldest Service, or the last one
	origin  service.Origin
}

// stalePath is a previous route of an address, and when the address leaves it.
type stalePath struct {
	route *route
	until time.Time
}

func (x *address) stage() gracefulshutdown.Stage {
	switch {
	case x.route != nil:
		return gracefulshutdown.Announced
	case len(x.stale) > 0:
		return gracefulshutdown.Draining
	}
	return gracefulshutdown.Withdrawn
}

// served reports whether the claim of a Service counts: it is the oldest, or shares the address with the oldest by the
// same key and policy. The writer ensures that their ports differ.
func (x *address) served(b *backing) bool {
	first := x.claims[0]
	return b == first || b.wants.share != "" && b.wants.share == first.wants.share && b.wants.policy == first.wants.policy
}

// backed returns whether the endpoints of the address's Services let this node announce it.
func (a *Announcer) backed(x *address) service.Eligibility {
	var out service.Eligibility
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

// rule returns where a Service must have an endpoint.
func (a *Announcer) rule(b *backing) service.Rule {
	if b.wants.local {
		return service.OnNode
	}
	return a.config.RequireEndpoints
}

// mayAnnounce returns whether this node may announce an address by BGP, and whether it may hold it on a flat layer 2.
func (a *Announcer) mayAnnounce(x *address) (byBGP, flat service.Eligibility) {
	var common service.Eligibility
	switch {
	case a.reservedIn(netip.PrefixFrom(x.addr, x.addr.BitLen())):
		common = service.Failed("it is a VIP of this node's own file")
	case len(x.claims) == 0:
		common = service.Planned("no Service has it any more")
	case x.pool == nil:
		common = service.Planned("it is in no address pool")
	default:
		backed := a.backed(x)
		byBGP, flat = x.pool.unrouted, x.pool.flat.And(backed)
		if b := x.bgp(); b != nil {
			byBGP = b.eligible[pool.FamilyOf(x.addr)]
		}
		byBGP = byBGP.And(backed)
		if reason := a.drain.Reason(); reason != "" {
			byBGP = service.Planned("%s", reason).And(byBGP)
		}
		return byBGP, flat
	}
	return common, common
}

// reservedIn reports whether a network contains a VIP of the node's own file.
func (a *Announcer) reservedIn(network netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(a.reserved, network.Addr(), netip.Addr.Compare)
	return i < len(a.reserved) && network.Contains(a.reserved[i])
}

// bgp returns how the address is announced by BGP; nil if it is not.
func (x *address) bgp() *poolBGP {
	for _, b := range x.pool.exceptions {
		if b.services.Match(x.claims[0].wants.labels) {
			return b
		}
	}
	return x.pool.bgp
}

// network returns the prefix to announce for an address of a pool with BGP. It is the aggregate, unless this contains
// an address outside the pool or a VIP of this node. Then it is the address alone.
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

// decide updates the state of an address. The resulting deltas are sent at the end of the event.
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
	a.expire(x, func(p stalePath) bool { return wake.Due(now, p.until) })
	byBGP, flat := a.mayAnnounce(x)
	switch {
	case byBGP.OK():
		a.announce(x, a.routeTo(a.network(x)), now)
	case byBGP.Failed:
		a.withdraw(x)
	case x.route != nil:
		a.retire(x, now)
	}
	if x.stage() != before {
		x.since = now
		a.moves = append(a.moves, move{stage: x.stage(), service: x.service, origin: x.origin, addr: x.addr, reason: byBGP.Reason})
	}
	a.updateFlat(x, flat.OK())
	a.forgetAddress(x)
}

// announce makes r the route of an address. The previous route retires gracefully, and so
// does r at peers that should no longer have it.
func (a *Announcer) announce(x *address, r *route, now time.Time) {
	r.export = x.bgp().export
	if r.sent.export == nil { // no peer has it
		r.advertised = gracefulshutdown.Advertised{Peers: r.export.peers}
	}
	var again time.Time
	if r.advertised, again = r.advertised.Next(now, r.export.peers, a.peers); !again.IsZero() {
		a.schedule(x, now)
	}
	a.touch(r)
	if x.route == r {
		return
	}
	if x.route != nil {
		a.retire(x, now)
	}
	x.route = r
	r.refs++
}

// retire withdraws the route of an address after the notice of a graceful shutdown.
func (a *Announcer) retire(x *address, now time.Time) {
	r := x.route
	x.route = nil
	r.refs--
	r.stale++
	x.stale = append(x.stale, stalePath{r, now.Add(gracefulshutdown.Notice)})
	a.schedule(x, now)
	a.touch(r)
}

// schedule decides an address again after the notice of a graceful shutdown.
func (a *Announcer) schedule(x *address, now time.Time) {
	a.deadlines = append(a.deadlines, deadline{x, now.Add(gracefulshutdown.Notice)})
}

// withdraw withdraws all routes of an address at once.
func (a *Announcer) withdraw(x *address) {
	if r := x.route; r != nil {
		x.route = nil
		r.refs--
		a.touch(r)
	}
	a.expire(x, func(stalePath) bool { return true })
}

// expire withdraws the expired stale paths of an address.
func (a *Announcer) expire(x *address, expired func(stalePath) bool) {
	x.stale = slices.DeleteFunc(x.stale, func(p stalePath) bool {
		if !expired(p) {
			return false
		}
		p.route.stale--
		a.touch(p.route)
		return true
	})
}

// forgetAddress forgets a withdrawn address without Services.
func (a *Announcer) forgetAddress(x *address) {
	if len(x.claims) > 0 || x.stage() != gracefulshutdown.Withdrawn {
		return
	}
	if known, ok := a.addresses.Get(x); ok && known == x { // not a newer entry of the same address
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

// decideAffected decides the addresses that an event has affected.
func (a *Announcer) decideAffected() {
	for _, x := range a.affected {
		a.decide(x)
	}
	clear(a.affected)
	a.affected = a.affected[:0]
}

// deadline is when an address leaves a route, or its route a peer.
type deadline struct {
	address *address
	at      time.Time
}

// next returns the next time at which there is work without an event; zero means never.
func (a *Announcer) next() time.Time {
	if len(a.deadlines) == 0 {
		return a.retry
	}
	return wake.Earlier(a.retry, a.deadlines[0].at) // in order, as all notices have the same length
}

// expireDeadlines handles expired deadlines and retries failing routes.
func (a *Announcer) expireDeadlines() {
	now := time.Now()
	for len(a.deadlines) > 0 && wake.Due(now, a.deadlines[0].at) {
		a.affected = append(a.affected, a.deadlines[0].address)
		a.deadlines = a.deadlines[1:]
	}
	if len(a.deadlines) == 0 {
		a.deadlines = nil // frees the array
	}
	a.decideAffected()
	if wake.Due(now, a.retry) {
		a.retry = time.Time{}
		for _, r := range slices.SortedFunc(maps.Keys(a.failing), func(x, y *route) int { return x.prefix.Compare(y.prefix) }) {
			a.touch(r)
		}
	}
}
