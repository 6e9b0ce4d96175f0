package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/server"

	"github.com/herald-vip/herald/bfd"
)

// ErrRestart is wrapped by [Server.Apply] when a change needs a new process:
// GoBGP cannot be stopped and started again within one.
var ErrRestart = errors.New("restart herald to apply it")

// ErrClosed is the error of [Server.Apply] after [Server.Close].
var ErrClosed = errors.New("bgp: closed")

// Server is the embedded BGP speaker. Its methods are safe for concurrent use.
type Server struct {
	log     *slog.Logger
	options Options
	gobgp   *gobgp.BgpServer
	bfd     *bfd.Server
	told    *reasons
	// accepted is where GoBGP finds connections from peers; nil if there is no such place.
	accepted *chan net.Conn

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	events chan event

	mu      sync.Mutex
	started bool
	closing bool
	config  Config
	peers   map[string]*peer
	numbers numbers
	// exported is how many peers the export policy speaks of.
	exported int
	routes   map[netip.Prefix]Route
}

// Options connect a server to its surroundings; the zero value does without.
type Options struct {
	// MaxRoutes is how many routes a peer may send before its session is ended
	// for a minute. None is used, but GoBGP keeps them all in memory, and a
	// speaker that runs out of it takes its VIPs along. Default: 10,000.
	MaxRoutes uint32
	// NextHop6 finds a global IPv6 address on the link that carries local. It
	// becomes the next hop of IPv6 routes on a session over IPv4.
	NextHop6 func(local netip.Addr) (netip.Addr, error)
}

// New returns a server with no peers and no routes. [Server.Close] must be
// called to end it.
func New(log *slog.Logger, options Options) *Server {
	options.MaxRoutes = cmp.Or(options.MaxRoutes, defaultMaxRoutes)
	ctx, cancel := context.WithCancel(context.Background())
	told := newReasons()
	s := &Server{
		log:     log,
		options: options,
		gobgp:   gobgp.NewBgpServer(gobgp.LoggerOption(slog.New(told.handler(log.Handler())), nil)),
		told:    told,
		ctx:     ctx,
		cancel:  cancel,
		events:  make(chan event),
		peers:   make(map[string]*peer),
		numbers: make(numbers),
		routes:  make(map[netip.Prefix]Route),
	}
	s.bfd = bfd.NewServer(log, s.pathChanged)
	if s.accepted = acceptedBy(s.gobgp); s.accepted != nil {
		*s.accepted = make(chan net.Conn, 1) // until there is a listener, which makes its own
	}
	s.wg.Go(s.gobgp.Serve)
	// Answered when GoBGP serves: told to stop before that, it never would.
	_, _ = s.gobgp.GetBgp(ctx, &api.GetBgpRequest{})
	s.wg.Go(s.run)
	return s
}

// Apply makes c the running configuration. Only what differs is touched:
// sessions of unchanged peers stay up, and a change of attributes alone
// re-sends routes without taking a session down. A peer that cannot be reached
// is not an error; its [Session] says why. After [Server.Close] it is [ErrClosed].
func (s *Server) Apply(ctx context.Context, c Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrClosed
	}
	if !s.started {
		if err := s.start(ctx, c); err != nil {
			return err
		}
	} else if field := fixedFieldChanged(s.config, c); field != "" {
		return fmt.Errorf("bgp: %s cannot change while running: %w", field, ErrRestart)
	}
	retryChanged := s.started && s.config.ConnectRetry != c.ConnectRetry
	s.config = c
	s.started = true

	want := make(map[string]Peer, len(c.Peers))
	for _, p := range c.Peers {
		want[p.Name()] = p
	}
	for name, p := range s.peers {
		if _, ok := want[name]; !ok {
			s.remove(p)
			delete(s.peers, name)
			s.log.Info("peer removed", "peer", name)
		}
	}
	for name, conf := range want {
		p, ok := s.peers[name]
		switch {
		case !ok:
			s.numbers.learn(name)
			p = newPeer(conf, s.numbers[name])
			s.peers[name] = p
			if conf.Interface != "" {
				s.discover(p)
			}
		case retryChanged || sessionChanged(p.Peer, conf):
			s.drop(p)
			p.Peer = conf
		default:
			p.Peer = conf
		}
	}
	s.export()
	for _, p := range s.peers {
		s.add(p)
	}
	s.watchPaths()
	return nil
}

