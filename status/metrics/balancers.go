package metrics

import (
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/status/admin"
)

// collectBalancers reports balancers and the advertisements of members.
func collectBalancers(s admin.Status, t teller) {
	for _, b := range s.Balancers {
		t := t.of("balancer", b.Name)
		t.flag("balancer_in_force", "1 while the balancer takes connections, 0 while that is left to a load balancer of the user's own.", b.InForce())
		t.gauge("balancer_serving", "Backends of the balancer that take new connections.", float64(b.Serving()))
		t.flag("balancer_error", "1 while something stands in the way of the balancer, as status tells.", b.Error != "")
		for _, k := range b.Backends {
			t := t.of("backend", k.Name, "address", k.Addr.String())
			t.flag("balancer_backend_up", "1 while the backend takes new connections.", k.State == balancer.Serving)
			t.of("state", string(k.State)).gauge("balancer_backend_state", "1 for the state the backend is in: serving, draining or dead.", 1)
			t.count("balancer_connections_total", "Connections that the backend was given.", k.Connections)
			if k.Open >= 0 {
				t.gauge("balancer_open_connections", "Connections that the backend has; missing where that is not known.", float64(k.Open))
			}
		}
	}
	if s.Election == nil {
		return
	}
	for _, o := range s.Election.Offers {
		t := t.of("member", o.Member)
		t.flag("offer_draining", "1 while a member of the election says that it drains.", o.Draining)
		t.flag("offer_silent", "1 while a member of the election that offered something has not been heard for too long, or has left.", o.Silent || o.Left)
		for check, healthy := range o.Checks {
			t.of("check", check).flag("offer_healthy", "1 while a member of the election says that its check passes.", healthy)
		}
	}
}
