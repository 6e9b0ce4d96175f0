package announce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
)

// retryAfter is the pause before refused routes are retried.
const retryAfter = time.Second

// route is a prefix that leads to this node, or is being withdrawn.
type route struct {
	prefix netip.Prefix
	// refs counts the addresses that use it, stale the addresses that are about to stop using it.
	refs, stale int
	export      *export                     // of the pool, or of an exception
	advertised  gracefulshutdown.Advertised // the peers advertised to, which follow export
	sent        advertisement
	touched     bool
	err         error
}

// export is the path attributes and peers of the routes of a pool or of an exception.
type export struct {
	attributes v1alpha1.Attributes
	peers      []string // as in [bgp.Route]
}

// advertisement is the announced state of a route; with a nil export it is withdrawn.
type advertisement struct {
	export        *export
	drainingPeers []string // peers, as in [bgp.Route]
	draining      bool
}

// wanted returns the desired advertisement.
func (r *route) wanted() advertisement {
	switch {
	case r.refs > 0:
		return advertisement{export: r.export, drainingPeers: r.advertised.Draining()}
	case r.stale > 0:
		return advertisement{export: r.export, drainingPeers: r.advertised.Draining(), draining: true}
	}
	return advertisement{}
}

// routeTo returns the route to a network; it makes one if there is none.
func (a *Announcer) routeTo(network netip.Prefix) *route {
	r := a.live[network]
	if r == nil {
		r = &route{prefix: network}
		a.live[network] = r
	}
	return r
}

// touch includes a route in the deltas of the present event.
func (a *Announcer) touch(r *route) {
	if !r.touched {
		r.touched = true
		a.touched = append(a.touched, r)
	}
}

// flush sends the deltas of an event. Withdrawals come first and in one call, as they stop traffic that would be lost.
func (a *Announcer) flush() {
	var withdraw, announce []*route
	for _, r := range a.touched {
		r.touched = false
		switch wanted := r.wanted(); {
		case reflect.DeepEqual(wanted, r.sent), r.prefix.IsSingleIP() && a.reservedIn(r.prefix):
			a.sent(r, nil) // the speaker withdraws the routes of VIPs
		case wanted.export == nil:
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
			out[i] = bgp.Route{Prefix: r.prefix, Attributes: o.export.attributes, Draining: o.draining, Peers: o.export.peers, DrainingPeers: o.drainingPeers}
		}
		return a.routes.Announce(out...)
	})
	if len(a.live) == 0 {
		a.drain.Complete()
	}
}

// send calls do for all routes at once or, if that fails, for each alone.
func (a *Announcer) send(routes []*route, do func([]*route) error) {
	if len(routes) == 0 {
		return
	}
	err := do(routes)
	if err == nil {
		for _, r := range routes {
			a.sent(r, nil)
		}
		return
	}
	for i, r := range routes {
		if len(routes) > 1 {
			err = do(routes[i : i+1])
		}
		a.sent(r, err)
	}
}

// sent records the result of sending a route.
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
	if r.sent = r.wanted(); r.sent.export == nil {
		delete(a.live, r.prefix)
	}
}

// Drain starts a graceful withdrawal of every route; wait returns when it is complete. The routes stay withdrawn until
// [Announcer.Undrain], which makes a pending wait return an error. reason is shown to users. The speaker drains
// addresses on a flat layer 2.
func (a *Announcer) Drain(reason string) (wait func(context.Context) error) {
	a.event(func() {
		if a.drain.Begin(reason) {
			a.decideAll()
		}
		wait = a.drain.Wait()
	})
	return wait
}

// Undrain ends a drain: eligible addresses are announced again. After [Announcer.Stop] it does nothing.
func (a *Announcer) Undrain() {
	a.event(func() {
		if a.drain.End() {
			a.decideAll()
		}
	})
}

// Stop withdraws every route at once and for good. The error names the routes that could not be withdrawn.
func (a *Announcer) Stop() error {
	a.event(func() {
		a.drain.Stop()
		a.decideAll()
		for _, d := range a.deadlines {
			a.withdraw(d.address)
			a.forgetAddress(d.address)
		}
		a.deadlines = nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for r := range a.failing {
		errs = append(errs, fmt.Errorf("withdraw %s: %w", r.prefix, r.err))
	}
	return errors.Join(errs...)
}
