//go:build e2e

package site

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/lab"
)

// Router is a node that runs FRR.
type Router struct{ *lab.Node }

// Show runs a show command of vtysh and reads its JSON into v.
func (r Router) Show(t *testing.T, v any, format string, args ...any) error {
	t.Helper()
	command := "show " + fmt.Sprintf(format, args...) + " json"
	out, err := Run(t, r.Node, "vtysh", "-c", command)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		return fmt.Errorf("%s on %s: %w:\n%s", command, r.Name(), err, out)
	}
	return nil
}

// Neighbor is FRR's view of a BGP session.
type Neighbor struct {
	State       string `json:"bgpState"`
	RemoteAS    uint32 `json:"remoteAs"`
	RouterID    string `json:"remoteRouterId"`
	Established int    `json:"connectionsEstablished"`

	HoldTime  int `json:"bgpTimerHoldTimeMsecs"`
	Keepalive int `json:"bgpTimerKeepAliveIntervalMsecs"`
	MD5       int `json:"authenticationEnabled"`
	MaxHops   int `json:"externalBgpNbrMaxHopsAway"`

	LocalAddress string `json:"hostLocal"`
	RemotePort   int    `json:"portForeign"`

	Capabilities struct {
		ExtendedNextHop string `json:"extendedNexthop"`
	} `json:"neighborCapabilities"`

	LastReset        string `json:"lastResetDueTo"`
	LastNotification string `json:"lastNotificationReason"`
	LastShutdown     string `json:"lastShutdownDescription"`
}

// Neighbor returns the session with the neighbor, named by address or interface.
func (r Router) Neighbor(t *testing.T, name string) (Neighbor, error) {
	t.Helper()
	var all map[string]Neighbor
	if err := r.Show(t, &all, "bgp neighbors %s", name); err != nil {
		return Neighbor{}, err
	}
	n, ok := all[name]
	if !ok {
		return Neighbor{}, fmt.Errorf("%s has no neighbor %s", r.Name(), name)
	}
	return n, nil
}

// Path is a path of FRR's BGP table.
type Path struct {
	// From is the neighbor that sent it.
	From             string
	ASPath           string
	MED              uint32
	LocalPref        uint32
	Communities      string
	LargeCommunities string
	// NextHop is the next hop in use.
	NextHop netip.Addr
}

// UnmarshalJSON reads FRR's form.
func (p *Path) UnmarshalJSON(data []byte) error {
	var raw struct {
		ASPath, Community, LargeCommunity struct{ String string }
		Metric, LocPrf                    uint32
		Valid                             bool
		Nexthops                          []struct {
			IP   netip.Addr
			Used bool
		}
		Peer struct{ PeerID string }
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*p = Path{
		From: raw.Peer.PeerID, ASPath: raw.ASPath.String, MED: raw.Metric, LocalPref: raw.LocPrf,
		Communities: raw.Community.String, LargeCommunities: raw.LargeCommunity.String,
	}
	for _, hop := range raw.Nexthops {
		if hop.Used && raw.Valid {
			p.NextHop = hop.IP
		}
	}
	return nil
}

// Paths returns the BGP paths to an address, and the version of FRR's table when it
// last changed any of them. Without paths it returns no error.
func (r Router) Paths(t *testing.T, vip string) (paths []Path, version int, err error) {
	t.Helper()
	var table struct {
		Paths   []Path
		Version int
	}
	err = r.Show(t, &table, "bgp %s unicast %s", Family(vip), HostPrefix(vip))
	return table.Paths, table.Version, err
}

func Family(address string) string {
	if strings.Contains(address, ":") {
		return "ipv6"
	}
	return "ipv4"
}

func HostPrefix(address string) netip.Prefix {
	a := netip.MustParseAddr(address)
	return netip.PrefixFrom(a, a.BitLen())
}
