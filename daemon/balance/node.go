// Package balance wires the balancers, the bridge and the second chance of a node: it passes them the configuration and the
// state of members, and reports their status.
package balance

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/bridge"
	"github.com/herald-vip/herald/balancer/nft"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/conntrack"
	"github.com/herald-vip/herald/status/admin"
)

// Node runs the balancers, the bridge and the second chance. Its methods are safe for concurrent use.
type Node struct {
	log     *slog.Logger
	set     *balancer.Set
	bridge  *bridge.Bridge
	passing passing
}

// New returns a Node without balancers. The caller makes and runs the data planes; End closes them.
func New(log *slog.Logger, kernel, proxy balancer.DataPlane, forwarder bridge.Kernel, chance Chance) *Node {
	return &Node{
		log: log, set: balancer.New(log, kernel, proxy), bridge: bridge.New(log, forwarder),
		passing: passing{chance: chance, inputs: inputs{leaving: make(map[netip.Addr]departure)}},
	}
}

// Open forwards new connections to addrs to members that serve them, at the latest until a time. The second chance passes
// their packets on unchanged where it can; the bridge forwards the others.
func (n *Node) Open(until time.Time, addrs ...netip.Addr) {
	n.passing.change(func(in *inputs) {
		for _, addr := range addrs {
			if in.has(addr) {
				in.leaving[addr] = departure{time.Now(), until}
			}
		}
	})
	n.bridge.Open(until, addrs...)
}

// Close stops forwarding. Call it before addrs are served here again.
func (n *Node) Close(addrs ...netip.Addr) {
	n.passing.change(func(in *inputs) {
		for _, addr := range addrs {
			delete(in.leaving, addr)
		}
	})
	n.bridge.Close(addrs...)
}

// Held counts, per VIP, the established connections from remote clients that other members forward here.
func (n *Node) Held(addrs ...netip.Addr) (map[netip.Addr]int, error) {
	if st := n.passing.chance.Status(); !st.Able || len(st.To) == 0 {
		return nil, nil // the connections end when routers stop sending
	}
	n.passing.mu.Lock()
	addrs = slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !n.passing.has(a) })
	n.passing.mu.Unlock()
	if len(addrs) == 0 {
		return nil, nil
	}
	return conntrack.Held(addrs...)
}

// SetBalancers replaces the balancers by the ones in c.
func (n *Node) SetBalancers(c *config.Config) error { return n.set.Apply(balancers(c)) }

// SetVIPs sets the VIPs of c that are bridged when they leave this node.
func (n *Node) SetVIPs(c *config.Config) {
	var bridged []bridge.VIP
	var all []netip.Addr
	for _, v := range c.VIPs {
		all = append(all, v.Addresses...)
		if *v.Bridge {
			bridged = append(bridged, bridge.VIP{Addresses: v.Addresses, Checks: v.Checks})
		}
	}
	n.bridge.SetVIPs(bridged, all)
	n.passing.setVIPs(c)
}

// SetLinks sets the links to routers.
func (n *Node) SetLinks(names []string) { n.passing.change(func(in *inputs) { in.links = names }) }

// SetMemberStates sets the states that members advertise.
func (n *Node) SetMemberStates(states []election.MemberState) {
	all, others := members(states)
	n.set.SetMembers(all)
	n.bridge.SetMembers(others)
	n.passing.change(func(in *inputs) { in.members = states })
}

// Run runs the bridge and the second chance until ctx is done.
func (n *Node) Run(ctx context.Context) {
	var chance sync.WaitGroup
	chance.Go(func() { n.passing.chance.Run(ctx) })
	n.bridge.Run(ctx)
	chance.Wait()
}

// End closes the balancers so that a successor loses no connection. Call it after Run has returned.
func (n *Node) End() {
	if err := n.set.Close(); err != nil {
		n.log.Warn("cannot hand the balancers over to a successor", "err", err)
	}
}

// Clear removes a predecessor's listeners from the kernel if c has neither a balancer in the kernel nor a bridge.
func Clear(log *slog.Logger, c *config.Config) {
	listens := slices.ContainsFunc(c.Balancers, func(b balancer.Config) bool { return b.Mode == balancer.Kernel })
	bridged := slices.ContainsFunc(c.VIPs, func(v config.VIP) bool { return *v.Bridge })
	if listens || bridged {
		return
	}
	if err := nft.Clear(); err != nil {
		log.Debug("cannot remove the balancers of an earlier herald", "err", err)
	}
}