// start brings GoBGP up: import nothing, export what [encodePolicies] says.
func (s *Server) start(ctx context.Context, c Config) error {
	if err := s.gobgp.StartBgp(ctx, &api.StartBgpRequest{Global: encodeGlobal(c)}); err != nil {
		return fmt.Errorf("bgp: start: %w", err)
	}
	if err := s.gobgp.SetPolicies(ctx, encodePolicies(c.ASN, nil)); err != nil {
		return fmt.Errorf("bgp: set policies: %w", err)
	}
	for _, a := range encodeAssignments() {
		if err := s.gobgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: a}); err != nil {
			return fmt.Errorf("bgp: assign policies: %w", err)
		}
	}
	return s.watch()
}

// fixedFieldChanged names the first field that differs and that GoBGP takes at start only.
func fixedFieldChanged(old, new Config) string {
	switch {
	case old.ASN != new.ASN:
		return "asn"
	case old.RouterID != new.RouterID:
		return "routerID"
	case old.ListenPort != new.ListenPort || !slices.Equal(old.ListenAddresses, new.ListenAddresses):
		return "listen"
	}
	return ""
}

// sessionChanged says whether the session itself must be made anew.
func sessionChanged(old, new Peer) bool {
	old.Attributes, new.Attributes = Attributes{}, Attributes{}
	old.NextHop4, new.NextHop4 = netip.Addr{}, netip.Addr{}
	old.NextHop6, new.NextHop6 = netip.Addr{}, netip.Addr{}
	old.BFD, new.BFD = nil, nil
	return !reflect.DeepEqual(old, new)
}

// batch is how many routes at most are announced or withdrawn in one go. Services may
// have ten thousand at once, which take GoBGP seconds, and a withdrawal that is urgent
// waits for a batch or two.
const batch = 64

// Announce advertises routes to every peer that carries their family, those
// that come up later included. A route announced again replaces the earlier
// one without a withdrawal in between. After an error some may be announced.
func (s *Server) Announce(routes ...Route) error { return inBatches(routes, s.announce) }

