package daemon

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/service/report"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/eventlog"
	"github.com/herald-vip/herald/status/page"
)

var _ admin.Daemon = (*Daemon)(nil)

// Drain implements [admin.Daemon]. It advertises the drain first, so that balancers send new connections elsewhere.
// Services and VIPs drain concurrently.
func (d *Daemon) Drain(ctx context.Context, reason string, untilUndrain bool, deadline time.Duration) error {
	d.draining.Lock()
	if err := d.drained.begin(reason, untilUndrain); err != nil {
		d.draining.Unlock()
		return err
	}
	d.advertiser.SetDraining(true)
	services, vips := d.services.drain(reason), d.speaker.Drain(reason, deadline)
	d.draining.Unlock()
	return errors.Join(vips(ctx), services(ctx))
}

// Undrain implements [admin.Daemon].
func (d *Daemon) Undrain() error {
	d.draining.Lock()
	defer d.draining.Unlock()
	err := d.drained.end()
	d.speaker.Undrain()
	d.services.undrain()
	d.advertiser.SetDraining(false)
	return err
}

// RemoveMember implements [admin.Daemon].
func (d *Daemon) RemoveMember(ctx context.Context, member string) error {
	return d.flat.Election().Remove(ctx, member)
}

// Services implements [admin.Daemon].
func (d *Daemon) Services() []admin.Service {
	_, services := divide(d.speaker.Summary().Addresses)
	return d.services.list(services, holders(d.flat.Election().Status().Lease.Leases), d.bgp.Sessions())
}

// divide separates the addresses of Services from the others.
func divide(all []speaker.Status) (own, services []speaker.Status) {
	for _, a := range all {
		if a.Service {
			services = append(services, a)
		} else {
			own = append(own, a)
		}
	}
	return own, services
}

// Healthy returns [admin.Status.Healthy] of the present status. It collects only the parts that this
// needs, so it does not wait for counts from the kernel.
func (d *Daemon) Healthy(name string) (known, healthy bool, why string) {
	d.mu.Lock()
	c := d.config
	d.mu.Unlock()
	s := admin.Status{
		Draining:  d.speaker.Draining(),
		Checks:    d.monitor.Verdicts(),
		Balancers: d.balancers.Health(c, name),
	}
	for _, v := range c.VIPs {
		s.VIPs = append(s.VIPs, admin.VIP{Status: speaker.Status{Name: v.Name}, Checks: v.Checks})
	}
	return s.Healthy(name)
}

// Status implements [admin.Daemon].
func (d *Daemon) Status() admin.Status {
	d.mu.Lock()
	s := admin.Status{
		Node: d.config.NodeName, Version: d.version, Started: d.started, Realtime: d.realtime, Config: d.state,
		VIPs: []admin.VIP{}, Peers: []bgp.Session{}, Checks: append([]health.Verdict{}, d.monitor.Verdicts()...),
		Events: append([]eventlog.Event{}, d.events.Events()...),
	}
	leftOut, unpeered := d.peering.InForce().LeftOut, d.peering.Err()
	c := d.config
	d.mu.Unlock()

	conflicts := d.flat.Conflicts()
	own, services := d.fillPeersAndVIPs(&s, d.bgp.Sessions(), conflicts)
	s.Election = d.electionStatus(c, own)
	s.Services = d.services.status(leftOut, unpeered, services, conflicts)
	if s.Draining != "" {
		d.draining.Lock()
		s.DrainingSince, s.UntilUndrain = d.drained.told.Since, d.drained.kept
		d.draining.Unlock()
	}
	s.Balancers, s.Passing = d.balancers.Status(c), d.balancers.Passing()
	for i := range s.VIPs {
		v := &s.VIPs[i]
		if i := slices.IndexFunc(c.VIPs, func(c config.VIP) bool { return c.Name == v.Name }); i >= 0 {
			v.Checks = c.VIPs[i].Checks
		}
		if n, known := d.newConns.Count(v.Address); known {
			v.Arrivals = &n
		}
		v.BridgedTo, v.Bridged, v.Bridge = d.balancers.BridgeStatus(v.Address)
	}
	return s
}

// reported returns the state of this node for the API.
func (d *Daemon) reported() v1alpha1.NodeState {
	var s admin.Status
	sessions := d.bgp.Sessions()
	_, services := d.fillPeersAndVIPs(&s, sessions, d.flat.Conflicts())
	var holding map[string]string
	if len(services) > 0 {
		holding = holders(d.flat.Election().Status().Lease.Leases)
	}
	return report.Of(d.reportedNode(s), s.Peers, d.services.addresses(services, holding, sessions))
}

// reportedNode returns the part of the report about the node itself and its VIPs.
func (d *Daemon) reportedNode(s admin.Status) v1alpha1.NodeState {
	out := v1alpha1.NodeState{Version: d.version, Draining: s.Draining}
	for _, v := range s.VIPs {
		out.VIPs = append(out.VIPs, v1alpha1.NodeVIP{
			Name: v.Name, Address: v.Address.String(), State: string(v.State), Since: metav1.NewTime(v.Since), Reason: cmp.Or(v.Error, v.Reason),
		})
	}
	return out
}

// fingerprint changes whenever reported may change, and costs less where there are many Services.
func (d *Daemon) fingerprint() any {
	var s admin.Status
	_, services := d.fillPeersAndVIPs(&s, d.bgp.Peers(), d.flat.Conflicts())
	var held []netip.Addr
	for _, a := range services {
		if holds(a) {
			held = append(held, a.Address)
		}
	}
	return []any{d.services.announcer.Changes(), held, report.Of(d.reportedNode(s), s.Peers, func(func(report.Address) bool) {})}
}

// fillPeersAndVIPs sets the peers, the VIPs and the drain of s. It returns the addresses of the node's own VIPs and of Services.
func (d *Daemon) fillPeersAndVIPs(s *admin.Status, sessions []bgp.Session, conflicts map[netip.Addr]arp.Finding) (own, services []speaker.Status) {
	sum := d.speaker.Summary()
	s.Draining = sum.Draining
	own, services = divide(sum.Addresses)
	links := make(map[address.Binding]address.Status)
	for _, l := range d.addresses.Status() {
		links[l.Binding] = l
	}
	foreign := d.addresses.Foreign()
	vips := make(map[netip.Prefix]bool) // prefixes that the status lists one by one
	for _, a := range own {
		vips[a.Route()] = true
	}
	sent := sentTo(sessions, vips)
	for _, p := range sessions {
		p.Advertised = slices.DeleteFunc(append([]netip.Prefix{}, p.Advertised...), func(route netip.Prefix) bool { return !vips[route] })
		s.Peers = append(s.Peers, p)
	}
	for _, a := range own {
		v := admin.NewVIP(a, links[address.Binding{Interface: a.Interface, Addr: a.Address}], conflicts[a.Address], sessions, sent[a.Route()])
		v.Error = cmp.Or(v.Error, text(foreign[a.Address]))
		s.VIPs = append(s.VIPs, v)
	}
	return own, services
}

// sentTo returns the names of the peers that were sent each route; with only, for these routes.
func sentTo(sessions []bgp.Session, only map[netip.Prefix]bool) map[netip.Prefix][]string {
	sent := make(map[netip.Prefix][]string)
	for _, p := range sessions {
		for _, prefix := range p.Advertised {
			if only == nil || only[prefix] {
				sent[prefix] = append(sent[prefix], p.Name)
			}
		}
	}
	return sent
}

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
