package daemon

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/service/report"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/page"
)

// status returns totals about Services; nil without a services section.
func (s *services) status(leftOut []peering.LeftOut, unpeered error, flat []speaker.Status, conflicts map[netip.Addr]arp.Finding) *admin.Services {
	if s == nil {
		return nil
	}
	counts := s.announcer.Counts()
	out := &admin.Services{Synced: s.synced.Load(), Counts: counts, LeftOut: leftOut, Unpeered: text(unpeered)}
	if k := s.kubernetes.Load(); k != nil {
		out.Kubernetes.Health = k.cluster.Health()
		out.Pools = pools(counts.Pools, k.informers.Pools.All())
		if k.assigner != nil {
			out.Writer = new(k.assigner.Status())
		}
	}
	if trouble := s.trouble.Load(); trouble != nil {
		out.Kubernetes.Unconnected = *trouble
	}
	out.Stands = len(flat)
	for _, a := range flat {
		if a.Stage == speaker.Announced {
			out.Held++
		}
		if a.Error != "" || conflicts[a.Address].State == arp.Taken {
			out.Obstructed++
		}
	}
	return out
}

// pools returns the pools in the API, and one for addresses in no pool, with the counts of this node's announcer.
func pools(here []announce.PoolStatus, inAPI iter.Seq[*v1alpha1.AddressPool]) []admin.Pool {
	rows := make(map[string]*admin.Pool)
	row := func(name string) *admin.Pool {
		if rows[name] == nil {
			rows[name] = &admin.Pool{PoolStatus: announce.PoolStatus{Name: name}}
		}
		return rows[name]
	}
	for p := range inAPI {
		r := row(p.Name)
		r.IPv4, r.IPv6, r.Conflicts = usage(p.Status.IPv4), usage(p.Status.IPv6), len(p.Status.Conflicts)
	}
	for _, p := range here {
		row(p.Name).PoolStatus = p
	}
	out := make([]admin.Pool, 0, len(rows))
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, *rows[name])
	}
	return out
}

// usage converts u; it returns nil if u gives no capacity.
func usage(u *v1alpha1.Usage) *admin.Usage {
	if u == nil {
		return nil
	}
	capacity, err := strconv.ParseFloat(u.Capacity, 64)
	if err != nil {
		return nil
	}
	return &admin.Usage{Capacity: capacity, Used: u.Used}
}

// list returns every Service that is Herald's, with its announcement and the peers that were sent its routes. For addresses
// on a flat layer 2 it adds the speaker's status and the holders.
func (s *services) list(flat []speaker.Status, holders map[string]string, sessions []bgp.Session) []admin.Service {
	out := []admin.Service{}
	if s == nil {
		return out
	}
	stands := byAddress(flat)
	sent := sentTo(sessions, nil)
	for _, known := range s.announcer.Services() {
		row := admin.Service{Name: known.Name, Origin: known.Origin, Addresses: []admin.ServiceAddress{}}
		for _, a := range known.Addresses {
			address := admin.ServiceAddress{AddressStatus: a, Sent: sent[a.Route]}
			if a.Flat {
				address.Holder = holders[a.Address.String()]
			}
			if u, ok := stands[a.Address]; ok {
				address.Link, address.FlatStage, address.FlatReason = u.Interface, u.Stage, u.Reason
				address.Error = cmp.Or(a.Error, u.Error)
			}
			row.Addresses = append(row.Addresses, address)
		}
		out = append(out, row)
	}
	return out
}

// addresses iterates over the addresses of Services for the node's report.
func (s *services) addresses(flat []speaker.Status, holders map[string]string, sessions []bgp.Session) iter.Seq[report.Address] {
	stands := byAddress(flat)
	return func(yield func(report.Address) bool) {
		for a := range s.announcer.Addresses() {
			u := stands[a.Address]
			out := report.Address{Addr: a.Address, Held: holds(u), Announced: a.Error == "" && slices.ContainsFunc(sessions, func(p bgp.Session) bool {
				_, sent := slices.BinarySearchFunc(p.Advertised, a.Route, netip.Prefix.Compare)
				return sent && a.Stage == gracefulshutdown.Announced
			})}
			if holder := holders[a.Address.String()]; !a.Flat || holder == "" || holder == s.node {
				out.Reason = cmp.Or(a.Error, u.Error, u.Reason, a.Reason)
				if out.Reason == "" && !a.Flat {
					out.Reason = "no peer was sent a route to it"
				}
			}
			if !yield(out) {
				return
			}
		}
	}
}

func byAddress(flat []speaker.Status) map[netip.Addr]speaker.Status {
	out := make(map[netip.Addr]speaker.Status, len(flat))
	for _, a := range flat {
		out[a.Address] = a
	}
	return out
}

// holds reports whether this node answers for an address on a flat layer 2.
func holds(a speaker.Status) bool { return a.Stage == speaker.Announced && a.Error == "" }

// text returns the message of err, empty if it is nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// nodes returns the nodes of the cluster for the page; nil without a services section or a connection.
func (s *services) nodes() *page.Nodes {
	if s == nil || s.kubernetes.Load() == nil {
		return nil
	}
	k := s.kubernetes.Load()
	list, err := s.reports.Get(k.cluster.NodeStatuses)
	out := &page.Nodes{List: list, Unknown: text(err)}
	select {
	case <-k.informers.Nodes.Synced():
		out.Ready = make(map[string]bool)
		for n := range k.informers.Nodes.All() {
			out.Ready[n.Name] = !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady // the informer keeps the condition only where it is not true
			})
		}
	default: // the Nodes are not known yet
	}
	return out
}
