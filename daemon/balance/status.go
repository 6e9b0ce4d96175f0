package balance

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/status/admin"
)

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
