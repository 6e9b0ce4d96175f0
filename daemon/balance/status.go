package balance

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/status/admin"
)

// Status is that of the balancers of c.
func (n *Node) Status(c *config.Config) []admin.Balancer {
	var out []admin.Balancer
	for _, st := range n.set.Status() {
		configured, ok := find(c, st.Name)
		if !ok {
			continue // of another configuration, this very moment
		}
		one := admin.Balancer{
			Name: st.Name, Type: string(c.LoadBalancer.Type), Listen: listeners(c, configured),
			Mode: string(configured.Mode), Method: string(configured.Method), Checks: ownChecks(c, configured),
			Backends: []admin.Backend{}, Error: st.Error,
		}
		if len(st.Backends) == 0 {
			one.Unknown = unknown(configured.Backends)
		}
		for _, k := range st.Backends {
			one.Backends = append(one.Backends, admin.Backend{
				Name: k.Name, Address: k.Addr, State: admin.ServingState(k.State.String()), Reason: k.Reason, Since: k.Since,
				Connections: k.Connections, Open: k.Open,
			})
		}
		out = append(out, one)
	}
	return out
}

// Health is what decides on the health of the balancer of c that has this name, if there is one. It asks
// no plane what that counts.
func (n *Node) Health(c *config.Config, name string) []admin.Balancer {
	configured, ok := find(c, name)
	if !ok {
		return nil
	}
	one := admin.Balancer{Name: name, Checks: ownChecks(c, configured)}
	for _, k := range n.set.Backends(name) {
		one.Backends = append(one.Backends, admin.Backend{State: admin.ServingState(k.State.String())})
	}
	return []admin.Balancer{one}
}

// BridgeStatus lists the members to which new connections to an address are sent on, tells when
// that last began, and says so, or says why nothing could be done with them; it is empty if there
// is nothing to say.
func (n *Node) BridgeStatus(addr netip.Addr) (to []string, began time.Time, said string) {
	if to, began = n.passing.status(addr); len(to) == 0 {
		bridged, opened, fault := n.bridge.Status(addr)
		if to = bridged; opened.After(began) {
			began = opened
		}
		if fault != "" {
			return to, began, "no bridge when it leaves: " + fault
		}
	}
	if len(to) > 0 {
		said = "forwards new connections to " + strings.Join(to, ", ")
	}
	return to, began, said
}

// Passing is how packets of others' connections are passed on; nil if they are not to be.
func (n *Node) Passing() *admin.Passing {
	p := &n.passing
	is := p.chance.Status()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.vips) == 0 {
		return nil
	}
	out := &admin.Passing{Members: is.To, Passed: is.Passed, Answered: is.Answered, Refused: is.Refused, Error: is.Lacks}
	if is.Err != nil {
		out.Error = is.Err.Error()
	}
	return out
}

func find(c *config.Config, name string) (config.Balancer, bool) {
	i := slices.IndexFunc(c.Balancers, func(b config.Balancer) bool { return b.Name == name })
	if i < 0 {
		return config.Balancer{}, false
	}
	return c.Balancers[i], true
}

// unknown is what is missing for one of the backends to be known.
func unknown(of config.Backends) string {
	switch {
	case of.Members != nil:
		return "no member is heard that offers " + strings.Join(of.Members.Checks, " or ")
	case of.DNS != nil:
		return of.DNS.Name + " has no address yet"
	}
	return ""
}

// ownChecks are the checks by which b tells backends, if this node has any of them, and so
// is one itself.
func ownChecks(c *config.Config, b config.Balancer) []string {
	m := b.Backends.Members
	if m == nil || !slices.ContainsFunc(c.Checks, func(k health.Check) bool { return slices.Contains(m.Checks, k.Name) }) {
		return nil
	}
	return m.Checks
}
