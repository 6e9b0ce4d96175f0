package daemon

import (
	"fmt"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/speaker"
)

// This file turns a validated configuration into each package's own terms.

func speakerVIPs(c *config.Config) ([]speaker.VIP, error) {
	var base bgp.Attributes
	if c.BGP != nil {
		var err error
		if base, err = attributes(c.BGP.Attributes); err != nil {
			return nil, err
		}
	}
	var out []speaker.VIP
	for _, v := range c.VIPs {
		own, err := attributes(v.Attributes)
		if err != nil {
			return nil, err
		}
		vip := speaker.VIP{
			Name: v.Name, Addresses: v.Addresses, Interface: v.Interface, Checks: v.Checks, Peers: v.Peers,
			Linger: v.Linger, HoldDown: v.HoldDown, Bridge: *v.Bridge, Attributes: base.Merge(own),
		}
		if v.OnFailure == config.Demote {
			vip.OnFailure = speaker.Demote
		}
		if v.Announce == config.AnnounceARP {
			vip.Flat = &speaker.Flat{Priority: v.Priority, Preempt: v.Preempt, Lifetime: lifetime(c.Election.Lease)}
		}
		out = append(out, vip)
	}
	return out, nil
}

// lifetime is how long addresses on a flat layer 2 outlive a process that was killed,
// or stands still: a lease, and no less than the kernel, which counts in seconds and may
// be early, can be relied upon to be reminded in.
func lifetime(lease time.Duration) time.Duration {
	const least = 2 * time.Second
	return max(least, (lease + time.Second - 1).Truncate(time.Second))
}

// bindings are the addresses that a predecessor may have left for this process to
// adopt: not those on a flat layer 2, whose leases have ended with it.
func bindings(c *config.Config) []netutil.Binding {
	var out []netutil.Binding
	for _, v := range c.VIPs {
		if v.Announce == config.AnnounceARP {
			continue
		}
		for _, a := range v.Addresses {
			out = append(out, netutil.Binding{Interface: v.Interface, Addr: a})
		}
	}
	return out
}

func healthChecks(c *config.Config) []health.Check {
	var out []health.Check
	for _, k := range c.Checks {
		out = append(out, healthCheck(k))
	}
	return out
}

func healthCheck(k config.Check) health.Check {
	check := health.Check{Name: k.Name, Interval: k.Interval, Timeout: k.Timeout, Rise: k.Rise, Fall: k.Fall}
	if h := k.HTTP; h != nil {
		check.HTTP = &health.HTTP{
			URL: h.URL, CAFile: h.CAFile, ServerName: h.ServerName, InsecureSkipVerify: h.InsecureSkipVerify,
			ClientCertFile: h.ClientCertFile, ClientKeyFile: h.ClientKeyFile, TokenFile: h.TokenFile, Status: h.Status,
		}
	}
	if k.TCP != nil {
		check.TCP = &health.TCP{Address: k.TCP.Address}
	}
	return check
}

// usualRetry is [config.BGP]'s ConnectRetry where the file has no bgp section.
const usualRetry = 2 * time.Second

// bgpConfig has no ASN if c has no bgp section, and no router ID if c sets none.
func bgpConfig(c *config.Config) (bgp.Config, error) {
	if c.BGP == nil {
		return bgp.Config{ConnectRetry: usualRetry}, nil
	}
	out := bgp.Config{ASN: c.BGP.ASN, RouterID: c.BGP.RouterID, ConnectRetry: c.BGP.ConnectRetry}
	if l := c.BGP.Listen; l != nil {
		out.ListenPort, out.ListenAddresses = l.Port, l.Addresses
	}
	for _, p := range c.BGP.Peers {
		peer, err := bgpPeer(p)
		if err != nil {
			return bgp.Config{}, err
		}
		out.Peers = append(out.Peers, peer)
	}
	return out, nil
}

func bgpPeer(p config.Peer) (bgp.Peer, error) {
	attrs, err := attributes(p.Attributes)
	if err != nil {
		return bgp.Peer{}, err
	}
	peer := bgp.Peer{
		Address: p.Address, Interface: p.Interface, ASN: p.ASN, Port: p.Port, LocalAddress: p.LocalAddress,
		Password: p.Password, HoldTime: p.HoldTime, Multihop: p.Multihop, TTLSecurity: p.TTLSecurity,
		NextHop4: p.NextHop4, NextHop6: p.NextHop6, Attributes: attrs,
	}
	if p.BFD != nil {
		peer.BFD = &bgp.BFD{Interval: p.BFD.Interval, Multiplier: p.BFD.Multiplier, Multihop: *p.BFD.Multihop}
	}
	for _, f := range p.Families {
		peer.IPv4 = peer.IPv4 || f == config.IPv4
		peer.IPv6 = peer.IPv6 || f == config.IPv6
	}
	return peer, nil
}

func attributes(a config.Attributes) (bgp.Attributes, error) {
	out := bgp.Attributes{MED: a.MED, LocalPref: a.LocalPref, Prepend: a.Prepend}
	for _, s := range a.Communities {
		v, err := config.ParseCommunity(s)
		if err != nil {
			return out, fmt.Errorf("community %q: %w", s, err)
		}
		out.Communities = append(out.Communities, bgp.Community(v))
	}
	for _, s := range a.LargeCommunities {
		v, err := config.ParseLargeCommunity(s)
		if err != nil {
			return out, fmt.Errorf("large community %q: %w", s, err)
		}
		out.LargeCommunities = append(out.LargeCommunities, bgp.LargeCommunity{Global: v[0], Local1: v[1], Local2: v[2]})
	}
	return out, nil
}
