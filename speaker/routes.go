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

// cover is what is announced for addresses: the route to each, or to a prefix that covers several.
type cover struct {
	prefix netip.Prefix
	units  []*unit // in the order of the speaker, so those that are configured come first
}

// covers are the routes that there are or may be. The address of a Service may be on a flat layer 2 and have a route, too, which
// is not the speaker's to withdraw.
func (s *Speaker) covers() []*cover {
	var out []*cover
	known := make(map[netip.Prefix]*cover)
	for _, u := range s.order {
		prefix := u.prefix()
		if _, told := s.told[prefix]; u.vip.Flat != nil && !told {
			continue
		}
		c := known[prefix]
		if c == nil {
			c = &cover{prefix: prefix}
			known[prefix] = c
			out = append(out, c)
		}
		c.units = append(c.units, u)
	}
	return out
}

// prefix is what the address is reached by.
func (u *unit) prefix() netip.Prefix {
	for _, p := range u.vip.Prefixes {
		if p.Contains(u.Addr) {
			return p
		}
	}
	return netip.PrefixFrom(u.Addr, u.Addr.BitLen())
}

// holds reports whether enough addresses are as ok says: one, or with [VIP.All] each, but for those that are about to go
// while others stay.
func (c *cover) holds(ok func(*unit) bool) bool {
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

// table is the table that the route is in; nil if it goes to peers.
func (c *cover) table() *Table { return c.units[0].vip.Table }

// withdrawRoutes takes away the routes that nothing stands behind any more. Of all addresses behind a prefix, those count that have been there, or
// have failed: one that is new does not take the prefix from the others.
func (s *Speaker) withdrawRoutes(now time.Time, all []*cover) error {
	serves := func(u *unit) bool {
		return u.vip.Flat == nil && u.at.stage.Advertised() && u.bound == present && !u.astray(now)
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

// ready reports whether an address is there to be announced.
func (u *unit) ready() bool { return u.vip.Flat == nil && u.at.stage.Advertised() && u.err == nil }

// announceRoutes makes the routes whose addresses are there, and then takes away what they replace.
func (s *Speaker) announceRoutes(all []*cover) {
	var peers []bgp.Route
	var byPeers []*cover
	for _, c := range all {
		i := slices.IndexFunc(c.units, (*unit).ready)
		_, told := s.told[c.prefix]
		switch {
		case i < 0:
		case !c.holds((*unit).ready) && told:
		case !c.holds((*unit).ready):
			s.recordObstacle(c.units[i], fmt.Errorf("%s waits for the other addresses behind it", c.prefix))
		case c.table() != nil:
			s.told[c.prefix] = gracefulshutdown.Audience{Peers: []string{}}
			s.recordUnannounced(c, s.kernel.Announce(c.table().route(c.prefix, c.marked())))
		default:
			peers, byPeers = append(peers, s.route(c.prefix, c.units[i].vip, c.marked())), append(byPeers, c)
		}
	}
	if err := s.routes.Announce(peers...); err != nil {
		for _, c := range byPeers {
			s.recordUnannounced(c, err)
		}
	}
	s.withdrawReplaced(all)
}

// marked reports whether others are to be preferred to the route.
func (c *cover) marked() bool {
	return !c.holds(func(u *unit) bool { return u.ready() && !u.at.stage.Marked() })
}

// recordUnannounced records that the route could not be made, if it could not.
func (s *Speaker) recordUnannounced(c *cover, err error) {
	for _, u := range c.units {
		if err != nil && u.ready() {
			s.recordObstacle(u, err)
		}
	}
}

// withdrawReplaced takes away routes that are announced the other way, or by another prefix, by now.
func (s *Speaker) withdrawReplaced(all []*cover) {
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
		s.log.Error("cannot withdraw what is announced in another way by now", "err", err)
		s.wakeAt(time.Now().Add(retryAfter))
		return
	}
	maps.DeleteFunc(s.told, func(prefix netip.Prefix, _ gracefulshutdown.Audience) bool { _, is := stale[prefix]; return is })
}

// route is a route in the table; one that others are to be preferred to, if it is marked.
func (t *Table) route(prefix netip.Prefix, marked bool) route.Route {
	r := route.Route{Prefix: prefix, Table: t.Number, Metric: t.Metric}
	if marked {
		r.Metric = route.Worst
	}
	return r
}

// route is what to announce to peers, and to which.
func (s *Speaker) route(prefix netip.Prefix, vip VIP, marked bool) bgp.Route {
	told, ok := s.told[prefix]
	if !ok {
		told = gracefulshutdown.Audience{Peers: vip.Peers}
	}
	told, again := told.Next(time.Now(), vip.Peers, s.peers)
	s.wakeAt(again)
	s.told[prefix] = told
	return bgp.Route{Prefix: prefix, Attributes: vip.Attributes, Draining: marked, Peers: told.Peers, Leaving: told.Leaving()}
}
