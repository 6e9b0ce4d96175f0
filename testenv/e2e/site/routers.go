//go:build e2e

package site

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/routes"
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

// RouteWatcher follows a router's kernel routes to VIPs.
type RouteWatcher struct {
	t     *testing.T
	node  *lab.Node
	watch *routes.Watch
}

// WatchRoutes starts a watcher in the router's network. It misses no change from here on.
func WatchRoutes(t *testing.T, n *lab.Node) *RouteWatcher {
	t.Helper()
	w := Get[*routes.Watch](t)(routes.Follow(n, netip.Prefix{}, nil))
	t.Cleanup(func() { Must(t, w.Close()) })
	return &RouteWatcher{t, n, w}
}

// Mark discards all changes up to now.
func (r *RouteWatcher) Mark() {
	r.t.Helper()
	r.sync()
	r.watch.Mark()
}

// sync waits until the watch has read all earlier changes.
func (r *RouteWatcher) sync() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), Soon)
	defer cancel()
	Must(r.t, r.watch.Sync(ctx))
}

// Gone waits until the router has no route to an address.
func (r *RouteWatcher) Gone(ctx context.Context, a netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, Soon)
	defer cancel()
	_, err := r.watch.AwaitHops(ctx, a)
	return err
}

// Since returns the changes since the last mark, up to now.
func (r *RouteWatcher) Since() []routes.Change {
	r.t.Helper()
	r.sync()
	return slices.DeleteFunc(r.watch.Changes(), func(c routes.Change) bool { return c.Existing || !IsVIP(c.Prefix) })
}

// First returns when the first route via the next hop appeared; zero if none has.
func (r *RouteWatcher) First(hop netip.Addr) time.Time {
	for _, c := range r.Since() {
		if slices.Contains(c.Now, hop) {
			return c.At
		}
	}
	return time.Time{}
}

// Lost returns when the first route was lost; zero if none was.
func (r *RouteWatcher) Lost() time.Time {
	for _, c := range r.Since() {
		if len(c.Now) == 0 {
			return c.At
		}
	}
	return time.Time{}
}

// lag bounds the delay of a change's time after the kernel's change. The watcher takes
// the time when it reads the message, and on a busy machine it has to wait for a
// processor.
const lag = 100 * time.Millisecond

// Cuts reports whether one of the changes may have happened between two instants. A
// test that excuses failures by it also bounds their number.
func Cuts(changes []routes.Change, start, end time.Time) bool {
	return slices.ContainsFunc(changes, func(c routes.Change) bool { return !c.At.Before(start) && !c.At.After(end.Add(lag)) })
}

// Untouched checks that no route has changed since the last mark.
func (r *RouteWatcher) Untouched(t *testing.T) {
	t.Helper()
	if changes := r.Since(); len(changes) > 0 {
		t.Errorf("the routes of %s changed: %v", r.node.Name(), changes)
	}
}

// Kept checks that no route was lost since the last mark.
func (r *RouteWatcher) Kept(t *testing.T) {
	t.Helper()
	if !r.Lost().IsZero() {
		t.Errorf("%s lost a route: %v", r.node.Name(), r.Since())
	}
}

// replacement bounds FRR's time between the two messages that change an IPv6 route: it
// removes the old one and adds the new one.
const replacement = 100 * time.Millisecond

// Steps returns the successive sets of next hops of the route to the VIP since the
// last mark, each sorted and empty if there was no route.
func (r *RouteWatcher) Steps(vip string) []Step {
	changes := slices.DeleteFunc(r.Since(), func(c routes.Change) bool { return c.Prefix != HostPrefix(vip) })
	var out []Step
	for i, c := range changes {
		if len(c.Now) == 0 && i+1 < len(changes) && len(changes[i+1].Now) > 0 && changes[i+1].At.Sub(c.At) < replacement {
			continue
		}
		if len(out) == 0 || !slices.Equal(out[len(out)-1].NextHops, c.Now) {
			out = append(out, Step{c.At, c.Now})
		}
	}
	return out
}

// Step is a set of next hops, and when the route got it.
type Step struct {
	At       time.Time
	NextHops []netip.Addr
}

func (s Step) String() string { return fmt.Sprintf("%s: %v", s.At.Format(time.StampMilli), s.NextHops) }

// KernelRoutes returns the node's routes to the VIP.
func KernelRoutes(n *lab.Node, vip string) ([]netlink.Route, error) {
	h, err := n.Handle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	dst := HostPrefix(vip).Addr().AsSlice()
	list, err := h.RouteListFiltered(nl.GetIPFamily(dst), &netlink.Route{Dst: netlink.NewIPNet(dst)}, netlink.RT_FILTER_DST)
	if err != nil {
		return nil, fmt.Errorf("routes of %s: %w", n.Name(), err)
	}
	return list, nil
}

func IsVIP(p netip.Prefix) bool {
	return p.IsSingleIP() && (netip.MustParsePrefix("10.99.0.0/16").Contains(p.Addr()) ||
		netip.MustParsePrefix("fd00:99::/64").Contains(p.Addr()))
}

// Hops returns the next hops of the node's routes to the VIP, in order.
func Hops(n *lab.Node, vip string) (hops []netip.Addr, err error) {
	list, err := KernelRoutes(n, vip)
	for _, route := range list {
		hops = append(hops, routes.NextHops(route)...)
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return hops, err
}
