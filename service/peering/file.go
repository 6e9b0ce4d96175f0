package peering

import (
	"slices"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/yaml"
)

// FileConfig returns the bgp section of c, with defaults if there is none. Its ASN is 0 without a section, and its
// router ID is invalid if c sets none.
func FileConfig(c *config.Config) bgp.Config {
	b := c.BGP
	if b == nil {
		b = new(config.BGP)
		yaml.SetDefaults(b)
	}
	out := bgp.Config{ASN: b.ASN, RouterID: b.RouterID, ConnectRetry: b.ConnectRetry, Peers: slices.Clone(b.Peers)}
	if l := b.Listen; l != nil {
		out.ListenPort, out.ListenAddresses = l.Port, l.Addresses
	}
	return out
}
