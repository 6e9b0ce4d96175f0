// Package convert puts a validated configuration into the terms of the packages that
// carry it out, which know nothing of configuration files.
package convert

import (
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/asn"
	"github.com/herald-vip/herald/bgp/community"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/config/yaml"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// VIPs returns the VIPs of c. On a flat layer 2 the link may still be empty.
func VIPs(c *config.Config) []speaker.VIP {
	var base bgp.Attributes
	if c.BGP != nil {
		base = Attributes(c.BGP.Attributes)
	}
	var out []speaker.VIP
	for _, v := range c.VIPs {
		vip := speaker.VIP{
			Name: v.Name, Addresses: v.Addresses, Interface: v.Interface, Checks: v.Checks, Peers: v.Peers,
			Linger: v.Linger, HoldDown: v.HoldDown, Bridge: *v.Bridge, Prefixes: v.Prefixes, All: v.PrefixWhile == config.WhileAll, Keep: v.WhenAllFail == config.Keep, Attributes: base.Merge(Attributes(v.Attributes)),
		}
		if v.OnFailure == config.Demote {
			vip.OnFailure = speaker.Demote
		}
		if v.Announce == config.AnnounceKernel {
			vip.Table, vip.Interface = &speaker.Table{Number: v.Kernel.Table, Metric: v.Kernel.Metric}, route.Device
		}
		if v.Announce == config.AnnounceARP {
			vip.Flat = &speaker.Flat{Priority: v.Priority, Preempt: v.Preempt, Lifetime: Lifetime(c.Election.Lease)}
		}
		out = append(out, vip)
	}
	return out
}

// Lifetime returns how long addresses on a flat layer 2 outlive a killed or suspended
// process: the lease in whole seconds, and at least 2 s, because the kernel counts in
// seconds and may expire an address early.
func Lifetime(lease time.Duration) time.Duration {
	const least = 2 * time.Second
	return max(least, (lease + time.Second - 1).Truncate(time.Second))
}

// Bindings returns the addresses that a predecessor may have left for this process to
// adopt. It excludes VIPs by ARP, as their leases ended with the predecessor, and VIPs by
// kernel routes, which need no address.
func Bindings(c *config.Config) []address.Binding {
	var out []address.Binding
	for _, v := range c.VIPs {
		if v.Announce == config.AnnounceARP || v.Announce == config.AnnounceKernel {
			continue
		}
		for _, a := range v.Addresses {
			out = append(out, address.Binding{Interface: v.Interface, Addr: a})
		}
	}
	return out
}

// BGP is the bgp section of c. It has no ASN if there is none, and no router ID if c sets none.
func BGP(c *config.Config) bgp.Config {
	b := c.BGP
	if b == nil {
		b = new(config.BGP)
		yaml.SetDefaults(b)
	}
	out := bgp.Config{ASN: b.ASN, RouterID: b.RouterID, ConnectRetry: b.ConnectRetry}
	if l := b.Listen; l != nil {
		out.ListenPort, out.ListenAddresses = l.Port, l.Addresses
	}
	for _, p := range b.Peers {
		out.Peers = append(out.Peers, Peer(p))
	}
	return out
}

// Peer is a peer of the file.
func Peer(p config.Peer) bgp.Peer {
	peer := bgp.Peer{
		Address: p.Address, Interface: p.Interface, ASN: uint32(p.ASN), Port: p.Port, LocalAddress: p.LocalAddress,
		Password: p.Password, HoldTime: p.HoldTime, Multihop: p.Multihop, TTLSecurity: p.TTLSecurity,
		NextHop4: p.NextHop4, NextHop6: p.NextHop6, Attributes: Attributes(p.Attributes),
	}
	if p.DefaultGateway != "" {
		peer.Gateway = p.Name()
	}
	if p.ASN == asn.External {
		peer.ASN = 0
	}
	if p.BFD != nil {
		peer.BFD = &bgp.BFD{Interval: p.BFD.Interval, Multiplier: p.BFD.Multiplier, Multihop: *p.BFD.Multihop}
	}
	for _, f := range p.Families {
		peer.IPv4 = peer.IPv4 || f == config.IPv4
		peer.IPv6 = peer.IPv6 || f == config.IPv6
	}
	return peer
}

// Attributes are those of a route.
func Attributes(a config.Attributes) bgp.Attributes {
	out := bgp.Attributes{MED: a.MED, LocalPref: a.LocalPref, Prepend: a.Prepend}
	out.Communities, out.LargeCommunities, _ = community.ParseLists(a.Communities, a.LargeCommunities) // validated
	return out
}

// FileAttributes are those of a pool or a BGPPeer as the file would have them. The API
// server has seen to it that the numbers have 32 bits.
func FileAttributes(a v1alpha1.Attributes) config.Attributes {
	number := func(n *int64) *uint32 {
		if n == nil {
			return nil
		}
		return new(uint32(*n))
	}
	out := config.Attributes{Prepend: int(a.Prepend), MED: number(a.MED), LocalPref: number(a.LocalPref)}
	for _, c := range a.Communities {
		out.Communities = append(out.Communities, string(c))
	}
	for _, c := range a.LargeCommunities {
		out.LargeCommunities = append(out.LargeCommunities, string(c))
	}
	return out
}
