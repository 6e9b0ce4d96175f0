// Package announce is a node's part in Service VIPs: Services, EndpointSlices,
// nodes and pools go in, one event at a time; what changes for the routers comes
// out as deltas ([Routes]), and what this node may hold on a flat layer 2 as a
// list ([Announcer.Flat]).
//
// An event is acted on before the call that brings it returns, and costs what
// changed, however many Services there are. Only a change of this node itself or
// of the configuration may touch every address, and one of a pool that pool's.
//
// Before [Announcer.Synced] nothing is announced and nothing withdrawn: what is
// not known yet is not missing. An API that is away sends no events, and so
// changes nothing.
//
// An address that fails, such as one without endpoints, is withdrawn at once. One
// that is to leave on purpose is first marked with GRACEFUL_SHUTDOWN (RFC 8326)
// for half a second.
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

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// Routes announces routes; [bgp.Server] does.
type Routes interface {
	Announce(...bgp.Route) error
	Withdraw(...netip.Prefix) error
}

// Config is what the node's own file says. Node is required.
type Config struct {
	// Node is this node's name in Kubernetes. It stays as it is.
	Node string
	// Scope is which Services are Herald's, and whose annotations count. It stays as it is.
	Scope service.Scope
	// RequireEndpoints is where Services with the traffic policy Cluster are to have an
	// endpoint for their addresses to be announced.
	RequireEndpoints service.Rule
	// Fitness is what keeps a node from announcing anything.
	Fitness service.Fitness
	// Attributes are the node's own; a pool's are laid over them.
	Attributes bgp.Attributes
	// Peers are the peers that this node has: by the names that pools use for
	// them (of a BGPPeer; the address or interface of a peer in the file, or `default-ipv4`), their
	// names in package bgp ([bgp.Peer.Name]), of default gateways there may be
	// several. The bgp server has to know them already.
	Peers map[string][]string
	// Only are the peers, by their names in package bgp, whose sessions carry the
	// routes of one family only.
	Only map[string]pool.Family
	// Reserved are the addresses of the VIPs in the node's own file, which are
	// never touched here. An address that is added is to be reserved before
	// package speaker is told of it, and one that is removed is to stay reserved
	// until the speaker has withdrawn it.
	Reserved []netip.Addr
}

// Options connect an announcer to its surroundings.
type Options struct {
	Log    *slog.Logger
	Routes Routes
	// FlatChanged is called when what [Announcer.Flat] returns has changed, after
	// the event and with no lock held; nil for nobody.
	FlatChanged func()
}

// Announcer announces the Services of a cluster from this node. Its methods are
// safe for concurrent use; those that bring events are made to be called straight
// from the handlers of informers. It keeps nodes and the specifications of pools, which
// nobody may change then; of other objects it copies what it needs. It passes over what
// makes no sense.
type Announcer struct {
	log         *slog.Logger
	routes      Routes
	flatChanged func()
	wake        chan struct{}

	mu       sync.Mutex
	config   Config
	peers    []string     // all of this node, sorted
	reserved []netip.Addr // sorted
	synced   bool
	drain    gracefulshutdown.Drain

	nodes     map[string]*corev1.Node
	pools     map[string]*addressPool
	byAge     []*addressPool // the pools, the oldest first
	services  map[string]*backing
	owners    map[string]string // by the key of a slice, that of its Service
	addresses *btree.BTreeG[*address]
	live      map[netip.Prefix]*route

	// What an event has touched so far; empty between two of them.
	affected []*address
	touched  []*route
	moves    []move // to be logged
	moved    bool   // Flat has changed

	changes uint64 // how often an address or a route was looked at

	departures []due               // in order
	failing    map[*route]struct{} // refused by the router
	retry      time.Time           // when these are tried again
	armed      time.Time           // when Run is to wake up
}

// New returns an announcer that knows nothing yet. [Announcer.Run] must run for
// planned changes to proceed and for failures to be retried.
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
		addresses:   btree.NewG(degree, func(x, y *address) bool { return x.addr.Less(y.addr) }),
		live:        make(map[netip.Prefix]*route),
		failing:     make(map[*route]struct{}),
	}
	a.configure(config)
	return a
}

// degree is that of the tree of addresses.
const degree = 32

// Apply makes config the running configuration. Node and Scope stay.
func (a *Announcer) Apply(config Config) {
	a.event(func() {
		config.Node, config.Scope = a.config.Node, a.config.Scope
		a.configure(config)
		a.appraiseAll()
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

// Synced says that everything that the API has now has been told. It begins to be
// announced, all at once.
func (a *Announcer) Synced() {
	a.event(func() {
		if a.synced {
			return
		}
		a.synced = true
		a.appraiseAll()
	})
}

// Run moves planned changes on and retries what failed, until ctx is done. It
// withdraws nothing at its end: that is [Announcer.Drain]'s.
func (a *Announcer) Run(ctx context.Context) {
	wake.Loop(ctx, a.wake, func() time.Time {
		a.event(a.elapse)
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.armed
	})
}

// event takes in a change of what is known, and has acted on it when it returns.
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
	a.say(moves) // a log that is slow, or stuck, must not hold up a withdrawal
	if moved && a.flatChanged != nil {
		a.flatChanged()
	}
}
