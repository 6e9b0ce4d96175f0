package router

import (
	"cmp"
	"net/netip"
	"slices"
)

// Path is one neighbour's route to a prefix, as far as the decision needs it.
type Path struct {
	// Peer is the neighbour the path was learned from.
	Peer netip.Addr
	// NextHop is where to send packets; a link-local one has its interface as zone.
	NextHop netip.Addr
	// ASPath is the AS_PATH, sets flattened.
	ASPath []uint32
	// ASPathLength is its length as RFC 4271, section 9.1.2.2, counts it: a set counts as one.
	ASPathLength int
	// Origin is the ORIGIN: 0 IGP, 1 EGP, 2 incomplete.
	Origin uint8
	// MED is the MULTI_EXIT_DISC; absent counts as 0.
	MED uint32
	// LocalPref is the LOCAL_PREF; 100 if absent.
	LocalPref uint32
	// External is set if the path was learned by eBGP.
	External bool
	// GracefulShutdown is set if the path carries that community (RFC 8326).
	GracefulShutdown bool
}

// selectPaths returns the next hops that share the load to a prefix: those of
// the best path and of all paths as good as it, in the order of their
// addresses. The steps are those of RFC 4271, section 9.1.2.2, as far as they
// say something about a router without an IGP. The AS paths of the others must
// equal the best path's, or with relax only its length. If there are more than
// limit (0: no bound), the lowest addresses stay.
func selectPaths(paths []Path, relax bool, limit int) []netip.Addr {
	if len(paths) == 0 {
		return nil
	}
	// RFC 8326, section 4: a path about to go away is used only if there is no other.
	paths = best(paths, func(p Path) int64 { return truth(p.GracefulShutdown) })
	paths = best(paths, func(p Path) int64 { return -int64(p.LocalPref) })
	paths = best(paths, func(p Path) int64 { return int64(p.ASPathLength) })
	paths = best(paths, func(p Path) int64 { return int64(p.Origin) })
	// MEDs of different neighbouring ASes cannot be compared.
	byAS := make(map[uint32][]Path)
	for _, p := range paths {
		byAS[p.neighborAS()] = append(byAS[p.neighborAS()], p)
	}
	paths = paths[:0:0]
	for _, group := range byAS {
		paths = append(paths, best(group, func(p Path) int64 { return int64(p.MED) })...)
	}
	paths = best(paths, func(p Path) int64 { return truth(!p.External) })

	first := slices.MinFunc(paths, func(a, b Path) int {
		return cmp.Or(a.NextHop.Compare(b.NextHop), a.Peer.Compare(b.Peer))
	})
	var hops []netip.Addr
	for _, p := range paths {
		if relax || slices.Equal(p.ASPath, first.ASPath) {
			hops = append(hops, p.NextHop)
		}
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	hops = slices.Compact(hops)
	if limit > 0 && len(hops) > limit {
		hops = hops[:limit]
	}
	return hops
}

// best returns the paths with the lowest rank.
func best(paths []Path, rank func(Path) int64) []Path {
	var chosen []Path
	for _, p := range paths {
		switch {
		case len(chosen) == 0 || rank(p) == rank(chosen[0]):
			chosen = append(chosen, p)
		case rank(p) < rank(chosen[0]):
			chosen = append(chosen[:0], p)
		}
	}
	return chosen
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// neighborAS is the AS that the path was learned from; 0 is the own one.
func (p Path) neighborAS() uint32 {
	if len(p.ASPath) == 0 {
		return 0
	}
	return p.ASPath[0]
}

// rib holds the accepted paths of all neighbours.
type rib map[netip.Prefix]map[netip.Addr]Path

// update replaces the path of path.Peer to prefix.
func (r rib) update(prefix netip.Prefix, path Path) {
	if r[prefix] == nil {
		r[prefix] = make(map[netip.Addr]Path)
	}
	r[prefix][path.Peer] = path
}

// withdraw removes the path of peer to prefix, if there is one.
func (r rib) withdraw(prefix netip.Prefix, peer netip.Addr) {
	delete(r[prefix], peer)
	if len(r[prefix]) == 0 {
		delete(r, prefix)
	}
}

// drop removes all paths of peer and returns their prefixes.
func (r rib) drop(peer netip.Addr) []netip.Prefix {
	var dropped []netip.Prefix
	for prefix, paths := range r {
		if _, ok := paths[peer]; ok {
			dropped = append(dropped, prefix)
		}
	}
	for _, prefix := range dropped {
		r.withdraw(prefix, peer)
	}
	return dropped
}

// nextHops is what the kernel's route to prefix should be; none: no route.
func (r rib) nextHops(prefix netip.Prefix, cfg *Config) []netip.Addr {
	limit := cfg.MaximumPaths4
	if prefix.Addr().Is6() {
		limit = cfg.MaximumPaths6
	}
	paths := make([]Path, 0, len(r[prefix]))
	for _, p := range r[prefix] {
		paths = append(paths, p)
	}
	return selectPaths(paths, cfg.MultipathRelax, limit)
}

// routes maps prefixes to their next hops, sorted.
type routes map[netip.Prefix][]netip.Addr

// diff returns the prefixes whose kernel route must be replaced and removed to
// get from have to want.
func diff(have, want routes) (replace, remove []netip.Prefix) {
	for prefix, hops := range want {
		if !slices.Equal(have[prefix], hops) {
			replace = append(replace, prefix)
		}
	}
	for prefix := range have {
		if _, ok := want[prefix]; !ok {
			remove = append(remove, prefix)
		}
	}
	slices.SortFunc(replace, netip.Prefix.Compare)
	slices.SortFunc(remove, netip.Prefix.Compare)
	return replace, remove
}
