// Package speaker announces and withdraws VIPs. Health, lease, drain and configuration are the input of one pure
// decision per address ([decide]). A thin loop applies its result to the kernel and the network. It binds an address
// before it announces the route, and in a planned change withdraws the route before it removes the address. When health
// fails it withdraws both at once. flat.go has the differences on a flat layer 2, where one node at a time answers.
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

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/route"
)

// Routes announces routes to peers; [bgp.Server] implements it.
type Routes interface {
	Announce(...bgp.Route) error
	Withdraw(...netip.Prefix) error
}

// Kernel keeps routes in its tables as long as the speaker calls Announce; [route.Keeper] implements it.
type Kernel interface {
	Binder
	Announce(...route.Route) error
	Withdraw(...netip.Prefix) error
}

// Binder binds addresses to links.
type Binder interface {
	Bind(link string, addr netip.Addr) error
	// Unbind removes many addresses in one call, since a failing node may have a
	// thousand. On error the speaker tries each one alone.
	Unbind(link string, addrs ...netip.Addr) error
	// Try returns the error that Bind would return now or, for a bound address, why it is missing.
	Try(link string, addr netip.Addr) error
}

// Addresses puts addresses on links; [address.Binder] implements it.
type Addresses interface {
	Binder
	// BindFor is Bind with a lifetime in the kernel that outlasts this process.
	BindFor(link string, addr netip.Addr, lifetime time.Duration) error
}

// VIP is one virtual IP as configured.
type VIP struct {
	Name      string
	Addresses []netip.Addr
	// Service marks the address of a Service; other VIPs come from the file.
	Service bool
	// Interface is the link that carries the addresses.
	Interface string
	// Checks names the checks that must pass.
	Checks []string
	// Linger is how long addresses stay bound after a planned withdrawal.
	Linger time.Duration
	// HoldDown limits the delay before an address with flapping checks returns: 1 s after the second failure, then 2 s,
	// 4 s and so on. It never delays a withdrawal. Zero turns it off; the maximum is one hour.
	HoldDown time.Duration
	// OnFailure is the action when a check of an announced address fails.
	OnFailure OnFailure
	// Keep makes an announced address that fails slowly ([health.Verdict]) the last resort while no other node is
	// known to serve the VIP. Its route is demoted as with [Demote], or its candidacy stays.
	Keep bool
	// Bridge forwards new connections that still arrive after a withdrawal to nodes that serve
	// the VIP, if the speaker has a [Bridge].
	Bridge bool
	// Flat makes one node at a time, the holder of a PaxosLease, answer for the VIP. If it is
	// nil, every healthy node announces the VIP, by BGP or in a kernel table.
	Flat *Flat
	// Table is the kernel table of the VIP's routes, for another routing daemon on the node; nil means BGP.
	Table *Table
	// Prefixes replace the host routes of the addresses that they contain.
	Prefixes []netip.Prefix
	// All announces a prefix only while all its addresses serve, of other VIPs too. Otherwise one suffices.
	All bool
	// Attributes are the path attributes of the VIP's routes.
	Attributes v1alpha1.Attributes
	// Peers names the peers to announce to ([v1alpha1.Peer.Name]); nil means all.
	Peers []string
}

// Table is a kernel routing table and the metric of routes in it, as in [route.Route].
type Table struct{ Number, Metric int }

// OnFailure is the action when a check of an announced address fails.
type OnFailure int

const (
	// Withdraw withdraws route and address at once. If no node serves the VIP,
	// connections fail fast or go to another site.
	Withdraw OnFailure = iota
	// Demote keeps the address and demotes its route with GRACEFUL_SHUTDOWN (RFC 8326), the worst MED and the worst
	// local preference. Routers use this node only when all others have failed. It helps if the checks are stricter
	// than the clients, or if one cause fails them on every node, such as a slow etcd. It has a price. Routers that
	// ignore the marks go on sending traffic here. The node's own clients still reach their failed server, since the
	// address stays. A dead server is demoted like a slow one. Nothing is announced before the checks have passed once.
	Demote
)

// kind returns the VIP's name in the log.
func (v VIP) kind() string {
	if v.Service {
		return "service address"
	}
	return "vip"
}

// retryAfter is the interval of retries after an error of the kernel or a router.
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
	changed   atomic.Bool   // the VIPs of other members may have changed

	mu          sync.Mutex
	verdicts    map[string]health.Verdict
	order       []*unit                                      // configured units first, in the order of the file
	peers       []string                                     // names of all peers
	told        map[netip.Prefix]gracefulshutdown.Advertised // of announced prefixes; no peers if in a table
	candidacies map[string]lease.Candidacy                   // by lease
	serves      map[string]bool                              // last advertised to the other members
	lapsed      map[string]bool                              // leases lost while announced
	backoffs    map[string]backoff
	unfiltered  error // why the fence does not filter all addresses
	unable      error // result of the last try; see inability
	tried       time.Time
	drain       gracefulshutdown.Drain
	deadline    time.Time // of a drain that waits for connections
	connections connections
	again       time.Time // when time alone changes a decision; zero means never
}

