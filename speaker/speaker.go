// Package speaker leads each VIP through its life. Health, lease, drain and
// configuration go in; a pure decision per address comes out ([decide]), and a
// thin loop brings the kernel and the network in line with it: an address is
// bound before its route is announced, and on a planned change the route is
// withdrawn before the address goes. When health fails, both go at once. What
// differs on a flat layer 2, where one node at a time answers, is in flat.go.
package speaker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/route"
)

// Routes announces routes to peers; [bgp.Server] does.
type Routes interface {
	Announce(...bgp.Route) error
	Withdraw(...netip.Prefix) error
}

// Kernel keeps routes in its tables while Announce goes on being called; [route.Keeper] does.
type Kernel interface {
	Binder
	Announce(...route.Route) error
	Withdraw(...netip.Prefix) error
}

// Binder has the host answer for addresses, at links.
type Binder interface {
	Bind(link string, addr netip.Addr) error
	// Unbind takes many away at once, since a node that fails may have a
	// thousand. On error each is tried by itself.
	Unbind(link string, addrs ...netip.Addr) error
	// Try says why Bind would fail now, and of what was bound why it is not there any more.
	Try(link string, addr netip.Addr) error
}

// Addresses puts addresses on links; [address.Binder] does.
type Addresses interface {
	Binder
	// BindFor is Bind of an address that outlives this process by a lifetime of its own.
	BindFor(link string, addr netip.Addr, lifetime time.Duration) error
}

// VIP is one virtual IP as configured.
type VIP struct {
	Name      string
	Addresses []netip.Addr
	// Service says that the address is a Service's, and none of the configuration's.
	Service bool
	// Interface is the link that carries the addresses.
	Interface string
	// Checks are the names of the checks that must pass.
	Checks []string
	// Linger is how long addresses stay after a planned withdrawal.
	Linger time.Duration
	// HoldDown is the longest that the return of an address is held down whose
	// checks fail again and again: 1 s after the second failure, then 2 s, 4 s
	// and so on. Withdrawals are never delayed. 0 is off, the most an hour.
	HoldDown time.Duration
	// OnFailure is what becomes of an announced address when a check fails.
	OnFailure OnFailure
	// Keep has an announced address that fails slowly ([health.Verdict]) stay as the last resort while no other node is known
	// to serve the VIP: its route as with [Demote], or its candidacy.
	Keep bool
	// Bridge has new connections that still arrive when the VIP leaves sent on to nodes
	// that serve it, if the speaker has a [Bridge].
	Bridge bool
	// Flat makes one node at a time answer for the VIP on its link, by lease; nil
	// announces it from every healthy node, by BGP or in a table of the kernel.
	Flat *Flat
	// Table is where to announce the VIP in the kernel, for other routing daemons of the node; nil is BGP.
	Table *Table
	// Prefixes are announced in place of the addresses that they cover.
	Prefixes []netip.Prefix
	// All says that a prefix is announced while all addresses behind it are, those of other VIPs too; otherwise one is enough.
	All bool
	// Attributes are those of the VIP's routes.
	Attributes bgp.Attributes
	// Peers are the names of the peers to announce to ([bgp.Peer.Name]); nil is all.
	Peers []string
}

// Table is a table of the kernel, and the metric of routes in it, as in [route.Route].
type Table struct{ Number, Metric int }

// OnFailure is what becomes of an announced address when a check fails.
type OnFailure int

const (
	// Withdraw takes back route and address at once: a VIP that no node can
	// serve is nowhere, and connecting fails fast or goes to another site.
	Withdraw OnFailure = iota
	// Demote keeps the address and announces its route as the worst there is,
	// with GRACEFUL_SHUTDOWN (RFC 8326) and the worst MED and local
	// preference. Routers use any healthy node first, and this one only when
	// all have failed. That serves clients if the checks are stricter than
	// they are, or if what fails the checks fails them everywhere, such as a
	// slow etcd. The price: routers must honour the marks, or they go on to
	// send traffic here; and the node's own clients go on to reach their own
	// failed server, for the address never leaves them. A refused connection
	// or a dead server makes no difference. Before the checks have passed
	// for the first time nothing is announced, as ever.
	Demote
)

