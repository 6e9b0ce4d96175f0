package bgp

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp/bfd"
)

// batch limits the routes that are announced or withdrawn in one call. Services may have ten thousand at
// once, which take GoBGP seconds, and an urgent withdrawal waits for at most two batches.
const batch = 64

// Announce advertises routes to every peer that carries their family, including sessions that come up later. A route
// that is announced again replaces the earlier one without a withdrawal. After an error some routes may be announced.
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
		marks, err := s.numbers.marks(r)
		if err != nil {
			return fmt.Errorf("announce: %w", err)
		}
		path, err := encodePath(s.config.ASN, r, marks)
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

// Withdraw withdraws the routes to prefixes and ignores prefixes that are not announced. After an error some may
// be withdrawn.
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
		path, err := encodePath(s.config.ASN, r, nil) // marks do not identify a route
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

// Peers returns the sessions of all peers, sorted by name, without their advertised routes.
func (s *Server) Peers() []Session {
	return s.sessions(func(*peer) []netip.Prefix { return nil })
}

func (s *Server) sessions(advertised func(*peer) []netip.Prefix) []Session {
	paths := s.bfd.Statuses()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Session, 0, len(s.peers))
	for _, name := range slices.Sorted(maps.Keys(s.peers)) {
		p := s.peers[name]
		session := p.session(paths[p.addr])
		session.Advertised = advertised(p)
		session.Routes = len(session.Advertised)
		out = append(out, session)
	}
	return out
}

// Sessions returns the sessions of all peers, sorted by name, with their advertised routes.
func (s *Server) Sessions() []Session {
	out := s.sessions(s.advertised)
	for _, session := range out {
		slices.SortFunc(session.Advertised, netip.Prefix.Compare)
	}
	return out
}

// advertised returns the routes that the export policy sends to p, in no order. (GoBGP computes them in the same
// way, but from all its routes, and blocks meanwhile.)
func (s *Server) advertised(p *peer) []netip.Prefix {
	if p.state != Established {
		return nil
	}
	n, name := p.receiver(), p.Name()
	var out []netip.Prefix
	for prefix, r := range s.routes {
		carried := p.Carries(v1alpha1.IPv4) && p.offers.ipv4 && !n.hold4
		if prefix.Addr().Is6() {
			carried = p.Carries(v1alpha1.IPv6) && p.offers.ipv6 && !n.hold6
		}
		if carried && (r.Peers == nil || slices.Contains(r.Peers, name) || slices.Contains(r.DrainingPeers, name)) {
			out = append(out, prefix)
		}
	}
	return out
}

// Marks on a route tell the export policy which peers get it. They are large communities of a reserved
// AS number (RFC 7300): no configuration can set them, and the policy removes them before sending. So
// a change of the peers advertised to changes only the route, and a change of the peers only the policy.
const (
	markASN      = v1alpha1.ReservedGlobal
	markFor      = 1 // sent to the peer
	markDraining = 2 // sent to the peer as draining
	everyPeer    = 0 // numbers of peers start at 1
)

// anyMark is a regular expression that matches all marks.
var anyMark = fmt.Sprintf("^%d:", uint32(markASN))

// numbers assigns a number to each peer name that was ever configured.
type numbers map[string]uint32

// learn returns the number of a name, and assigns one to a new name.
func (n numbers) learn(name string) uint32 {
	if _, ok := n[name]; !ok {
		n[name] = uint32(len(n)) + 1
	}
	return n[name]
}

// marks returns the marks of a route. It fails if a peer is unknown.
func (n numbers) marks(r Route) ([]v1alpha1.LargeCommunity, error) {
	var out []v1alpha1.LargeCommunity
	if r.Peers == nil {
		out = append(out, mark(markFor, everyPeer))
	}
	for _, list := range []struct {
		kind  uint32
		names []string
	}{{markFor, r.Peers}, {markFor, r.DrainingPeers}, {markDraining, r.DrainingPeers}} {
		for _, name := range list.names {
			number, ok := n[name]
			if !ok {
				return nil, fmt.Errorf("there is no peer %s", name)
			}
			out = append(out, mark(list.kind, number))
		}
	}
	return out, nil
}

