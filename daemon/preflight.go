package daemon

import (
	"net/netip"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
)

// HealthChecks are the checks of c as the daemon runs them.
func HealthChecks(c *config.Config) []health.Check { return healthChecks(c) }

// BGPConfig is the speaker of c as the daemon runs it. routerID serves if c sets none.
func BGPConfig(c *config.Config, routerID netip.Addr) (bgp.Config, error) {
	out, err := bgpConfig(c)
	if !out.RouterID.IsValid() {
		out.RouterID = routerID
	}
	return out, err
}
