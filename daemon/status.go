package daemon

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/service/report"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/eventlog"
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

// vipOf returns the VIP of the file with a name; false if there is none.
func vipOf(c *config.Config, name string) (config.VIP, bool) {
	i := slices.IndexFunc(c.VIPs, func(v config.VIP) bool { return v.Name == name })
	if i < 0 {
		return config.VIP{}, false
	}
	return c.VIPs[i], true
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
		if configured, ok := vipOf(c, v.Name); ok {
			v.Checks = configured.Checks
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
