package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/health"
)

// Balancer spreads connections over backends.
type Balancer struct {
	balancer.Status
	// Type is internal, or external if the user's own load balancer takes the connections instead.
	Type string `json:"type"`
	// Checks are the checks of this node that make it a backend itself; empty if it is not one.
	Checks []string `json:"checks,omitempty"`
	// Unknown says why no backend is known; empty if one is.
	Unknown string `json:"unknown,omitempty"`
}

// Offer is the last advertisement of a member.
type Offer struct{ advertisement.MemberState }

// ServingState tells whether a member that advertises its health takes new connections.
type ServingState string

// States of members.
const (
	ServingNew      ServingState = "serving"
	ServingDraining ServingState = "draining"
	ServingSilent   ServingState = "silent"
	ServingLeft     ServingState = "left"
)

// Serving counts the backends that take new connections.
func (b Balancer) Serving() int {
	n := 0
	for _, backend := range b.Backends {
		if backend.State == balancer.Serving {
			n++
		}
	}
	return n
}

// InForce reports whether the balancer takes connections.
func (b Balancer) InForce() bool { return b.Type != "external" }

// Why says why the balancer does not work, or takes no connections; empty if all is well.
func (b Balancer) Why() string {
	const external = "loadBalancer.type is external: takes no connections"
	switch {
	case !b.InForce() && b.Error != "":
		return external + "; " + b.Error
	case !b.InForce():
		return external
	case b.Error != "":
		return b.Error
	case len(b.Backends) == 0 && b.Unknown != "":
		return "no backend is known: " + b.Unknown
	case len(b.Backends) == 0:
		return "no backend is known"
	case b.Serving() == 0:
		return "no backend serves: " + b.Backends[0].Name + ": " + b.Backends[0].Reason
	}
	return ""
}

// State returns the member's state in a word.
func (o Offer) State() ServingState {
	switch {
	case o.Left:
		return ServingLeft
	case o.TimedOut:
		return ServingSilent
	case o.Draining:
		return ServingDraining
	}
	return ServingNew
}

// Said lists the checks of the advertisement, sorted, with a mark at unhealthy ones.
func (o Offer) Said() string {
	var said []string
	for name, healthy := range o.Checks {
		if !healthy {
			name += " (unhealthy)"
		}
		said = append(said, name)
	}
	slices.Sort(said)
	return strings.Join(said, ", ")
}

// Healthy tells the user's own load balancer whether to send connections for a name to this node, and why. A VIP is
// healthy if its checks pass here. A balancer is healthy if its checks of this node pass or, without such checks, if it
// has a serving backend. Any other name is that of a check. A draining node is not healthy. known is false for unknown
// names.
func (s Status) Healthy(name string) (known, healthy bool, why string) {
	known, healthy, why = s.serves(name)
	if known && s.Draining != "" {
		return true, false, "draining: " + s.Draining
	}
	return known, healthy, why
}

func (s Status) serves(name string) (known, healthy bool, why string) {
	for _, v := range s.VIPs {
		if v.Name == name && len(v.Checks) > 0 { // without checks, it has just left the file
			healthy, why = s.pass(v.Checks)
			return true, healthy, why
		}
	}
	for _, b := range s.Balancers {
		switch {
		case b.Name != name:
		case len(b.Checks) > 0:
			healthy, why = s.pass(b.Checks)
			return true, healthy, why
		case b.Serving() > 0:
			return true, true, fmt.Sprintf("%d of %d backends serve", b.Serving(), len(b.Backends))
		case len(b.Backends) > 0:
			return true, false, fmt.Sprintf("none of %d backends serves", len(b.Backends))
		default:
			return true, false, "no backend is known"
		}
	}
	if slices.ContainsFunc(s.Checks, func(c health.Verdict) bool { return c.Name == name }) {
		healthy, why = s.pass([]string{name})
		return true, healthy, why
	}
	return false, false, fmt.Sprintf("no VIP, balancer or check has the name %q", name)
}

// pass reports whether all the named checks pass; if not, it names one and its reason.
func (s Status) pass(names []string) (bool, string) {
	for _, name := range names {
		i := slices.IndexFunc(s.Checks, func(c health.Verdict) bool { return c.Name == name })
		switch {
		case i < 0:
			return false, fmt.Sprintf("%s: this node has no such check", name)
		case s.Checks[i].State != health.Healthy:
			return false, fmt.Sprintf("%s %s: %s", name, s.Checks[i].State, s.Checks[i].Reason)
		}
	}
	return true, strings.Join(names, ", ") + " healthy"
}

// writeBalancers renders the balancers and their backends.
func (s Status) writeBalancers(t table) {
	if len(s.Balancers) == 0 {
		return
	}
	t.head("BALANCER", "LISTENS AT", "MODE", "METHOD", "SERVING", "WHY")
	for _, b := range s.Balancers {
		var listen []string
		for _, at := range b.Listen {
			listen = append(listen, at.String())
		}
		t.Row(b.Name, strings.Join(listen, ", "), string(b.Mode), string(b.Method), fmt.Sprintf("%d of %d", b.Serving(), len(b.Backends)), b.Why())
	}
	t.head("BACKEND", "OF", "ADDRESS", "STATE", "FOR", "CONNECTIONS", "OPEN", "WHY")
	for _, b := range s.Balancers {
		for _, backend := range b.Backends {
			open := ""
			if backend.Open >= 0 {
				open = fmt.Sprint(backend.Open)
			}
			t.Row(backend.Name, b.Name, backend.Addr.String(), string(backend.State), t.ago(backend.Since), fmt.Sprint(backend.Connections), open, backend.Reason)
		}
	}
}

// writeOffers renders the advertisements of the members.
func (e *Election) writeOffers(t table) {
	if len(e.Offers) == 0 {
		return
	}
	t.head("OFFERED BY", "STATE", "HEARD", "CHECKS")
	for _, o := range e.Offers {
		heard := t.ago(o.Received) + " ago"
		if o.Self {
			heard = "this node"
		}
		t.Row(o.Member, string(o.State()), heard, o.Said())
	}
}
