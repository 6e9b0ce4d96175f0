package daemon

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/speaker"
)

var _ admin.Daemon = (*Daemon)(nil)

// Drain implements [admin.Daemon]. Others hear of it first, so that balancers send new
// connections elsewhere. Services and VIPs do not wait for each other.
func (d *Daemon) Drain(ctx context.Context, reason string) error {
	d.offering.drain(true)
	var services error
	var both sync.WaitGroup
	both.Go(func() { services = d.services.drain(ctx, reason) })
	err := d.speaker.Drain(ctx, reason)
	both.Wait()
	return errors.Join(err, services)
}

// Undrain implements [admin.Daemon].
func (d *Daemon) Undrain() {
	d.speaker.Undrain()
	d.services.undrain()
	d.offering.drain(false)
}

// Services implements [admin.Daemon].
func (d *Daemon) Services() []admin.Service {
	d.mu.Lock()
	configured := vipNames(d.config)
	d.mu.Unlock()
	_, tenants := divide(d.speaker.Summary().Addresses, configured)
	return d.services.list(tenants, d.segment.holders())
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

// divide tells the addresses of VIPs that are, or were, in the file from those of
// Services, whose VIPs are named after their address.
func divide(all []speaker.Status, configured map[string]bool) (own, tenants []speaker.Status) {
	for _, a := range all {
		if a.Flat && !configured[a.VIP] && a.VIP == a.Address.String() {
			tenants = append(tenants, a)
		} else {
			own = append(own, a)
		}
	}
	return own, tenants
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
		Balancers: d.balancers.health(c, name),
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
			Name: k.Check, State: k.State.String(), Reason: k.Reason, Warning: k.Warning, Since: k.Since,
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
	peers, unpeered := d.peers, d.unpeered
	c := d.config
	d.mu.Unlock()
	configured := vipNames(c)
	for _, e := range d.events.Events() {
		s.Events = append(s.Events, admin.Event{At: e.At, Level: e.Level.String(), What: e.What, About: e.About, Why: e.Why})
	}

	links := make(map[netutil.Binding]netutil.AddressStatus)
	for _, l := range d.addresses.Status() {
		links[l.Binding] = l
	}
	conflicts := d.segment.conflicts()
	sum := d.speaker.Summary()
	own, tenants := divide(sum.Addresses, configured)
	s.Election = d.segment.status(time.Now(), own, configured)
	s.Services = d.services.status(peers, unpeered, tenants, conflicts)
	s.Draining = sum.Draining
	s.Balancers = d.balancers.status(c)
	vips := make(map[netip.Prefix]bool) // whose routes are told of one by one
	for _, a := range own {
		vips[netip.PrefixFrom(a.Address, a.Address.BitLen())] = true
		v := admin.VIP{
			Name: a.VIP, Address: a.Address, Interface: a.Interface, Stage: a.Stage.String(), Since: a.Since,
			Reason: a.Reason, Decided: a.Decided, Announce: string(config.AnnounceBGP), Checks: vipChecks(c, a.VIP),
			Bridge: d.bridge.status(a.Address),
		}
		if a.Flat {
			v.Announce = string(config.AnnounceARP)
			if f := conflicts[a.Address]; f.Count > 0 {
				v.Conflicts = f.Count
				if f.State == arp.Taken {
					v.Conflict = f.MAC.String()
				}
			}
		}
		if a.Error != nil {
			v.Error = a.Error.Error()
		}
		if l, ok := links[netutil.Binding{Interface: a.Interface, Addr: a.Address}]; ok {
			v.Restored = l.Restored
			if l.Err != nil && v.Error == "" {
				v.Error = l.Err.Error()
			}
		}
		if w := a.LastWithdrawal; w != nil {
			v.LastWithdrawal = &admin.Withdrawal{At: w.Cause, Reason: w.Reason}
			if !w.Done.IsZero() {
				v.LastWithdrawal.Seconds = w.Done.Sub(w.Cause).Seconds()
			}
		}
		s.VIPs = append(s.VIPs, v)
	}
	s.Checks = append(s.Checks, adminChecks(d.monitor.Verdicts())...)
	for _, p := range d.bgp.Sessions() {
		peer := admin.Peer{
			Name: p.Peer, Address: p.Address, LocalAddress: p.LocalAddress, ASN: p.ASN, State: string(p.State), Since: p.Since,
			Reason: p.Reason, Drops: p.Drops, HoldTime: p.HoldTime.Seconds(), Advertised: []netip.Prefix{}, Routes: len(p.Advertised),
		}
		for _, prefix := range p.Advertised {
			if vips[prefix] {
				peer.Advertised = append(peer.Advertised, prefix)
			}
		}
		if b := p.BFD; b != nil {
			peer.BFD = &admin.BFD{
				State: b.State.String(), Since: b.Since, Reason: b.Reason,
				Interval: b.TxInterval.Seconds(), DetectionTime: b.DetectionTime.Seconds(),
				Downs: b.Downs, In: b.In, Out: b.Out, Discarded: b.Discarded,
			}
		}
		s.Peers = append(s.Peers, peer)
	}
	return s
}