func mark(kind, peer uint32) v1alpha1.LargeCommunity {
	return v1alpha1.LargeCommunity{Global: markASN, Local1: kind, Local2: peer}
}

// patience limits the wait of a new session's routes for BFD. BFD comes up in three
// packets, each within a second of the previous one (RFC 5880 section 6.8.3), and one of them may be lost.
const patience = 5 * time.Second

// wait is the wait of a session's routes for BFD.
type wait struct {
	until time.Time // zero without a wait
	// vain reports that the last wait expired and BFD has not been up since: the
	// peer may not speak BFD, so the next session does not wait.
	vain bool
}

func (w *wait) on() bool { return !w.until.IsZero() }

// begin starts a wait if the new session has a BFD session, with the given status, that is not up.
func (w *wait) begin(path *bfd.Status, now time.Time) {
	w.until = time.Time{}
	if path != nil && path.State != bfd.Up && !w.vain {
		w.until = now.Add(patience)
	}
}

// expire ends the wait if it would exceed its limit before the next tick, and reports whether it did.
func (w *wait) expire(now time.Time) bool {
	if !w.on() || now.Add(tick).Before(w.until) {
		return false
	}
	*w = wait{vain: true}
	return true
}

// watchPaths configures BFD sessions for the peers with BFD in the states OpenConfirm and Established. BGP
// comes first (RFC 5882 section 4.4). A router may recreate its BFD session once the BGP session shows the
// addresses, and FRR treats the loss of the old one as a failure. OpenConfirm is early enough to
// receive the first packet of the new session; the next one comes a second later.
func (s *Server) watchPaths() {
	if s.closing {
		return
	}
	var list []bfd.Config
	for _, p := range s.peers {
		if p.BFD == nil || p.state != OpenConfirm && p.state != Established {
			continue
		}
		c := bfd.Config{Peer: p.addr, Local: p.LocalAddress, Interval: p.BFD.Interval.Duration, Multiplier: p.BFD.Multiplier}
		if p.BFD.Multihop != nil && *p.BFD.Multihop {
			if c.Multihop, c.MinTTL = true, leastTTL(p.Peer); !c.Local.IsValid() {
				c.Local = p.local
			}
			if uint32(p.ASN) == ownASN(p.Peer, s.config.ASN) && p.TTLSecurity == 0 {
				c.MinTTL = 1 // iBGP may be any number of hops long
			}
			if !c.Local.IsValid() {
				continue // known when the session is up
			}
		}
		p.pathTrouble = ""
		if err := c.Validate(); err != nil {
			p.pathTrouble = err.Error() // other peers keep their sessions
			continue
		}
		list = append(list, c)
	}
	if err := s.bfd.Apply(list); err != nil {
		s.log.Error("cannot watch paths", "err", err)
	}
}

// endWait sends the routes that have waited for BFD for too long.
func (s *Server) endWait(p *peer, now time.Time) {
	if p.wait.expire(now) {
		s.log.Warn("routes are sent without BFD", "peer", p.Name(), "reason", p.path(s.bfd.Statuses()[p.addr]).Reason)
		s.export()
	}
}

// pathChanged ends the session of a peer with a failed path, without waiting for its hold timer (RFC 5882
// section 4.3), and starts a new one. If the peer only shut its BFD session down, the BGP session stays. When the
// path comes up, the waiting routes are sent.
func (s *Server) pathChanged(st bfd.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(st.Peer)
	if s.closing || p == nil || p.BFD == nil || p.state != OpenConfirm && p.state != Established {
		return
	}
	switch {
	case st.Failed:
		p.pathDowns++
		s.lose(p, "BFD: "+st.Reason)
		s.watchPaths()
	case st.State == bfd.Up:
		p.wait = wait{}
		s.export()
	}
}
