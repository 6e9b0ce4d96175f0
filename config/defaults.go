package config

import (
	"net/netip"
	"strings"
	"time"
)

func (c *Config) SetDefaults() {
	c.ARP.SetDefaults()
	c.LoadBalancer.SetDefaults()
	c.Admin.SetDefaults()
	c.Metrics.SetDefaults()
}

func (v *VIP) SetDefaults() {
	v.Linger = time.Second
	v.HoldDown = time.Minute
	v.OnFailure = Withdraw
	v.Priority = 100
	v.OnConflict = Defend
}

func (c *Check) SetDefaults() {
	c.Interval = 200 * time.Millisecond
	c.Timeout = 300 * time.Millisecond
	c.Rise = 2
	c.Fall = 2
}

func (h *HTTPCheck) SetDefaults() { h.Status = []int{200} }

func (s *Services) SetDefaults() {
	s.LoadBalancerClass = "herald.dev/vip"
	s.DefaultClass = true
	s.Assign = true
	s.Linger = time.Second
}

func (b *BGP) SetDefaults() { b.ConnectRetry = 2 * time.Second }

func (l *Listen) SetDefaults() { l.Port = 179 }

func (p *Peer) SetDefaults() {
	p.Port = 179
	p.HoldTime = 3 * time.Second
}

func (b *BFD) SetDefaults() {
	b.Interval = 50 * time.Millisecond
	b.Multiplier = 3
}

func (e *Election) SetDefaults() {
	e.Lease = 600 * time.Millisecond
	e.Quorum = Majority
}

func (a *ARP) SetDefaults() {
	a.Refresh = time.Minute
	a.Fence = FenceAuto
}

func (l *LoadBalancer) SetDefaults() { l.Type = Internal }

func (b *Balancer) SetDefaults() {
	b.Method = RoundRobin
	b.Mode = Kernel
	b.Forget = 4 * time.Hour
}

func (d *DNS) SetDefaults() { d.Interval = 30 * time.Second }

func (c *Probe) SetDefaults() {
	c.Interval = 200 * time.Millisecond
	c.Timeout = 300 * time.Millisecond
	c.Rise = 2
	c.Fall = 2
}

func (a *Admin) SetDefaults() { a.Socket = "/run/herald/herald.sock" }

func (m *Metrics) SetDefaults() { m.Listen = "127.0.0.1:9474" }

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
		if v.Bridge == nil {
			v.Bridge = new(c.Election != nil)
		}
		for i, name := range v.Peers {
			if addr, err := netip.ParseAddr(name); err == nil {
				v.Peers[i] = addr.String() // as the peer is named, however it is written
			}
		}
	}
	if c.Election != nil && !c.Election.Bind.IsValid() {
		c.Election.Bind = c.Election.Members[c.NodeName]
	}
	for i := range c.Balancers {
		c.Balancers[i].derive()
	}
	if c.BGP == nil {
		return
	}
	for i := range c.BGP.Peers {
		c.BGP.Peers[i].derive()
	}
}

// derive sets the check of backends that have none, as far as there is to be one.
func (b *Balancer) derive() {
	if b.Check == nil && b.Backends.Members == nil {
		b.Check = new(Probe)
		b.Check.SetDefaults()
	}
	if b.Check != nil && b.Check.HTTP == nil && b.Check.TCP == nil {
		b.Check.TCP = &TCPCheck{Address: BackendHost}
	}
}

// derive sets the defaults of a peer that depend on its other fields.
func (p *Peer) derive() {
	if p.Families == nil {
		p.Families = defaultFamilies(p)
	}
	if p.BFD != nil && p.BFD.Multihop == nil {
		p.BFD.Multihop = new((p.Multihop > 0 || p.TTLSecurity > 0) && !p.Address.IsLinkLocalUnicast())
	}
}

func defaultFamilies(p *Peer) []Family {
	switch {
	case p.Interface != "":
		return []Family{IPv4, IPv6}
	case p.Address.IsValid():
		return []Family{familyOf(p.Address)}
	}
	return nil
}
