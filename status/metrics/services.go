package metrics

import "github.com/herald-vip/herald/status/admin"

// collectServices reports totals and counts by pool. There is no metric per Service, as there may be thousands.
func collectServices(s *admin.Services, t teller) {
	number := func(name, help string, n int) { t.gauge(name, help, float64(n)) }
	number("services", "Services of type LoadBalancer that are Herald's.", s.Total)
	t.flag("services_synced", "1 once all objects have been read from the Kubernetes API; no Service is announced before that.", s.Synced)
	number("service_routes", "Prefixes announced for Services.", s.Routes)
	number("service_routes_failing", "Prefixes for Services that the BGP speaker refuses to announce or to withdraw.", s.Failing)
	number("service_addresses_standing", "Addresses of Services on a flat layer 2 that this node campaigns for.", s.Stands)
	number("service_addresses_held", "Addresses of Services that this node answers for on a flat layer 2.", s.Held)
	number("service_addresses_obstructed", "Addresses of Services on a flat layer 2 that have an error, or that a machine uses that is not a member.", s.Obstructed)
	number("bgppeer_left_out", "BGPPeer resources that are for this node but not in force; status shows why.", len(s.LeftOut))
	for _, p := range s.Pools {
		collectPool(p, t.of("pool", p.Name))
	}
	if w := s.Writer; w != nil {
		t.flag("service_writer", "1 while this node gives Services their addresses, 0 while it is only a candidate for that.", w.Writes)
		for reason, n := range w.Refused {
			t.of("reason", reason).gauge("service_refused", "Services that lack something they ask for, by the reason in their condition; reported by the writer.", float64(n))
		}
		t.count("service_assignments_total", "Statuses of Services that this node wrote with other addresses.", w.Assignments)
		t.count("service_refusals_total", "Statuses of Services that this node wrote with another reason for a missing address.", w.Refusals)
		t.counts("service_writes_total", "Requests that this node sent as the writer, by kind of object.",
			"kind", map[string]uint64{"service": w.ServiceWrites, "pool": w.PoolWrites, "event": w.EventWrites})
	}
	k := s.Kubernetes
	troubles := len(k.Troubles)
	if k.Unconnected != "" {
		troubles++
	}
	number("kube_troubles", "Kinds of objects and Secrets that cannot be read from the Kubernetes API now; 1 without a connection.", troubles)
	t.time("kube_answered_timestamp_seconds", "When the Kubernetes API last answered a request; events of watches do not count.", k.Answered)
	t.counts("kube_requests_total", "Requests to the Kubernetes API by purpose; a watch is one request.",
		"verb", map[string]uint64{"read": k.Reads, "watch": k.Watches, "write": k.Writes})
	t.count("kube_failures_total", "Requests without an answer from the Kubernetes API, or answered with an error.", k.Failed)
}

func collectPool(p admin.Pool, t teller) {
	for stage, n := range map[string]int{"announced": p.Announced, "draining": p.Draining, "withdrawn": p.Withdrawn} {
		t.of("stage", stage).gauge("service_addresses", "Addresses of Services by the stage of their announcement by BGP from this node; pool is empty for those in no pool.", float64(n))
	}
	t.gauge("service_addresses_flat", "Addresses of Services that this node may hold on a flat layer 2.", float64(p.Flat))
	if p.Name == "" {
		return // addresses in no pool
	}
	for family, u := range map[string]*admin.Usage{"ipv4": p.IPv4, "ipv6": p.IPv6} {
		if u != nil {
			t := t.of("family", family)
			t.gauge("pool_addresses", "Addresses that the pool has for Services, as reported by the writer.", u.Capacity)
			t.gauge("pool_addresses_used", "Addresses of the pool that Services have, as reported by the writer.", float64(u.Used))
		}
	}
	t.gauge("pool_conflicts", "Conflicts that keep addresses of the pool from being used, as reported by the writer; the pool's status lists them.", float64(p.Conflicts))
	t.flag("pool_error", "1 while this node cannot use the present version of the pool.", p.Error != "")
}