// kind is what the log calls it.
func (v VIP) kind() string {
	if v.Service {
		return "service address"
	}
	return "vip"
}

// retryAfter is how soon what the kernel or the router refused is tried again.
const retryAfter = time.Second

// Speaker announces VIPs. Its methods are safe for concurrent use.
type Speaker struct {
	log       *slog.Logger
	routes    Routes
	kernel    Kernel
	addresses Addresses
	flat      FlatParts
	bridge    Bridge  // nil if there is none
	members   Members // nil if there are none
	wake      chan struct{}
	count     chan struct{} // wakes countConnections
	changed   atomic.Bool   // other members may serve something else

	mu          sync.Mutex
	verdicts    map[string]health.Verdict
	order       []*unit                                    // those that are configured come first, as they are there
	peers       []string                                   // all there are
	told        map[netip.Prefix]gracefulshutdown.Audience // of what is announced; to nobody, if in a table
	stands      map[string]Flat                            // VIPs that this node is a candidate for
	serves      map[string]bool                            // what the other members were told
	lapsed      map[string]bool                            // VIPs whose lease ended while this node answered
	backoffs    map[string]backoff                         // by VIP
	unguarded   error                                      // why the fence does not know all addresses
	unable      error                                      // why this node could answer for no address when it last tried
	tried       time.Time
	drain       gracefulshutdown.Drain
	deadline    time.Time // of a drain that waits for connections to end
	connections connections
	again       time.Time // when time alone will change a decision; zero is never
}

// binding is one address on one link, the unit of every decision.
type binding = address.Binding

// unit is the state of one address.
type unit struct {
	binding
	vip      VIP
	gone     bool // no longer configured; kept until it is withdrawn
	at       position
	damp     damping
	bound    presence
	served   bool // it has been bound since it was last taken away
	fence    fencing
	lease    time.Time // when it ends, if this node holds the VIP's
	claims   bool      // fit to hold it
	kept     bool      // it is announced though it fails, as the last resort
	other    time.Time // since when another member is known to serve it, while it is kept
	reason   string
	err      error     // what stands in the way of the decided stage
	blocked  time.Time // since when; zero if nothing does
	lost     time.Time // since when the address is not on its link any more, though it was bound
	logged   string    // the obstacle last logged
	unsaid   bool      // that it is being announced is yet to be logged, once nothing is in the way
	last     *Withdrawal
	bridging bridging
}

// presence is what is known of an address on its link.
type presence int

const (
	perhaps presence = iota // a predecessor may have left it
	absent
	present
)

// New returns a speaker with no VIPs. [Speaker.Run] must run for planned
// changes to proceed and for failures to be retried. flat is for VIPs on
// a flat layer 2, and may be empty if there will be none; bridge may be nil, and so may members if no VIP has Keep.
func New(log *slog.Logger, routes Routes, kernel Kernel, addresses Addresses, flat FlatParts, bridge Bridge, members Members) *Speaker {
	return &Speaker{
		log:       log,
		routes:    routes,
		kernel:    kernel,
		addresses: addresses,
		flat:      flat,
		bridge:    bridge,
		members:   members,
		wake:      make(chan struct{}, 1),
		count:     make(chan struct{}, 1),
		verdicts:  make(map[string]health.Verdict),
		told:      make(map[netip.Prefix]gracefulshutdown.Audience),
		stands:    make(map[string]Flat),
		lapsed:    make(map[string]bool),
		backoffs:  make(map[string]backoff),
	}
}

// Run moves planned changes on and retries what failed, until ctx is done. It
// withdraws nothing at its end: that is [Speaker.Drain]'s.
func (s *Speaker) Run(ctx context.Context) {
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() { s.countConnections(ctx) })
	wake.Loop(ctx, s.wake, func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.changed.Swap(false) || wake.Due(time.Now(), s.again) {
			s.reconcile()
		}
		return s.again
	})
}

