// Package announce announces Service VIPs from one node. Its input is events about Services, EndpointSlices, nodes and
// pools. Its output is changes of BGP routes ([Routes]) and a list of the addresses that this node may hold on a flat
// layer 2 ([Announcer.Flat]).
//
// The call that brings an event returns after the announcer has acted on it. The cost
// depends on the change, not on the number of Services. Only a change of this node or of
// the configuration may touch every address, a change of a pool only its own addresses.
//
// Before [Announcer.Synced] nothing is announced or withdrawn: objects that are not known
// yet do not count as missing. While the API is away there are no events and no changes.
//
// An address that fails, for instance because it has no endpoints, is withdrawn at once. A planned withdrawal first
// marks the route with GRACEFUL_SHUTDOWN (RFC 8326) for half a second.
package announce

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// Routes announces and withdraws routes. [bgp.Server] implements it.
type Routes interface {
	Announce(...bgp.Route) error
	Withdraw(...netip.Prefix) error
}

// Config is the configuration from the node's own file. Node is required.
type Config struct {
	// Node is this node's name in Kubernetes. [Announcer.Apply] does not change it.
	Node string
	// Scope selects Herald's Services and the annotations that count. [Announcer.Apply] does not change it.
	Scope service.Scope
	// RequireEndpoints is where a Service with the traffic policy Cluster must have an
	// endpoint, so that its addresses are announced.
	RequireEndpoints service.Rule
	// Fitness is the rules that exclude nodes from announcing.
	Fitness service.Fitness
	// Attributes are the node's path attributes; the pool's take precedence.
	Attributes v1alpha1.Attributes
	// Peers maps the names that pools use to the names in package bgp ([v1alpha1.Peer.Name]) of this node's peers.
	// Pools use the name of a BGPPeer, the address or interface of a peer in the file, or `default-ipv4`, which may
	// stand for several peers. The bgp server must know them already.
	Peers map[string][]string
	// Only maps peers (names in package bgp) to the family that their session carries, if it carries a single one.
	Only map[string]pool.Family
	// Reserved are the addresses of the VIPs in the node's own file, which the announcer never touches. Reserve a new
	// address before package speaker gets it, and keep a removed one reserved until the speaker has withdrawn it.
	Reserved []netip.Addr
}

// Options connect an announcer to its surroundings.
type Options struct {
	Log    *slog.Logger
	Routes Routes
	// FlatChanged, if not nil, is called after an event that changed the result of [Announcer.Flat]. No lock is held.
	FlatChanged func()
}

// Announcer announces the Services of a cluster from this node. Its methods are safe for concurrent use; handlers of
// informers may call them directly. It keeps nodes and the specifications of pools, so callers must not change these
// afterwards. It copies the fields that it needs of other objects. It ignores invalid objects.
type Announcer struct {
	log         *slog.Logger
	routes      Routes
	flatChanged func()
	wake        chan struct{}

	mu       sync.Mutex
	config   Config
	peers    []string     // all peers of this node, sorted
	reserved []netip.Addr // sorted
	synced   bool
	drain    gracefulshutdown.Drain

	nodes     map[string]*corev1.Node
	pools     map[string]*addressPool
	byAge     []*addressPool // the pools, oldest first
	services  map[string]*backing
	owners    map[string]string // key of a slice to key of its Service
	addresses *btree.BTreeG[*address]
	live      map[netip.Prefix]*route

	// Work of the present event; empty between events.
	affected []*address
	touched  []*route
	moves    []move // not logged yet
	moved    bool   // Flat has changed

	changes uint64 // counts evaluations of addresses and routes

	deadlines []deadline          // in order
	failing   map[*route]struct{} // refused by the router
	retry     time.Time           // when failing routes are retried
	armed     time.Time           // when Run wakes up
}

