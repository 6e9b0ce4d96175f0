package daemon

import (
	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/speaker/flat"
)

// vipsOf returns the VIPs of c. On a flat layer 2 the link may still be empty.
func vipsOf(c *config.Config) []speaker.VIP {
	var base v1alpha1.Attributes
	if c.BGP != nil {
		base = c.BGP.Attributes
	}
	var out []speaker.VIP
	for _, v := range c.VIPs {
		vip := speaker.VIP{
			Name: v.Name, Addresses: v.Addresses, Interface: v.Interface, Checks: v.Checks, Peers: v.Peers,
			Linger: v.Linger, HoldDown: v.HoldDown, Bridge: *v.Bridge, Prefixes: v.Prefixes, All: v.PrefixWhile == config.WhileAll, Keep: v.WhenAllFail == config.Keep, Attributes: base.Merge(v.Attributes),
		}
		if v.OnFailure == config.Demote {
			vip.OnFailure = speaker.Demote
		}
		if v.Announce == config.AnnounceKernel {
			vip.Table, vip.Interface = &speaker.Table{Number: v.Kernel.Table, Metric: v.Kernel.Metric}, route.Device
		}
		if v.Announce == config.AnnounceARP {
			vip.Flat = &speaker.Flat{Priority: v.Priority, Preempt: v.Preempt, Lifetime: flat.Lifetime(c.Election.Lease)}
		}
		out = append(out, vip)
	}
	return out
}

// bindingsOf returns the addresses that a predecessor may have left for this process to
// adopt. It excludes VIPs by ARP, as their leases ended with the predecessor, and VIPs by
// kernel routes, which need no address.
func bindingsOf(c *config.Config) []address.Binding {
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