func inBatches[T any](all []T, do func([]T) error) error {
	for some := range slices.Chunk(all, batch) {
		if err := do(some); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) announce(routes []Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var add apiutil.AddPathRequest
	var changed []Route
	for _, r := range routes {
		if old, ok := s.routes[r.Prefix]; ok && reflect.DeepEqual(old, r) {
			continue
		}
		path, err := s.encode(r)
		if err != nil {
			return fmt.Errorf("announce: %w", err)
		}
		add.Paths = append(add.Paths, path)
		changed = append(changed, r)
	}
	if len(add.Paths) == 0 {
		return nil
	}
	if _, err := s.gobgp.AddPath(add); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	for _, r := range changed {
		s.routes[r.Prefix] = r
	}
	return nil
}

// Withdraw takes back the routes to prefixes; one that is not announced is passed over.
// After an error some may be withdrawn.
func (s *Server) Withdraw(prefixes ...netip.Prefix) error { return inBatches(prefixes, s.withdraw) }

func (s *Server) withdraw(prefixes []netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var del apiutil.DeletePathRequest
	for _, prefix := range prefixes {
		r, ok := s.routes[prefix]
		if !ok {
			continue
		}
		path, err := encodePath(s.config.ASN, r, nil) // marks or not, it is the same route
		if err != nil {
			return fmt.Errorf("withdraw: %w", err)
		}
		del.Paths = append(del.Paths, path)
	}
	if len(del.Paths) == 0 {
		return nil
	}
	if err := s.gobgp.DeletePath(del); err != nil {
		return fmt.Errorf("withdraw: %w", err)
	}
	for _, prefix := range prefixes {
		delete(s.routes, prefix)
	}
	return nil
}

func (s *Server) encode(r Route) (*apiutil.Path, error) {
	marks, err := s.numbers.marks(r)
	if err != nil {
		return nil, err
	}
	return encodePath(s.config.ASN, r, marks)
}

// Sessions is every peer as it stands, sorted by name.
func (s *Server) Sessions() []Session {
	paths := make(map[netip.Addr]*bfd.Status)
	for _, path := range s.bfd.Statuses() {
		paths[path.Peer] = &path
	}
	s.mu.Lock()
	out := make([]Session, 0, len(s.peers))
	for _, name := range slices.Sorted(maps.Keys(s.peers)) {
		p := s.peers[name]
		session := p.session(paths[p.addr])
		session.Advertised = s.advertised(p)
		out = append(out, session)
	}
	s.mu.Unlock()
	for _, session := range out {
		slices.SortFunc(session.Advertised, netip.Prefix.Compare)
	}
	return out
}

// advertised are the routes that the export policy lets p have, in no order. (GoBGP
// would find that out in the same way, with all its routes, while it does nothing else.)
func (s *Server) advertised(p *peer) []netip.Prefix {
	if p.state != Established {
		return nil
	}
	n, name := p.neighbour(), p.Name()
	var out []netip.Prefix
	for prefix, r := range s.routes {
		carried := p.IPv4 && !n.hold4
		if prefix.Addr().Is6() {
			carried = p.IPv6 && !n.hold6
		}
		if carried && r.isFor(name) {
			out = append(out, prefix)
		}
	}
	return out
}

// Close shuts every session down with the reason message (RFC 9003), which
// withdraws all routes, and ends the server. It returns when all of its
// goroutines have, or with ctx's error when the peers' sessions did not end in time.
func (s *Server) Close(ctx context.Context, message string) error {
	s.mu.Lock()
	s.closing = true
	closed := make(map[string]<-chan struct{})
	for name, p := range s.peers {
		if p.state != Established {
			continue
		}
		p.closed = make(chan struct{})
		closed[name] = p.closed
		// The peer may have gone meanwhile, which is what is wanted.
		_ = s.gobgp.DisablePeer(ctx, &api.DisablePeerRequest{Address: p.addr.String(), Communication: message})
	}
	s.mu.Unlock()

	var err error
	for name, done := range closed {
		select {
		case <-done:
		case <-ctx.Done():
			err = fmt.Errorf("bgp: peer %s did not close in time: %w", name, ctx.Err())
		}
	}
	// BGP goes first: a peer takes the end of BFD alone for a fault.
	if failed := s.bfd.Close(ctx); failed != nil {
		err = errors.Join(err, fmt.Errorf("bgp: close BFD: %w", failed))
	}
	s.cancel()
	s.gobgp.Stop()
	s.wg.Wait()
	return err
}

// add hands p to GoBGP if it is not there yet and its address is known.
func (s *Server) add(p *peer) {
	if p.present || !p.addr.IsValid() || time.Now().Before(p.banned) {
		return
	}
	if other := s.namesake(p); other != "" {
		p.reason = fmt.Sprintf("peer %s has the same address on another link, and GoBGP cannot tell the two apart: give the routers' links addresses of their own", other)
		return
	}
	if err := s.gobgp.AddPeer(s.ctx, &api.AddPeerRequest{Peer: encodePeer(s.config, p.Peer, p.addr)}); err != nil {
		p.reason = err.Error() // tried again every second
		return
	}
	p.present = true
	p.state = Idle
	p.added = time.Now()
}

// namesake is the name of another peer that GoBGP has and that differs from p in
// its address's zone alone, of which GoBGP's policies know nothing.
func (s *Server) namesake(p *peer) string {
	for name, other := range s.peers {
		if other != p && other.present && other.addr.WithZone("") == p.addr.WithZone("") {
			return name
		}
	}
	return ""
}

// drop takes p away from GoBGP, which ends its session.
func (s *Server) drop(p *peer) {
	if !p.present {
		return
	}
	if p.state == Established {
		// Counted here: GoBGP sends no event for a peer that is deleted.
		p.down("reconfigured")
	}
	if err := s.gobgp.DeletePeer(s.ctx, &api.DeletePeerRequest{Address: p.addr.String()}); err != nil {
		s.log.Debug("delete peer", "peer", p.Name(), "err", err)
	}
	p.present = false
	p.state = Idle
	p.epoch++
}

// remove drops p for good.
func (s *Server) remove(p *peer) {
	s.drop(p)
	if p.stopDiscovery != nil {
		p.stopDiscovery()
	}
}

// export brings GoBGP's policy in line with the peers and re-sends the routes
// of those whose attributes changed.
func (s *Server) export() {
	var all []neighbour
	var resend []*peer
	for _, name := range slices.Sorted(maps.Keys(s.peers)) {
		p := s.peers[name]
		if !p.addr.IsValid() {
			continue
		}
		n := p.neighbour()
		all = append(all, n)
		if !reflect.DeepEqual(n, p.exported) {
			resend = append(resend, p)
		}
	}
	if len(resend) == 0 && len(all) == s.exported {
		return
	}
	if err := s.gobgp.SetPolicies(s.ctx, encodePolicies(s.config.ASN, all)); err != nil {
		s.log.Error("set policies", "err", err)
		return
	}
	s.exported = len(all)
	for _, p := range resend {
		p.exported = p.neighbour()
		if p.state != Established {
			continue
		}
		if err := s.gobgp.ResetPeer(s.ctx, &api.ResetPeerRequest{
			Address: p.addr.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT,
		}); err != nil {
			s.log.Warn("re-send routes", "peer", p.Name(), "err", err)
		}
	}
}