// Apply makes vips the ones to announce, peers the names of all peers there
// are, and checks the ones that are watched, with what is known of each. VIPs
// that are as before are not touched; those no longer there are drained. A VIP
// whose Peers changed is announced to the new ones at once, and leaves the
// others as a drain does.
func (s *Speaker) Apply(vips []VIP, peers []string, checks []health.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeVerdicts(checks)
	s.peers = peers
	known := make(map[binding]*unit)
	for _, u := range s.order {
		u.gone = true
		known[u.binding] = u
	}
	var order []*unit
	for _, vip := range vips {
		for _, addr := range vip.Addresses {
			b := binding{Interface: vip.Interface, Addr: addr}
			u, ok := known[b]
			if !ok {
				u = &unit{binding: b, at: position{stage: Withdrawn}}
				known[b] = u
			}
			order = append(order, u)
			if u.vip.Flat != nil && vip.Flat != nil && u.vip.Flat.Lifetime != vip.Flat.Lifetime && u.bound == present {
				u.bound = perhaps // binding it once more tells the kernel
			}
			u.vip, u.gone, u.kept = vip, false, u.kept && vip.Keep
		}
	}
	for _, u := range slices.SortedFunc(maps.Values(known), compareUnits) {
		if u.gone {
			order = append(order, u)
		}
	}
	s.order = order
	s.guardAddresses()
	s.reconcile()
}

// takeVerdicts forgets checks that are no longer watched: an old verdict must
// not announce a VIP when a check of the same name comes back. What Observe was
// told meanwhile is newer than checks, and stays.
func (s *Speaker) takeVerdicts(checks []health.Verdict) {
	verdicts := make(map[string]health.Verdict, len(checks))
	for _, v := range checks {
		if known, ok := s.verdicts[v.Name]; ok && known.Since.After(v.Since) {
			v = known
		}
		verdicts[v.Name] = v
	}
	s.verdicts = verdicts
}

func compareUnits(a, b *unit) int {
	return cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.Interface, b.Interface))
}

// Observe takes in a check's verdict and acts on it before it returns.
func (s *Speaker) Observe(v health.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts[v.Name] = v
	s.reconcile()
}

// MembersChanged says that other members may serve something else, which [Speaker.Run] acts on. It never waits.
func (s *Speaker) MembersChanged() {
	s.changed.Store(true)
	wake.Up(s.wake)
}

// LeasesChanged says that leases were granted, renewed or lost, and acts on it before it returns.
func (s *Speaker) LeasesChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconcile()
}

// FenceClosed says that the fence may have closed on its own, such as when somebody removed
// it and it was made anew. What should be open is opened again before it returns. What cannot be may be
// open still: it is closed before others may have the lease.
func (s *Speaker) FenceClosed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.order {
		if u.fence.open() {
			u.fence.state = doubtful
		} else {
			u.fence.state = closed
		}
	}
	s.reconcile()
}

// Drain starts a planned withdrawal of every VIP; wait returns when it is
// complete: routes withdrawn, addresses gone. An address lingers longer while clients have connections
// by it of which others pass packets on to this node, until the deadline; each Drain sets that anew. The VIPs stay withdrawn until
// [Speaker.Undrain], which makes a wait under way return an error. reason is
// for people.
func (s *Speaker) Drain(reason string, deadline time.Duration) (wait func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline, s.connections = time.Now().Add(deadline), connections{}
	if s.drain.Begin(reason) {
		s.log.Info("draining", "reason", reason)
	}
	s.reconcile()
	return s.drain.Wait()
}

// Undrain ends a drain: VIPs whose checks pass are announced again. After
// [Speaker.Stop] it does nothing.
func (s *Speaker) Undrain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.drain.End() {
		return
	}
	s.deadline = time.Time{}
	s.log.Info("drain ended")
	s.reconcile()
}

// Stop withdraws everything now, without the grace of a drain, and for good.
func (s *Speaker) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain.Stop()
	defer func() { s.updateCandidacies(time.Now()) }()
	now := time.Now()
	for _, u := range s.order {
		u.at = position{stage: Withdrawn, since: now}
		u.vip.Linger, u.claims = 0, false
	}
	s.applyStages()
	var errs []error
	for _, u := range s.order {
		errs = append(errs, u.err)
	}
	return errors.Join(errs...)
}