// New returns an announcer without objects. [Announcer.Run] must run, so that planned
// changes complete and failures are retried.
func New(options Options, config Config) *Announcer {
	a := &Announcer{
		log:         options.Log,
		routes:      options.Routes,
		flatChanged: options.FlatChanged,
		wake:        make(chan struct{}, 1),
		nodes:       make(map[string]*corev1.Node),
		pools:       make(map[string]*addressPool),
		services:    make(map[string]*backing),
		owners:      make(map[string]string),
		addresses:   btree.NewG(32, func(x, y *address) bool { return x.addr.Less(y.addr) }),
		live:        make(map[netip.Prefix]*route),
		failing:     make(map[*route]struct{}),
	}
	a.configure(config)
	return a
}

// Apply makes config the running configuration, except for Node and Scope.
func (a *Announcer) Apply(config Config) {
	a.event(func() {
		config.Node, config.Scope = a.config.Node, a.config.Scope
		a.configure(config)
		a.evaluateAll()
	})
}

func (a *Announcer) configure(config Config) {
	a.config = config
	a.peers = slices.Concat(slices.Collect(maps.Values(config.Peers))...)
	slices.Sort(a.peers)
	a.peers = slices.Compact(a.peers)
	a.reserved = nil
	for _, addr := range config.Reserved {
		a.reserved = append(a.reserved, addr.Unmap())
	}
	slices.SortFunc(a.reserved, netip.Addr.Compare)
}

// Synced marks the objects of the API as complete. The announcer then announces all addresses at once.
func (a *Announcer) Synced() {
	a.event(func() {
		if !a.synced {
			a.synced = true
			a.evaluateAll()
		}
	})
}

// Run completes planned changes and retries failed routes until ctx is done. It does
// not withdraw routes at its end; see [Announcer.Drain].
func (a *Announcer) Run(ctx context.Context) {
	wake.Loop(ctx, a.wake, func() time.Time {
		a.event(a.expireDeadlines)
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.armed
	})
}

// event applies a change of the known objects and acts on it before it returns.
func (a *Announcer) event(change func()) {
	a.mu.Lock()
	change()
	a.flush()
	moves, moved := a.moves, a.moved
	a.moves, a.moved = nil, false
	if next := a.next(); !next.Equal(a.armed) {
		a.armed = next
		wake.Up(a.wake)
	}
	a.mu.Unlock()
	a.logMoves(moves) // without the lock: a slow log must not delay a withdrawal
	if moved && a.flatChanged != nil {
		a.flatChanged()
	}
}

// move is a change for the log.
type move struct {
	stage   gracefulshutdown.Stage
	service string
	origin  service.Origin
	addr    netip.Addr
	reason  string

	err       error // of a pool, or of the first refused route
	pool      string
	route     netip.Prefix
	recovered bool // the router accepts all routes again
}

// logMoves logs each move in its own line, or their counts if there are many.
func (a *Announcer) logMoves(moves []move) {
	const many = 10
	counts := make(map[gracefulshutdown.Stage]int)
	for _, m := range moves {
		switch {
		case m.pool != "":
			a.log.Error("pool is invalid; its last valid version stays in use", "pool", m.pool, "err", m.err)
		case m.err != nil:
			a.log.Error("router refuses routes of Services; retrying", "every", retryAfter, "first", m.route, "err", m.err)
		case m.recovered:
			a.log.Info("router accepts all routes of Services again")
		case len(moves) > many:
			counts[m.stage]++
		default:
			attrs := append([]any{"service", m.service, "address", m.addr}, m.origin.Attrs()...)
			if m.reason != "" {
				attrs = append(attrs, "reason", m.reason)
			}
			a.log.Info("service "+string(m.stage), attrs...)
		}
	}
	for _, stage := range []gracefulshutdown.Stage{gracefulshutdown.Withdrawn, gracefulshutdown.Announced, gracefulshutdown.Draining} {
		if n := counts[stage]; n > 0 {
			a.log.Info("services "+string(stage), "addresses", n)
		}
	}
}
