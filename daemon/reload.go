package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/speaker/flat"
)

// reload applies the present file, or keeps the configuration in force and reports why. It defers a change that removes
// something, as a half-written file does, until the file has rested.
func (d *Daemon) reload(ctx context.Context, why string, rested bool) (done bool) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	notifyReloading(d.log)
	defer notifyReady(d.log)
	c, err := d.watcher.Load()
	if err == nil && !rested {
		d.mu.Lock()
		removed := config.Removed(d.config, c)
		d.mu.Unlock()
		if len(removed) > 0 {
			d.refuse(fmt.Sprintf("it takes away %s: applied when the file has rested for ten seconds, or at SIGHUP", strings.Join(removed, ", ")))
			d.log.Info("configuration takes something away: applied when the file has rested, or at SIGHUP", "takes", removed[0], "others", len(removed)-1)
			return false
		}
	}
	if err == nil {
		err = d.apply(ctx, c)
	}
	if err != nil {
		d.refuse(err.Error())
		d.log.Error("configuration refused, the last good one stays in force", "because", why, "err", err)
		return true
	}
	d.log.Info("configuration applied", "because", why, "generation", d.Status().Config.Generation)
	return true
}

// refuse records in the status why the present file is not in force.
func (d *Daemon) refuse(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state.Error = why
}

// apply puts c in force. Steps that can fail come first, so that an error leaves everything unchanged. A validated
// configuration fails only for settings that cannot change at run time.
func (d *Daemon) apply(ctx context.Context, c *config.Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := config.CheckReload(d.config, c); err != nil {
		return err
	}
	if d.config != nil {
		if err := untaken(d.config, c, d.services.flat()); err != nil {
			return err
		}
	}
	vips := vipsOf(c)
	peers, err := d.peering.Plan(c, d.services.peers())
	if err != nil {
		return err
	}
	if err := d.elect(c); err != nil { // first, because it is the most likely to refuse a file
		return err
	}
	if err := d.monitor.Apply(c.Checks); err != nil {
		return err
	}
	if err := d.balancers.SetBalancers(c); err != nil {
		return err
	}
	d.advertiser.Publish()
	if err := d.peering.Apply(ctx, peers); err != nil {
		return err
	}
	if err := d.announceBy(c); err != nil {
		return err
	}
	d.flat.Apply(flatConfig(c, vips))
	d.balancers.SetVIPs(c)
	d.applyVIPs()
	d.addresses.Reserve(vipAddresses(c))
	d.newConns.Set(vipAddresses(c))

	d.config = c
	d.state.Generation++
	d.state.Loaded = time.Now()
	d.state.Error = ""
	return nil
}

// applyVIPs passes the VIPs, on their present links, to the speaker.
func (d *Daemon) applyVIPs() {
	vips, verdicts := d.flat.VIPs()
	set := d.peering.InForce()
	for i := range vips {
		vips[i].Peers = set.Called(vips[i].Peers)
	}
	var peers []string
	for _, p := range set.BGP.Peers {
		peers = append(peers, p.Name())
	}
	d.balancers.SetLinks(routerLinks(set.BGP.Peers))
	d.speaker.Apply(vips, peers, append(d.monitor.Verdicts(), verdicts...))
}

func vipAddresses(c *config.Config) []netip.Addr {
	var out []netip.Addr
	for _, v := range c.VIPs {
		out = append(out, v.Addresses...)
	}
	return out
}

// untaken refuses a new VIP on a flat layer 2 if a node may hold its address for a Service: the VIP would wait for it.
func untaken(old, new *config.Config, held []flat.Address) error {
	had := vipAddresses(old)
	for _, v := range new.VIPs {
		for _, addr := range v.Addresses {
			i := slices.IndexFunc(held, func(a flat.Address) bool { return a.Addr == addr })
			if i < 0 || v.Announce != config.AnnounceARP || slices.Contains(had, addr) {
				continue
			}
			return fmt.Errorf("vips: %s is the address of Service %s, for which a node may answer already: take it out of pool %s and from the Service first",
				addr, held[i].Service, held[i].Pool)
		}
	}
	return nil
}
