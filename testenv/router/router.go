// Package router is an upstream BGP router in one process: it learns host
// routes from BGP speakers by GoBGP and puts them into the kernel as ECMP
// routes, so that the test environment and the demo can run where FRR is not
// installed. It reads the same frr.conf (see ParseConfig).
//
// It only listens, exports nothing, and does not speak BFD. Of several equal
// paths to a prefix it uses all, of paths marked GRACEFUL_SHUTDOWN (RFC 8326)
// none as long as there is another. It spreads flows by resilient next-hop groups, as
// routers with resilient hashing do, if the kernel has them (Linux 5.13): a next hop
// that joins or leaves moves no flow but those of one that leaves.
//
// A router that is killed leaves its routes in the kernel. The next one in the
// same network namespace removes them when it starts.
package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// auditInterval is how often the kernel's routes are compared with those that
// should be there. The kernel drops routes by itself, when a link goes down,
// and a next hop may not be reachable yet when it is learned.
const auditInterval = time.Second

// Router is a BGP router in the network namespace of the process.
type Router struct {
	// Config is what ParseConfig returned.
	Config *Config
	// Port is the TCP port to listen on for BGP. Default: 179.
	Port uint16
	// Socket is the path of a Unix socket on which the state can be watched, see
	// Watch. Default: none.
	Socket string
	// Log hears of sessions that come and go and of routes that cannot be set.
	Log *slog.Logger

	fib *fib

	mu       sync.Mutex // guards what follows; only the goroutine of Run changes it
	rib      rib
	want     routes
	since    map[netip.Prefix]time.Time // of the last change in want
	problems map[netip.Prefix]string    // why the kernel's route is not as wanted
	sessions map[netip.Addr]*Session
	changed  chan struct{} // closed, and replaced, on every change
}

// Run routes until ctx ends, then ends the sessions and removes the routes. It
// may be called once.
func (r *Router) Run(ctx context.Context) (err error) {
	r.rib = make(rib)
	r.want = make(routes)
	r.since = make(map[netip.Prefix]time.Time)
	r.problems = make(map[netip.Prefix]string)
	r.sessions = make(map[netip.Addr]*Session)
	r.changed = make(chan struct{})
	for _, n := range r.Config.Neighbors {
		r.sessions[n.Address] = &Session{Neighbor: n.Address, ASN: n.ASN, Since: time.Now()}
		if n.IPv4 != nil && n.IPv4.AcceptsNothing() || n.IPv6 != nil && n.IPv6.AcceptsNothing() {
			r.Log.Warn("no route will be accepted: an external neighbor needs an import policy (RFC 8212) or `no bgp ebgp-requires-policy`",
				"neighbor", n.Address)
		}
	}

	if r.fib, err = openFIB(); err != nil {
		return err
	}
	defer r.fib.close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if r.Socket != "" {
		l, err := listenState(r.Socket)
		if err != nil {
			return err
		}
		wg.Go(func() { r.serveState(ctx, l) })
	}

	events := make(chan event)
	server, err := startBGP(ctx, r.Config, cmp.Or(r.Port, 179), r.Log, func(e event) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	defer server.close()
	// From here on no other router is at work here: the port is ours.
	if err := r.clear(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.clear()) }()
	r.Log.Info("router is up", "asn", r.Config.ASN, "id", r.Config.RouterID, "neighbors", len(r.Config.Neighbors))
	r.loop(ctx, events)
	return nil
}

func (r *Router) loop(ctx context.Context, events <-chan event) {
	audit := time.NewTicker(auditInterval)
	defer audit.Stop()
	for {
		select {
		case e := <-events:
			r.handle(e)
		case <-audit.C:
			r.audit()
		case <-ctx.Done():
			return
		}
	}
}

func (r *Router) handle(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.session != nil {
		r.session(e.session)
	}
	for _, u := range e.paths {
		r.path(u)
	}
}

