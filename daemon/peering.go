package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/service/announce"
)

// settleInterval is how often it is looked whether what Services wait for has come about.
const settleInterval = time.Second

// peersOf are the peers of c and, as far as they are known, of the API.
func (d *Daemon) peersOf(c *config.Config) (peerSet, error) {
	file, err := bgpConfig(c)
	if err != nil {
		return peerSet{}, err
	}
	set := newPeerSet(c, file, d.services.peers(), d.peers.resources)
	if c.BGP == nil { // what it runs with it keeps
		set.bgp.ASN = cmp.Or(d.peers.bgp.ASN, set.bgp.ASN)
	}
	if set.bgp.ASN == 0 {
		return set, nil
	}
	if !set.bgp.RouterID.IsValid() {
		if !d.routerID.IsValid() {
			if d.routerID, err = netutil.RouterID(vipAddresses(c)...); err != nil {
				return peerSet{}, fmt.Errorf("bgp.routerID is not set and cannot be guessed: %w", err)
			}
		}
		set.bgp.RouterID = d.routerID
	}
	if c.Realtime && d.realtime != admin.RealtimeOn {
		calm(set.bgp.Peers)
	}
	return set, nil
}

// peer brings the peers about.
func (d *Daemon) peer(ctx context.Context, set peerSet) error {
	if set.bgp.ASN != 0 {
		if err := d.bgp.Apply(ctx, set.bgp); err != nil {
			return err
		}
	}
	for _, l := range set.leftOut {
		if !l.unread && !slices.Contains(d.peers.leftOut, l) {
			d.log.Warn("BGPPeer is not in force", "peer", l.peer, "reason", l.reason)
		}
	}
	d.peers, d.unpeered = set, nil
	return nil
}

// renewPeers brings about what has changed of the peers in the API.
func (d *Daemon) renewPeers(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set, err := d.peersOf(d.config)
	if err == nil && reflect.DeepEqual(set, d.peers) {
		return
	}
	if err == nil {
		err = d.peer(ctx, set)
	}
	if err == nil {
		err = d.announceBy(d.config)
	}
	if err != nil {
		if d.unpeered == nil || d.unpeered.Error() != err.Error() {
			d.log.Error("the BGP peers in the API are not in force; trying again", "err", err)
		}
		d.unpeered = err
		return
	}
	d.applyVIPs()
}

// announceBy has Services announced as c has it: with its attributes, to the peers
// there are, and never at an address of its VIPs, or of one that the speaker has yet
// to be done with.
func (d *Daemon) announceBy(c *config.Config) error {
	if d.services == nil {
		return nil
	}
	var base bgp.Attributes
	if c.BGP != nil {
		var err error
		if base, err = attributes(c.BGP.Attributes); err != nil {
			return err
		}
	}
	next := announce.Config{
		Node: c.NodeName, Class: c.Services.LoadBalancerClass, DefaultClass: c.Services.DefaultClass,
		RequireEndpoints: c.Services.RequireEndpoints, ExcludeCordoned: c.Services.ExcludeCordoned,
		Attributes: base, Peers: d.peers.names, Only: d.peers.only(), Reserved: d.reserved(c),
	}
	if reflect.DeepEqual(next, d.services.applied) {
		return nil
	}
	d.services.announcer.Apply(next)
	// The announcer leaves the route to what has become a VIP to the speaker, which on a
	// flat layer 2 knows of none.
	if err := d.bgp.Withdraw(flatPrefixes(c)...); err != nil {
		return err
	}
	d.services.applied = next
	return nil
}

// flatPrefixes are those of the VIPs on a flat layer 2, to which there is to be no route.
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

// reserved are the addresses of the VIPs of c, and of those that were VIPs until a
// moment ago and that the speaker has yet to be done with.
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

// runServices does what Services need in the background, until ctx is done.
func (d *Daemon) runServices(ctx context.Context) {
	if d.services == nil {
		return
	}
	d.services.changed = func() { d.renewPeers(ctx) }
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { d.services.run(ctx) })
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.settle(ctx)
		}
	}
}

// settle gives addresses free that the speaker is done with, and tries again
// what failed of the peers.
func (d *Daemon) settle(ctx context.Context) {
	d.mu.Lock()
	failed := d.unpeered != nil
	if !failed {
		_ = d.announceBy(d.config) // attributes that were good are good
	}
	d.mu.Unlock()
	if failed {
		d.renewPeers(ctx)
	}
}
