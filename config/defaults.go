package config

import (
	"net/netip"
	"strings"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/yaml"
)

// derive sets the defaults that depend on the host or on other fields.
func (c *Config) derive(o options) {
	switch {
	case o.nodeName != "":
		c.NodeName = o.nodeName
	case c.NodeName == "":
		c.NodeName = strings.ToLower(o.hostname)
	}
	for i := range c.VIPs {
		v := &c.VIPs[i]
		if v.Interface == "" && v.Announce == AnnounceBGP {
			v.Interface = "lo"
		}
		if v.Kernel == nil && v.Announce == AnnounceKernel {
			v.Kernel = new(Table)
			yaml.SetDefaults(v.Kernel)
		}
		if v.Bridge == nil {
			v.Bridge = new(c.Election != nil)
		}
		for i, name := range v.Peers {
			if addr, err := netip.ParseAddr(name); err == nil {
				v.Peers[i] = addr.String() // in the canonical form, as in the name of the peer
			}
		}
	}
	if e := c.Election; e != nil {
		if !e.Bind.IsValid() {
			e.Bind = e.Members[c.NodeName]
		}
		if e.Forget == nil && e.Open() {
			e.Forget = new(4 * time.Hour)
		}
	}
	for i := range c.Balancers {
		deriveBalancer(&c.Balancers[i])
	}
	if c.BGP == nil {
		return
	}
	for i := range c.BGP.Peers {
		derivePeer(&c.BGP.Peers[i])
	}
}

// deriveBalancer sets the default check of static and DNS backends.
func deriveBalancer(b *balancer.Config) {
	if b.Check == nil && b.Backends.Members == nil {
		b.Check = new(balancer.Probe)
		yaml.SetDefaults(b.Check)
	}
	if b.Check != nil && b.Check.HTTP == nil && b.Check.TCP == nil {
		b.Check.TCP = &health.TCP{Address: balancer.BackendHost}
	}
}

// derivePeer sets the defaults of a peer that depend on its other fields.
func derivePeer(p *v1alpha1.Peer) {
	switch {
	case p.Families != nil:
	case p.Interface != "":
		p.Families = []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}
	case p.DefaultGateway != "":
		p.Families = []v1alpha1.Family{p.DefaultGateway}
	case p.Address.IsValid():
		p.Families = []v1alpha1.Family{familyOf(p.Address)}
	}
	if p.BFD != nil && p.BFD.Multihop == nil {
		p.BFD.Multihop = new((p.Multihop > 0 || p.TTLSecurity > 0) && !p.Address.IsLinkLocalUnicast())
	}
}
