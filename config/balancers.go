package config

import (
	"net/netip"
	"slices"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/health"
)

// LoadBalancerType selects the load balancer that the nodes use.
type LoadBalancerType string

// The types of load balancer.
const (
	// Internal uses Herald's balancers.
	Internal LoadBalancerType = "internal"
	// External uses a load balancer of the user.
	External LoadBalancerType = "external"
)

// LoadBalancer switches between Herald's balancers and an external one.
type LoadBalancer struct {
	// Type is `internal` or `external`. With `internal` the balancers are in force. With `external` they accept no new connections and keep the established ones; an external load balancer probes `GET /healthz/NAME` on the metrics listener, with the name of a VIP, balancer or check. Default: internal.
	Type LoadBalancerType `yaml:"type" default:"internal" want:"internal or external"`
}

// Place is an address at which a balancer listens. VIP is the name of its VIP, if any.
type Place struct {
	netip.AddrPort
	VIP string
}

// Places returns all places of a balancer.
func (c *Config) Places(b balancer.Config) []Place {
	var out []Place
	for _, l := range b.Listen {
		out = append(out, c.placesOf(l)...)
	}
	return out
}

func (c *Config) placesOf(l balancer.Listener) []Place {
	if l.VIP == "" {
		return []Place{{l.Address, ""}}
	}
	var out []Place
	for _, v := range c.VIPs {
		if v.Name != l.VIP {
			continue
		}
		for _, addr := range v.Addresses {
			out = append(out, Place{netip.AddrPortFrom(addr, l.Port), v.Name})
		}
	}
	return out
}

// HTTPChecks returns the HTTP checks of checks and balancers, and for its files each gRPC check as one without a URL.
func (c *Config) HTTPChecks() []*health.HTTP {
	var out []*health.HTTP
	for _, k := range c.Checks {
		out = append(out, k.HTTP, k.GRPC.TLS())
	}
	for _, b := range c.Balancers {
		if b.Check != nil {
			out = append(out, b.Check.HTTP)
		}
	}
	return slices.DeleteFunc(out, func(h *health.HTTP) bool { return h == nil })
}

// Flat reports whether a VIP is announced on a flat layer 2.
func (c *Config) Flat() bool {
	return slices.ContainsFunc(c.VIPs, func(v VIP) bool { return v.Announce == AnnounceARP })
}