// balancers returns the balancers of c with VIPs resolved to addresses. With an external load balancer they have no listeners, which
// keeps established connections.
func balancers(c *config.Config) []balancer.Config {
	var out []balancer.Config
	for _, b := range c.Balancers {
		addrs := listeners(c, b)
		b.Listen = nil
		if c.LoadBalancer.Type == config.Internal {
			for _, addr := range addrs {
				b.Listen = append(b.Listen, balancer.Listener{Address: addr})
			}
		}
		out = append(out, b)
	}
	return out
}

// listeners returns the addresses and ports of b's listeners.
func listeners(c *config.Config, b balancer.Config) []netip.AddrPort {
	var out []netip.AddrPort
	for _, p := range c.Places(b) {
		out = append(out, p.AddrPort)
	}
	return out
}

// members converts the state of all members, and of all except this node.
func members(states []election.MemberState) (all, others []balancer.Member) {
	for _, o := range states {
		m := member(o)
		all = append(all, m)
		if !o.Self {
			others = append(others, m)
		}
	}
	return all, others
}

// Status returns the status of the balancers of c.
func (n *Node) Status(c *config.Config) []admin.Balancer {
	var out []admin.Balancer
	for _, st := range n.set.Status() {
		configured, ok := find(c, st.Name)
		if !ok {
			continue // the configuration is changing
		}
		b := admin.Balancer{Status: st, Type: string(c.LoadBalancer.Type), Checks: ownChecks(c, configured)}
		b.Listen = listeners(c, configured)
		if len(st.Backends) == 0 {
			b.Backends, b.Unknown = []balancer.BackendStatus{}, unknown(configured.Backends)
		}
		out = append(out, b)
	}
	return out
}

// Health returns the part of the status that decides on the health of a balancer; nil if c has no such balancer. It reads no
// counters.
func (n *Node) Health(c *config.Config, name string) []admin.Balancer {
	configured, ok := find(c, name)
	if !ok {
		return nil
	}
	b := admin.Balancer{Status: balancer.Status{Name: name}, Checks: ownChecks(c, configured)}
	for _, k := range n.set.Backends(name) {
		b.Backends = append(b.Backends, balancer.BackendStatus{Backend: k})
	}
	return []admin.Balancer{b}
}

// BridgeStatus returns the members that new connections to an address are forwarded to, and when that last began. The text
// names the members or the error; it is empty without either.
func (n *Node) BridgeStatus(addr netip.Addr) (members []string, began time.Time, text string) {
	if members, began = n.passing.status(addr); len(members) == 0 {
		bridged, opened, fault := n.bridge.Status(addr)
		if members = bridged; opened.After(began) {
			began = opened
		}
		if fault != "" {
			return members, began, "no bridge when it leaves: " + fault
		}
	}
	if len(members) > 0 {
		text = "forwards new connections to " + strings.Join(members, ", ")
	}
	return members, began, text
}

// Passing returns the status of the second chance; nil if it is not used.
func (n *Node) Passing() *admin.Passing {
	p := &n.passing
	st := p.chance.Status()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.vips) == 0 {
		return nil
	}
	out := &admin.Passing{Members: st.To, Passed: st.Passed, Answered: st.Answered, Refused: st.Refused, Error: st.Lacks}
	if st.Err != nil {
		out.Error = st.Err.Error()
	}
	return out
}

func find(c *config.Config, name string) (balancer.Config, bool) {
	i := slices.IndexFunc(c.Balancers, func(b balancer.Config) bool { return b.Name == name })
	if i < 0 {
		return balancer.Config{}, false
	}
	return c.Balancers[i], true
}

// unknown says why no backend is known.
func unknown(b balancer.Backends) string {
	switch {
	case b.Members != nil:
		return "no known member has the check " + strings.Join(b.Members.Checks, " or ")
	case b.DNS != nil:
		return b.DNS.Name + " has no address yet"
	}
	return ""
}

// ownChecks returns the checks of b's members if this node has any of them, which makes it a backend itself.
func ownChecks(c *config.Config, b balancer.Config) []string {
	m := b.Backends.Members
	if m == nil || !slices.ContainsFunc(c.Checks, func(k health.Check) bool { return slices.Contains(m.Checks, k.Name) }) {
		return nil
	}
	return m.Checks
}
