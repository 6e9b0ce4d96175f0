package metrics

import (
	"strings"

	"github.com/herald-vip/herald/admin"
)

// This file tells of balancers, and of what members of the election say they serve.

func describeBalancers(desc func(name, help string, labels ...string)) {
	desc("balancer_in_force", "1 while the balancer takes connections, 0 while that is left to a load balancer of the user's own.", "balancer")
	desc("balancer_serving", "Backends of the balancer that take new connections.", "balancer")
	desc("balancer_error", "1 while something stands in the way of the balancer, as status tells.", "balancer")
	desc("balancer_backend_up", "1 while the backend takes new connections.", "balancer", "backend", "address")
	desc("balancer_backend_state", "1 for the state the backend is in: serving, draining or dead.", "balancer", "backend", "address", "state")
	desc("balancer_connections_total", "Connections that the backend was given.", "balancer", "backend", "address")
	desc("balancer_open_connections", "Connections that the backend has; missing where that is not known.", "balancer", "backend", "address")
	desc("offer_healthy", "1 while a member of the election says that its check passes.", "member", "check")
	desc("offer_draining", "1 while a member of the election says that it drains.", "member")
	desc("offer_silent", "1 while a member of the election that offered something has not been heard for too long, or has left.", "member")
	desc("vip_bridged", "1 while new connections to the address are sent on to other nodes, since it is on its way out.", "vip", "address")
}

func collectBalancers(s admin.Status, gauge, count func(string, float64, ...string)) {
	for _, b := range s.Balancers {
		gauge("balancer_in_force", truth(b.InForce()), b.Name)
		gauge("balancer_serving", float64(b.Serving()), b.Name)
		gauge("balancer_error", truth(b.Error != ""), b.Name)
		for _, k := range b.Backends {
			labels := []string{b.Name, k.Name, k.Address.String()}
			gauge("balancer_backend_up", truth(k.State == "serving"), labels...)
			gauge("balancer_backend_state", 1, append(labels, k.State)...)
			count("balancer_connections_total", float64(k.Connections), labels...)
			if k.Open >= 0 {
				gauge("balancer_open_connections", float64(k.Open), labels...)
			}
		}
	}
	for _, v := range s.VIPs {
		gauge("vip_bridged", truth(strings.HasPrefix(v.Bridge, admin.Forwards)), v.Name, v.Address.String())
	}
	if s.Election == nil {
		return
	}
	for _, o := range s.Election.Offers {
		gauge("offer_draining", truth(o.Draining), o.Member)
		gauge("offer_silent", truth(o.Silent || o.Left), o.Member)
		for check, healthy := range o.Checks {
			gauge("offer_healthy", truth(healthy), o.Member, check)
		}
	}
}
