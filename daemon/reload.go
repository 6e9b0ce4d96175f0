package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/speaker"
)

// reload puts the file as it is now in force, or keeps the configuration that
// is and says why everywhere.
func (d *Daemon) reload(ctx context.Context, why string) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	notifyReloading(d.log)
	defer notifyReady(d.log)
	c, err := d.watcher.Load()
	if err == nil {
		err = d.apply(ctx, c)
	}
	if err != nil {
		d.mu.Lock()
		d.state.Error = err.Error()
		d.mu.Unlock()
		d.log.Error("configuration refused, the last good one stays in force", "because", why, "err", err)
		return
	}
	d.log.Info("configuration applied", "because", why, "generation", d.Status().Config.Generation)
}

// apply makes c the configuration in force. What can be refused comes first,
// so that an error leaves everything as it was: a validated configuration is
// refused only for what cannot change while running.
func (d *Daemon) apply(ctx context.Context, c *config.Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := unchangeable(d.config, c); err != nil {
		return err
	}
	if d.config != nil {
		if err := untaken(d.config, c, d.services.flat()); err != nil {
			return err
		}
	}
	vips, err := speakerVIPs(c)
	if err != nil {
		return err
	}
	peers, err := d.peersOf(c)
	if err != nil {
		return err
	}
	if err := d.segment.elect(c); err != nil { // first, as it may well refuse what a file asks for
		return err
	}
	if err := d.monitor.Apply(healthChecks(c)); err != nil {
		return err
	}
	if err := d.balancers.apply(c); err != nil {
		return err
	}
	d.offering.tell()
	if err := d.peer(ctx, peers); err != nil {
		return err
	}
	if err := d.announceBy(c); err != nil {
		return err
	}
	d.segment.watch(c)
	d.bridge.watch(c)
	d.vips = vips
	d.applyVIPs()

	d.config = c
	d.state.Generation++
	d.state.Loaded = time.Now()
	d.state.Error = ""
	return nil
}

// applyVIPs tells the speaker of the VIPs, with what the segment knows of their
// links. One whose addresses are on several links is there once for each, with
// the checks of all, so that it lives and dies as one.
func (d *Daemon) applyVIPs() {
	var vips []speaker.VIP
	for _, v := range d.vips {
		if v.Flat == nil {
			vips = append(vips, v)
			continue
		}
		checks := slices.Clone(v.Checks)
		links := make(map[string][]netip.Addr)
		for _, addr := range v.Addresses {
			link, added := d.segment.of(addr)
			links[link] = append(links[link], addr)
			for _, check := range added {
				if !slices.Contains(checks, check) {
					checks = append(checks, check)
				}
			}
		}
		for _, link := range slices.Sorted(maps.Keys(links)) {
			part := v
			part.Interface, part.Addresses, part.Checks = link, links[link], checks
			vips = append(vips, part)
		}
	}
	vips = append(vips, besides(d.segment.serviceVIPs(), d.vips)...)
	var peers []string
	for _, p := range d.peers.bgp.Peers {
		peers = append(peers, p.Name())
	}
	d.speaker.Apply(vips, peers, append(d.monitor.Verdicts(), d.segment.checks()...))
}

// besides are the VIPs of Services whose address is none of the file's: the segment, which
// decides about them on its own time, may not have heard yet that it has become one.
func besides(tenants, file []speaker.VIP) []speaker.VIP {
	return slices.DeleteFunc(tenants, func(v speaker.VIP) bool {
		return slices.ContainsFunc(file, func(own speaker.VIP) bool { return slices.Contains(own.Addresses, v.Addresses[0]) })
	})
}

// replace applies the VIPs anew when one of them belongs to another link.
func (d *Daemon) replace() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applyVIPs()
}

// unchangeable refuses what a running process cannot change about itself.
func unchangeable(old, new *config.Config) error {
	const restart = "cannot change while running: restart herald to apply it"
	if old == nil {
		return nil
	}
	switch {
	case old.Admin.Socket != new.Admin.Socket:
		return fmt.Errorf("admin.socket %s", restart)
	case old.Metrics.Listen != new.Metrics.Listen:
		return fmt.Errorf("metrics.listen %s", restart)
	case old.Realtime != new.Realtime:
		return fmt.Errorf("realtime %s", restart)
	case old.NodeName != new.NodeName:
		return fmt.Errorf("nodeName %s", restart)
	case old.BGP != nil && new.BGP == nil:
		return fmt.Errorf("bgp cannot be removed while running: restart herald to apply it")
	case (old.Election == nil) != (new.Election == nil):
		return fmt.Errorf("election cannot be added or removed while running: restart herald to apply it")
	case old.ARP != new.ARP:
		return fmt.Errorf("arp %s", restart)
	}
	if field := servicesChanged(old.Services, new.Services); field != "" {
		return fmt.Errorf("%s %s", field, restart)
	}
	return unmoved(old, new)
}

// servicesChanged names the first field of the services section that differs; empty if none does.
func servicesChanged(old, new *config.Services) string {
	if old == nil || new == nil {
		if old != new {
			return "services"
		}
		return ""
	}
	was, is := reflect.ValueOf(*old), reflect.ValueOf(*new)
	for f := range was.Type().Fields() {
		if !was.FieldByIndex(f.Index).Equal(is.FieldByIndex(f.Index)) {
			return "services." + f.Tag.Get("yaml")
		}
	}
	return ""
}

// unmoved refuses an address that moves between VIPs, or between the ways to
// announce it, if a lease is involved: other nodes, which have the file they have,
// go by another lease or by none.
func unmoved(old, new *config.Config) error {
	owner := make(map[netip.Addr]config.VIP)
	for _, v := range old.VIPs {
		for _, addr := range v.Addresses {
			owner[addr] = v
		}
	}
	for _, v := range new.VIPs {
		for _, addr := range v.Addresses {
			was, ok := owner[addr]
			if !ok || was.Announce != config.AnnounceARP && v.Announce != config.AnnounceARP {
				continue
			}
			if was.Name != v.Name || was.Announce != v.Announce {
				return fmt.Errorf("vips: %s cannot move from %s (%s) to %s (%s) while running, since nodes that have not been reloaded would answer too: remove it on all nodes first, then add it",
					addr, was.Name, was.Announce, v.Name, v.Announce)
			}
		}
	}
	return nil
}

func vipAddresses(c *config.Config) []netip.Addr {
	var out []netip.Addr
	for _, v := range c.VIPs {
		out = append(out, v.Addresses...)
	}
	return out
}

// untaken refuses a new VIP on a flat layer 2 whose address a node may hold as one of a
// Service, by another lease.
func untaken(old, new *config.Config, held []announce.Address) error {
	had := vipAddresses(old)
	for _, v := range new.VIPs {
		for _, addr := range v.Addresses {
			i := slices.IndexFunc(held, func(a announce.Address) bool { return a.Addr == addr })
			if i < 0 || v.Announce != config.AnnounceARP || slices.Contains(had, addr) {
				continue
			}
			return fmt.Errorf("vips: %s is the address of Service %s, for which a node may answer already: take it out of pool %s and from the Service first",
				addr, held[i].Service, held[i].Pool)
		}
	}
	return nil
}
