package services

import (
	"net/netip"

	"github.com/herald-vip/herald/testenv/routes"
)

// WatchRoutes begins to follow the routes to the addresses of [PoolBGP] in the
// router's kernel. The caller closes it.
func (l *Lab) WatchRoutes() (*routes.Watch, error) {
	return routes.Follow(l.Node("r1"), netip.MustParsePrefix(ByBGP), nil)
}