// session follows a neighbour's session and drops its routes when it ends.
func (r *Router) session(peer *apiutil.Peer) {
	s := r.sessions[peer.State.NeighborAddress]
	up := peer.State.SessionState == bgp.BGP_FSM_ESTABLISHED
	if s == nil || s.Up == up {
		return
	}
	s.Up, s.Since, s.Reason = up, time.Now(), ""
	if up {
		r.Log.Info("session is up", "neighbor", s.Neighbor, "asn", s.ASN)
	} else {
		s.Reason = peer.State.DisconnectMessage
		r.Log.Info("session is down", "neighbor", s.Neighbor, "asn", s.ASN, "reason", s.Reason)
		for _, prefix := range r.rib.drop(s.Neighbor) {
			r.decide(prefix)
		}
	}
	r.notify()
}

// path takes an update of one neighbour's route to one prefix.
func (r *Router) path(u *apiutil.Path) {
	i := slices.IndexFunc(r.Config.Neighbors, func(n *Neighbor) bool { return n.Address == u.PeerAddress })
	if i < 0 {
		return
	}
	n := r.Config.Neighbors[i]
	prefix, path, err := readPath(u, r.Config.ASN, r.fib.linkTo)
	if !prefix.IsValid() {
		return
	}
	policy := n.IPv4
	if prefix.Addr().Is6() {
		policy = n.IPv6
	}
	switch {
	case err == nil && policy != nil && policy.Accepts(prefix):
		r.rib.update(prefix, path)
	default:
		if err != nil && !errors.Is(err, errWithdrawn) {
			r.Log.Warn("route cannot be used", "neighbor", n.Address, "prefix", prefix, "err", err)
		}
		r.rib.withdraw(prefix, n.Address)
	}
	r.decide(prefix)
}

// decide selects the next hops of prefix anew and, if they are others than
// before, sets them in the kernel.
func (r *Router) decide(prefix netip.Prefix) {
	hops := r.rib.nextHops(prefix, r.Config)
	if slices.Equal(hops, r.want[prefix]) {
		return
	}
	if len(hops) == 0 {
		delete(r.want, prefix)
		delete(r.since, prefix)
	} else {
		r.want[prefix] = hops
		r.since[prefix] = time.Now()
	}
	r.apply(prefix)
	r.Log.Debug("route changed", "prefix", prefix, "nextHops", hops)
	r.notify()
}

// apply makes the kernel's route to prefix as wanted. A failure is logged once
// and mended by an audit.
func (r *Router) apply(prefix netip.Prefix) {
	var err error
	if hops, ok := r.want[prefix]; ok {
		err = r.fib.replace(prefix, hops)
	} else {
		err = r.fib.remove(prefix)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem == r.problems[prefix] {
		return
	}
	if err != nil {
		r.problems[prefix] = problem
		r.Log.Warn("route is not as wanted, will be retried", "prefix", prefix, "err", err)
	} else {
		delete(r.problems, prefix)
		r.Log.Info("route is as wanted again", "prefix", prefix)
	}
	r.notify()
}

// audit mends the kernel's routes where they differ from those wanted.
func (r *Router) audit() {
	have, err := r.fib.list()
	if err != nil {
		r.Log.Warn("routes cannot be audited", "err", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	replace, remove := diff(have, r.want)
	again := slices.Concat(replace, remove)
	for prefix := range r.problems { // some have solved themselves
		if !slices.Contains(again, prefix) {
			again = append(again, prefix)
		}
	}
	for _, prefix := range again {
		r.apply(prefix)
	}
}

// clear removes all our routes from the kernel.
func (r *Router) clear() error {
	have, err := r.fib.list()
	if err != nil {
		return err
	}
	for prefix := range have {
		if err := r.fib.remove(prefix); err != nil {
			return fmt.Errorf("leftover: %w", err)
		}
	}
	return r.fib.next.clear()
}
