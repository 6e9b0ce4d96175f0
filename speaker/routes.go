package speaker

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/netutil/route"
)

// aggregate is a route to one address, or to a prefix of several (RFC 4271 §9.2.2.2).
type aggregate struct {
	prefix netip.Prefix
	units  []*unit // in the order of the speaker, so configured units come first
}

// aggregates lists all routes that exist or may be announced. A Service's address on a flat layer 2 can have a route
// that package announce owns; the speaker must not withdraw it.
func (s *Speaker) aggregates() []*aggregate {
	var out []*aggregate
	known := make(map[netip.Prefix]*aggregate)
	for _, u := range s.order {
		prefix := u.prefix()
		if _, told := s.told[prefix]; u.vip.Flat != nil && !told {
			continue
		}
		c := known[prefix]
		if c == nil {
			c = &aggregate{prefix: prefix}
			known[prefix] = c
			out = append(out, c)
		}
		c.units = append(c.units, u)
	}
	return out
}

// prefix returns the configured prefix that contains the address, or its host route.
func (u *unit) prefix() netip.Prefix {
	for _, p := range u.vip.Prefixes {
		if p.Contains(u.Addr) {
			return p
		}
	}
	return netip.PrefixFrom(u.Addr, u.Addr.BitLen())
}

// holds reports whether ok holds for one address or, with [VIP.All], for all of them, ignoring addresses that are
// being removed.
func (c *aggregate) holds(ok func(*unit) bool) bool {
	if !c.units[0].vip.All {
		return slices.ContainsFunc(c.units, ok)
	}
	for _, u := range c.units {
		if u.gone && !c.units[0].gone {
			continue
		}
		if !slices.ContainsFunc(c.units, func(other *unit) bool { return other.Addr == u.Addr && ok(other) }) {
			return false
		}
	}
	return true
}

// table returns the kernel table of the route; nil for a route to peers.
func (c *aggregate) table() *Table { return c.units[0].vip.Table }

// withdrawRoutes withdraws the routes without serving addresses. An address that is still to come does not withdraw
// the prefix of the others.
func (s *Speaker) withdrawRoutes(now time.Time, all []*aggregate) error {
	serves := func(u *unit) bool {
		return u.vip.Flat == nil && u.at.stage.Advertised() && u.bound == present && !u.missing(now)
	}
	comes := func(u *unit) bool {
		return s.undecided(u) || u.at.stage.Advertised() && u.bound != present && u.blocked.IsZero()
	}
	var prefixes []netip.Prefix
	for _, c := range all {
		if !slices.ContainsFunc(c.units, serves) || !c.holds(func(u *unit) bool { return serves(u) || comes(u) }) {
			prefixes = append(prefixes, c.prefix)
		}
	}
	err := errors.Join(s.kernel.Withdraw(prefixes...), s.routes.Withdraw(prefixes...))
	if err == nil {
		for _, prefix := range prefixes {
			delete(s.told, prefix)
		}
	}
	return err
}

// ready reports whether the address is bound and its route can be announced.
func (u *unit) ready() bool { return u.vip.Flat == nil && u.at.stage.Advertised() && u.err == nil }

// announceRoutes announces the routes of ready addresses, then withdraws the routes that they replace.
func (s *Speaker) announceRoutes(all []*aggregate) {
	var peers []bgp.Route
	var toPeers []*aggregate
	for _, c := range all {
		i := slices.IndexFunc(c.units, (*unit).ready)
		_, told := s.told[c.prefix]
		switch {
		case i < 0:
		case !c.holds((*unit).ready) && told:
		case !c.holds((*unit).ready):
			s.recordObstacle(c.units[i], fmt.Errorf("%s waits for its other addresses", c.prefix))
		case c.table() != nil:
			s.told[c.prefix] = gracefulshutdown.Advertised{Peers: []string{}}
			s.recordUnannounced(c, s.kernel.Announce(c.table().route(c.prefix, c.marked())))
		default:
			peers, toPeers = append(peers, s.route(c.prefix, c.units[i].vip, c.marked())), append(toPeers, c)
		}
	}
	if err := s.routes.Announce(peers...); err != nil {
		for _, c := range toPeers {
			s.recordUnannounced(c, err)
		}
	}
	s.withdrawReplaced(all)
}

// marked reports whether the route asks routers to prefer others.
func (c *aggregate) marked() bool {
	return !c.holds(func(u *unit) bool { return u.ready() && !u.at.stage.Marked() })
}

// recordUnannounced records a failed announcement; a nil err does nothing.
func (s *Speaker) recordUnannounced(c *aggregate, err error) {
	for _, u := range c.units {
		if err != nil && u.ready() {
			s.recordObstacle(u, err)
		}
	}
}

// withdrawReplaced withdraws routes that moved between peers and kernel, or to another prefix.
func (s *Speaker) withdrawReplaced(all []*aggregate) {
	stale := maps.Clone(s.told)
	var peers, kernel []netip.Prefix
	for _, c := range all {
		if delete(stale, c.prefix); c.table() != nil {
			peers = append(peers, c.prefix)
		} else {
			kernel = append(kernel, c.prefix)
		}
	}
	peers, kernel = slices.AppendSeq(peers, maps.Keys(stale)), slices.AppendSeq(kernel, maps.Keys(stale))
	if err := errors.Join(s.kernel.Withdraw(kernel...), s.routes.Withdraw(peers...)); err != nil {
		s.log.Error("cannot withdraw a replaced route", "err", err)
		s.wakeAt(time.Now().Add(retryAfter))
		return
	}
	maps.DeleteFunc(s.told, func(prefix netip.Prefix, _ gracefulshutdown.Advertised) bool { _, ok := stale[prefix]; return ok })
}

// route returns a route in the table, with the worst metric if it is marked.
func (t *Table) route(prefix netip.Prefix, marked bool) route.Route {
	r := route.Route{Prefix: prefix, Table: t.Number, Metric: t.Metric}
	if marked {
		r.Metric = route.Worst
	}
	return r
}

// route returns the route to announce, with the peers that get it and the peers that still have it.
func (s *Speaker) route(prefix netip.Prefix, vip VIP, marked bool) bgp.Route {
	told, ok := s.told[prefix]
	if !ok {
		told = gracefulshutdown.Advertised{Peers: vip.Peers}
	}
	told, again := told.Next(time.Now(), vip.Peers, s.peers)
	s.wakeAt(again)
	s.told[prefix] = told
	return bgp.Route{Prefix: prefix, Attributes: vip.Attributes, Draining: marked, Peers: told.Peers, DrainingPeers: told.Draining()}
}
