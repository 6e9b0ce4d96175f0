package metrics

import (
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/status/admin"
)

// collectBalancers reports balancers and the advertisements of members.
func collectBalancers(s admin.Status, t teller) {
	for _, b := range s.Balancers {
		t := t.of("balancer", b.Name)
		t.flag("balancer_in_force", "1 while the balancer takes connections, 0 while the user's own load balancer takes them.", b.InForce())
		t.gauge("balancer_serving", "Backends of the balancer that take new connections.", float64(b.Serving()))
		t.flag("balancer_error", "1 while the balancer has an error, which status shows.", b.Error != "")
		for _, k := range b.Backends {
			t := t.of("backend", k.Name, "address", k.Addr.String())
			t.flag("balancer_backend_up", "1 while the backend takes new connections.", k.State == balancer.Serving)
			t.of("state", string(k.State)).gauge("balancer_backend_state", "1 for the state the backend is in: serving, draining or dead.", 1)
			t.count("balancer_connections_total", "Connections given to the backend.", k.Connections)
			if k.Open >= 0 {
				t.gauge("balancer_open_connections", "Present connections of the backend; missing if unknown.", float64(k.Open))
			}
		}
	}
	if s.Election == nil {
		return
	}
	for _, o := range s.Election.Offers {
		t := t.of("member", o.Member)
		t.flag("offer_draining", "1 while the member advertises that it drains.", o.Draining)
		t.flag("offer_silent", "1 while the member's advertisement has timed out, or the member has left.", o.TimedOut || o.Left)
		for check, healthy := range o.Checks {
			t.of("check", check).flag("offer_healthy", "1 while the member advertises that its check passes.", healthy)
		}
	}
}
