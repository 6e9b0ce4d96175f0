package daemon

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
)

// reconcileInterval is the time between two attempts at pending changes for Services.
const reconcileInterval = time.Second

// renewPeers applies changes of the BGPPeers in the API and of the default gateways.
func (d *Daemon) renewPeers(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.peering.Renew(ctx, d.config, d.services.peers()) {
		return
	}
	if err := d.announceBy(d.config); err != nil {
		d.log.Error("Services are not announced to the new peers; trying again", "err", err)
	}
	d.applyVIPs()
}

// renewGateways applies changes of the default gateways, if any peer is one.
func (d *Daemon) renewGateways(ctx context.Context) {
	d.mu.Lock()
	follows := len(d.peering.InForce().Gateways) > 0
	d.balancers.SetLinks(routerLinks(d.peering.InForce().BGP.Peers))
	d.mu.Unlock()
	if follows {
		d.renewPeers(ctx)
	}
}

// routerLinks returns the links through which routers deliver packets: links of peers and of default gateways.
func routerLinks(peers []v1alpha1.Peer) []string {
	var out []string
	var routers []netip.Addr
	for _, p := range peers {
		if p.Interface != "" {
			out = append(out, p.Interface)
		} else if p.Address.IsValid() {
			routers = append(routers, p.Address)
		}
	}
	for _, ipv6 := range []bool{false, true} {
		gateways, _ := link.Gateways(ipv6) // the peers alone also tell where routers are
		routers = append(routers, gateways...)
	}
	for _, r := range routers {
		if name, err := link.To(r); err == nil && name != "lo" { // an unreachable router is tried again at the next change
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// announceBy configures the announcer of Services from c, with its attributes and the present peers. The announcer never
// announces the address of a VIP, even while the speaker still withdraws the VIP.
func (d *Daemon) announceBy(c *config.Config) error {
	if d.services == nil {
		return nil
	}
	var base v1alpha1.Attributes
	if c.BGP != nil {
		base = c.BGP.Attributes
	}
	peers := d.peering.InForce()
	next := announce.Config{
		Node: c.NodeName, Scope: scope(c.Services), RequireEndpoints: service.Rule(c.Services.RequireEndpoints),
		Fitness: service.Fitness{
			ExcludeCordoned: c.Services.ExcludeCordoned, IgnoreExcludeLabel: c.Services.IgnoreExcludeLabel, ExcludeTaints: c.Services.ExcludeTaints,
		},
		Attributes: base, Peers: peers.ByName(), Only: peers.OneFamily(), Reserved: d.reserved(c),
	}
	if reflect.DeepEqual(next, d.services.applied) {
		return nil
	}
	d.services.announcer.Apply(next)
	// The announcer leaves the route of an address that has become a VIP to the speaker, which does not know routes on a
	// flat layer 2.
	if err := d.bgp.Withdraw(flatPrefixes(c)...); err != nil {
		return err
	}
	d.services.applied = next
	return nil
}

// flatPrefixes returns the prefixes of the VIPs on a flat layer 2, which must have no route.
func flatPrefixes(c *config.Config) []netip.Prefix {
	var out []netip.Prefix
	for _, v := range c.VIPs {
		for _, addr := range v.Addresses {
			if v.Announce == config.AnnounceARP {
				out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
			}
		}
	}
	return out
}

// reserved returns the addresses of the VIPs of c, and of recent VIPs that the speaker has yet to withdraw.
func (d *Daemon) reserved(c *config.Config) []netip.Addr {
	out := vipAddresses(c)
	if before := d.services.applied.Reserved; slices.ContainsFunc(before, func(a netip.Addr) bool { return !slices.Contains(out, a) }) {
		for _, a := range d.speaker.Summary().Addresses {
			if slices.Contains(before, a.Address) && !slices.Contains(out, a.Address) {
				out = append(out, a.Address)
			}
		}
	}
	return out
}

// runServices does the background work for Services until ctx is done.
func (d *Daemon) runServices(ctx context.Context) {
	if d.services == nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { d.services.run(ctx, d.fingerprint, d.reported) })
	tick := time.NewTicker(reconcileInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.services.changed:
			d.renewPeers(ctx)
		case <-tick.C:
			d.reconcileServices(ctx)
		}
	}
}

// reconcileServices releases addresses that the speaker has withdrawn, and retries failed changes.
func (d *Daemon) reconcileServices(ctx context.Context) {
	d.mu.Lock()
	failed := d.peering.Err() != nil
	if !failed {
		_ = d.announceBy(d.config) // logged when it first failed
	}
	d.mu.Unlock()
	if failed {
		d.renewPeers(ctx)
	}
}
