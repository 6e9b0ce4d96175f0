package bgp

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/apiutil"

	"github.com/herald-vip/herald/api/v1alpha1"
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
