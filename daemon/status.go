package daemon

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/service/report"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
)

var _ admin.Daemon = (*Daemon)(nil)

// Drain implements [admin.Daemon]. Others hear of it first, so that balancers send new
// connections elsewhere. Services and VIPs do not wait for each other.
func (d *Daemon) Drain(ctx context.Context, reason string, untilUndrain bool, deadline time.Duration) error {
	d.draining.Lock()
	if err := d.drained.begin(reason, untilUndrain); err != nil {
		d.draining.Unlock()
		return err
	}
	d.advertiser.setDraining(true)
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
	d.advertiser.setDraining(false)
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

// vipNames are the names of the VIPs in the file.
func vipNames(c *config.Config) map[string]bool {
	out := make(map[string]bool, len(c.VIPs))
	for _, v := range c.VIPs {
		out[v.Name] = true
	}
	return out
}

// vipChecks are the checks that the named VIP of the file has there.
func vipChecks(c *config.Config, name string) []string {
	for _, v := range c.VIPs {
		if v.Name == name {
			return v.Checks
		}
	}
	return nil
}

// divide tells the addresses of VIPs that are, or were, in the file from those of Services.
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

// Healthy is [admin.Status.Healthy] of the status as it is now, of which it makes no more than that
// takes: it does not wait for what the kernel counts.
func (d *Daemon) Healthy(name string) (known, healthy bool, why string) {
	d.mu.Lock()
	c := d.config
	d.mu.Unlock()
	s := admin.Status{
		Draining:  d.speaker.Draining(),
		Checks:    adminChecks(d.monitor.Verdicts()),
		Balancers: d.balancers.Health(c, name),
	}
	for _, v := range c.VIPs {
		s.VIPs = append(s.VIPs, admin.VIP{Name: v.Name, Checks: v.Checks})
	}
	return s.Healthy(name)
}

// adminChecks are the verdicts of checks, for the admin socket.
func adminChecks(verdicts []health.Verdict) []admin.Check {
	var out []admin.Check
	for _, k := range verdicts {
		out = append(out, admin.Check{
			Name: k.Check, State: admin.CheckState(k.State.String()), Reason: k.Reason, Warning: k.Warning, Since: k.Since,
			Latency: k.Latency.Seconds(), Passes: k.Passes, Failures: k.Failures,
		})
	}
	return out
}

// Status implements [admin.Daemon].
func (d *Daemon) Status() admin.Status {
	d.mu.Lock()
	s := admin.Status{
		Node: d.config.NodeName, Version: d.version, Started: d.started, Realtime: d.realtime, Config: d.state,
		VIPs: []admin.VIP{}, Checks: []admin.Check{}, Peers: []admin.Peer{}, Events: []admin.Event{},
	}
	leftOut, unpeered := d.peering.InForce().LeftOut, d.peering.Err()
	c := d.config
	d.mu.Unlock()
	for _, e := range d.events.Events() {
		s.Events = append(s.Events, admin.Event{At: e.At, Level: e.Level.String(), What: e.What, About: e.About, Why: e.Why, Of: e.Of, State: e.State})
	}

	conflicts := d.flat.Conflicts()
	own, services := d.fillPeersAndVIPs(&s, d.bgp.Sessions(), conflicts)
	s.Election = d.electionStatus(c, own)
	s.Services = d.services.status(leftOut, unpeered, services, conflicts)
	if s.Draining != "" {
		s.DrainingSince, s.UntilUndrain = d.drained.status()
	}
	s.Balancers, s.Passing = d.balancers.Status(c), d.balancers.Passing()
	for i := range s.VIPs {
		v := &s.VIPs[i]
		v.Checks = vipChecks(c, v.Name)
		if n, known := d.arrivals.Count(v.Address); known {
			v.Arrivals = &admin.Arrivals{Count: n.Arrived, Since: n.Since, Last: n.Last}
		}
		v.BridgedTo, v.Bridged, v.Bridge = d.balancers.BridgeStatus(v.Address)
	}
	s.Checks = append(s.Checks, adminChecks(d.monitor.Verdicts())...)
	return s
}

// reported is what this node tells the API of itself.
func (d *Daemon) reported() v1alpha1.NodeState {
	s, sessions := admin.Status{Version: d.version}, d.bgp.Sessions()
	_, services := d.fillPeersAndVIPs(&s, sessions, d.flat.Conflicts())
	var holding map[string]string
	if len(services) > 0 {
		holding = holders(d.flat.Election().Status().Lease.Leases)
	}
	return report.Of(s, d.services.addresses(services, holding, sessions))
}

// fingerprint is another if reported may be, and cheaper where there are many Services.
func (d *Daemon) fingerprint() any {
	var s admin.Status
	_, services := d.fillPeersAndVIPs(&s, d.bgp.Peers(), d.flat.Conflicts())
	var held []netip.Addr
	for _, a := range services {
		if holds(a) {
			held = append(held, a.Address)
		}
	}
	return []any{d.services.announcer.Changes(), held, report.Of(s, func(func(report.Address) bool) {})}
}

// fillPeersAndVIPs has s say how peers and VIPs stand, and whether these are drained.
func (d *Daemon) fillPeersAndVIPs(s *admin.Status, sessions []bgp.Session, conflicts map[netip.Addr]arp.Finding) (own, services []speaker.Status) {
	sum := d.speaker.Summary()
	s.Draining = sum.Draining
	own, services = divide(sum.Addresses)
	links := make(map[address.Binding]address.Status)
	for _, l := range d.addresses.Status() {
		links[l.Binding] = l
	}
	strays := d.addresses.Strays()
	vips := make(map[netip.Prefix]bool) // whose routes are told of one by one
	for _, a := range own {
		vips[a.Prefix] = true
	}
	sent := sentTo(sessions, vips)
	for _, p := range sessions {
		s.Peers = append(s.Peers, adminPeer(p, vips))
	}
	for _, a := range own {
		v := adminVIP(a, links[address.Binding{Interface: a.Interface, Addr: a.Address}], conflicts[a.Address], sessions, s.Peers, sent[a.Prefix])
		v.Error = cmp.Or(v.Error, text(strays[a.Address]))
		s.VIPs = append(s.VIPs, v)
	}
	return own, services
}

// sentTo are the peers that were sent each route, or each of some.
func sentTo(sessions []bgp.Session, only map[netip.Prefix]bool) map[netip.Prefix][]string {
	sent := make(map[netip.Prefix][]string)
	for _, p := range sessions {
		for _, prefix := range p.Advertised {
			if only == nil || only[prefix] {
				sent[prefix] = append(sent[prefix], p.Peer)
			}
		}
	}
	return sent
}

// adminVIP is an address of a VIP, on its link, against others that use it, and by what sessions
// tell, as which peers are.
func adminVIP(a speaker.Status, link address.Status, conflict arp.Finding, sessions []bgp.Session, peers []admin.Peer, sent []string) admin.VIP {
	v := admin.VIP{
		Name: a.VIP, Address: a.Address, Interface: a.Interface, Stage: admin.Stage(a.Stage.String()), Since: a.Since,
		Reason: a.Reason, Kept: a.Kept, Decided: a.Decided, Announce: admin.ByBGP,
		Restored: link.Restored, Error: cmp.Or(text(a.Error), text(link.Err)),
	}
	blocked := a.Blocked
	if link.Err != nil && !link.Bound && blocked.IsZero() {
		blocked = link.Since
	}
	if a.Prefix.Bits() < a.Address.BitLen() {
		v.Prefix = a.Prefix
	}
	switch {
	case a.Table != nil:
		v.Announce, v.Table = admin.ByKernel, a.Table.Number
	case a.Flat:
		v.Announce, v.Conflicts = admin.ByARP, conflict.Count
		if conflict.State == arp.Taken {
			v.Conflict = conflict.MAC.String()
		}
		v.Rival = conflict.Rival.String()
	default:
		for _, p := range sessions {
			if slices.Contains(a.Peers, p.Peer) && (a.Address.Is4() && p.IPv4 || a.Address.Is6() && p.IPv6) {
				v.Peers = append(v.Peers, p.Peer)
			}
		}
	}
	v.Assess(blocked, peers, sent)
	if w := a.LastWithdrawal; w != nil {
		v.LastWithdrawal = &admin.Withdrawal{At: w.Cause, Reason: w.Reason}
		if !w.Done.IsZero() {
			v.LastWithdrawal.Seconds = w.Done.Sub(w.Cause).Seconds()
		}
	}
	return v
}

// adminPeer is a session, with those of its routes that are of vips.
func adminPeer(p bgp.Session, vips map[netip.Prefix]bool) admin.Peer {
	peer := admin.Peer{
		Name: p.Peer, Gateway: p.Gateway, Address: p.Address, LocalAddress: p.LocalAddress, ASN: p.ASN, State: admin.SessionState(p.State), Since: p.Since,
		Reason: p.Reason, Drops: p.Drops, HoldTime: p.HoldTime.Seconds(), Advertised: []netip.Prefix{}, Routes: len(p.Advertised),
	}
	for _, prefix := range p.Advertised {
		if vips[prefix] {
			peer.Advertised = append(peer.Advertised, prefix)
		}
	}
	if b := p.BFD; b != nil {
		peer.BFD = &admin.BFD{
			State: admin.BFDState(b.State.String()), Since: b.Since, Reason: b.Reason,
			Interval: b.TxInterval.Seconds(), DetectionTime: b.DetectionTime.Seconds(),
			Downs: b.Downs, In: b.In, Out: b.Out, Discarded: b.Discarded,
		}
	}
	return peer
}