// binding is one address on one link, the unit of every decision.
type binding = address.Binding

// unit is the state of one address.
type unit struct {
	binding
	vip        VIP
	gone       bool // no longer configured; dropped after its withdrawal
	at         position
	damp       damping
	bound      presence
	served     bool // bound at some time since it was last removed
	fence      fencing
	lease      time.Time // end of the leases if this node holds all
	leases     []string  // last held together: under them it answers
	partial    time.Time // since when this node holds some of its addresses' leases only; zero: it does not
	claims     bool      // fit to hold the lease
	lastResort bool      // announced although its checks fail
	other      time.Time // since when another member serves it, while lastResort
	reason     string
	err        error     // error that blocks the decided stage
	blocked    time.Time // since when; zero if nothing blocks it
	lost       time.Time // since when a bound address is missing on its link
	bridging   bridging
	logged     string // last error logged
	unlogged   bool   // its announcement is logged once no error blocks it
	last       *Withdrawal
}

// presence states whether an address is on its link.
type presence int

const (
	perhaps presence = iota // an earlier process may have left it
	absent
	present
)

// New returns a speaker without VIPs. Planned changes and retries need [Speaker.Run]. flat may be
// empty if no VIP is flat, bridge may be nil, and members may be nil if no VIP has Keep.
func New(log *slog.Logger, routes Routes, kernel Kernel, addresses Addresses, flat FlatParts, bridge Bridge, members Members) *Speaker {
	return &Speaker{
		log: log, routes: routes, kernel: kernel, addresses: addresses, flat: flat, bridge: bridge, members: members,
		wake: make(chan struct{}, 1), count: make(chan struct{}, 1),
		verdicts:    make(map[string]health.Verdict),
		told:        make(map[netip.Prefix]gracefulshutdown.Advertised),
		candidacies: make(map[string]lease.Candidacy),
		lapsed:      make(map[string]bool),
		backoffs:    make(map[string]backoff),
	}
}

// Run advances planned changes and retries failed calls until ctx is done. It withdraws nothing at
// its end: call [Speaker.Drain] for that.
func (s *Speaker) Run(ctx context.Context) {
	if s.bridge != nil {
		var counting sync.WaitGroup
		defer counting.Wait()
		counting.Go(func() { s.countConnections(ctx) })
	}
	wake.Loop(ctx, s.wake, func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.changed.Swap(false) || wake.Due(time.Now(), s.again) {
			s.reconcile()
		}
		return s.again
	})
}

// Apply sets the VIPs to announce, the names of all peers, and the watched checks with their latest
// verdicts. Unchanged VIPs are not touched; removed VIPs drain. After a change of its Peers, a VIP is
// announced to the new peers at once and withdrawn from the others after the notice of a drain.
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
				u.bound = perhaps // binding it again tells the kernel the new lifetime
			}
			u.vip, u.gone, u.lastResort = vip, false, u.lastResort && vip.Keep
		}
	}
	byAddr := func(a, b *unit) int { return cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.Interface, b.Interface)) }
	for _, u := range slices.SortedFunc(maps.Values(known), byAddr) {
		if u.gone {
			order = append(order, u)
		}
	}
	s.order = order
	s.filterAddresses()
	s.reconcile()
}

// takeVerdicts replaces the verdicts by checks, but keeps newer ones from Observe. It forgets checks that are no longer
// watched: an old verdict must not announce a VIP when a check of the same name returns.
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

// Observe records a check's verdict and acts on it before it returns.
func (s *Speaker) Observe(v health.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts[v.Name] = v
	s.reconcile()
}

// MembersChanged reports that the VIPs of other members may have changed. It never waits: [Speaker.Run] acts on it.
func (s *Speaker) MembersChanged() {
	s.changed.Store(true)
	wake.Up(s.wake)
}

// LeasesChanged reports granted, renewed or lost leases and acts on them before it returns.
func (s *Speaker) LeasesChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconcile()
}

// FenceClosed reports that the fence may have closed by itself, for example after it was removed
// and recreated. FenceClosed opens it again before it returns. An address that cannot be opened may
// still be open: the speaker closes it before it steps down.
func (s *Speaker) FenceClosed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.order {
		if u.fence.open() {
			u.fence.state = unconfirmed
		} else {
			u.fence.state = closed
		}
	}
	s.reconcile()
}

// Drain starts a planned withdrawal of every VIP. wait returns when all routes are withdrawn and all addresses removed.
// Until the deadline, an address lingers while clients have connections to it that other members forward to this node.
// Each call of Drain sets the deadline again. The VIPs stay withdrawn until [Speaker.Undrain], which makes a pending
// wait return an error. reason is a text for people.
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

// Undrain ends a drain: healthy VIPs are announced again. It does nothing after [Speaker.Stop].
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

// Stop withdraws everything at once, without the notice of a drain. The speaker announces nothing afterwards.
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
