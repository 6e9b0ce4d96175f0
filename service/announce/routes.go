package announce

import (
	"net/netip"
	"reflect"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
)

// retryAfter is how soon what the router refused is tried again.
const retryAfter = time.Second

// route is a prefix that leads here, or did until a moment ago.
type route struct {
	prefix netip.Prefix
	// entered is how many addresses it leads here for, parting how many it is
	// about to be taken from.
	entered, parting int
	terms            *terms                    // of the pool, or of an exception
	audience         gracefulshutdown.Audience // whose peers are those of the terms
	sent             offer
	touched          bool
	err              error
}

// terms are what the routes of a pool, or of an exception, have in common.
type terms struct {
	attributes bgp.Attributes
	peers      []string // as in [bgp.Route]
}

// offer is what is announced for a route; without terms nothing is.
type offer struct {
	terms    *terms
	leaving  []string // peers, as in [bgp.Route]
	draining bool
}

// wanted is what is to be announced.
func (r *route) wanted() offer {
	switch {
	case r.entered > 0:
		return offer{terms: r.terms, leaving: r.audience.Leaving()}
	case r.parting > 0:
		return offer{terms: r.terms, leaving: r.audience.Leaving(), draining: true}
	}
	return offer{}
}

// reach is the route to a network, made if there is none.
func (a *Announcer) reach(network netip.Prefix) *route {
	r := a.live[network]
	if r == nil {
		r = &route{prefix: network}
		a.live[network] = r
	}
	return r
}

// touch has the event's deltas include a route, if it is to change.
func (a *Announcer) touch(r *route) {
	if !r.touched {
		r.touched = true
		a.touched = append(a.touched, r)
	}
}

// flush sends the deltas of an event: withdrawals first, and all in one go, since that is
// what stops traffic that would be lost.
func (a *Announcer) flush() {
	var withdraw, announce []*route
	for _, r := range a.touched {
		r.touched = false
		switch wanted := r.wanted(); {
		case reflect.DeepEqual(wanted, r.sent), r.prefix.IsSingleIP() && a.reservedIn(r.prefix):
			a.sent(r, nil) // what has become a VIP's is its own to withdraw
		case wanted.terms == nil:
			withdraw = append(withdraw, r)
		default:
			announce = append(announce, r)
		}
	}
	clear(a.touched)
	a.touched = a.touched[:0]
	a.send(withdraw, func(routes []*route) error {
		prefixes := make([]netip.Prefix, len(routes))
		for i, r := range routes {
			prefixes[i] = r.prefix
		}
		return a.routes.Withdraw(prefixes...)
	})
	a.send(announce, func(routes []*route) error {
		out := make([]bgp.Route, len(routes))
		for i, r := range routes {
			o := r.wanted()
			out[i] = bgp.Route{Prefix: r.prefix, Attributes: o.terms.attributes, Draining: o.draining, Peers: o.terms.peers, Leaving: o.leaving}
		}
		return a.routes.Announce(out...)
	})
	if len(a.live) == 0 {
		a.drain.Complete()
	}
}

// send sends many at once or, if that fails, each by itself.
func (a *Announcer) send(routes []*route, how func([]*route) error) {
	if len(routes) == 0 {
		return
	}
	err := how(routes)
	if err == nil {
		for _, r := range routes {
			a.sent(r, nil)
		}
		return
	}
	for i, r := range routes {
		if len(routes) > 1 {
			err = how(routes[i : i+1])
		}
		a.sent(r, err)
	}
}

// sent records how it went.
func (a *Announcer) sent(r *route, err error) {
	a.changes++
	if r.err = err; err != nil {
		if len(a.failing) == 0 {
			a.moves = append(a.moves, move{err: err, route: r.prefix})
		}
		a.failing[r] = struct{}{}
		a.retry = time.Now().Add(retryAfter)
		return
	}
	if _, failed := a.failing[r]; failed {
		delete(a.failing, r)
		if len(a.failing) == 0 {
			a.moves = append(a.moves, move{recovered: true})
		}
	}
	if r.sent = r.wanted(); r.sent.terms == nil {
		delete(a.live, r.prefix)
	}
}
