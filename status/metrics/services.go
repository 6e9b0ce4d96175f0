package metrics

import "github.com/herald-vip/herald/status/admin"

// collectServices reports totals and counts by pool, not by Service, of which there may be thousands.
func collectServices(s *admin.Services, t teller) {
	number := func(name, help string, n int) { t.gauge(name, help, float64(n)) }
	number("services", "Services of type LoadBalancer that are Herald's.", s.Total)
	t.flag("services_synced", "1 once everything has been heard from the Kubernetes API: before, no Service is announced.", s.Synced)
	number("service_routes", "Prefixes announced for Services.", s.Routes)
	number("service_routes_failing", "Prefixes for Services that the BGP speaker would not take, or take back.", s.Failing)
	number("service_addresses_standing", "Addresses of Services on a flat layer 2 that this node would take the lease of.", s.Stands)
	number("service_addresses_held", "Addresses of Services that this node answers for on a flat layer 2.", s.Held)
	number("service_addresses_obstructed", "Addresses of Services on a flat layer 2 with something in their way, or used by a machine that is no member, too.", s.Obstructed)
	number("bgppeer_left_out", "BGPPeer resources that are for this node but not in force, as status tells.", len(s.LeftOut))
	for _, p := range s.Pools {
		collectPool(p, t.of("pool", p.Name))
	}
	if w := s.Writer; w != nil {
		t.flag("service_writer", "1 while this node is the one that gives Services their addresses, 0 while it stands for it.", w.Writes)
		for reason, n := range w.Refused {
			t.of("reason", reason).gauge("service_refused", "Services that have not got all that they ask for, by the reason in their condition; told by the writer.", float64(n))
		}
		t.count("service_assignments_total", "Statuses of Services that this node wrote with other addresses.", w.Assignments)
		t.count("service_refusals_total", "Statuses of Services that this node wrote with another reason why there is no address.", w.Refusals)
		t.counts("service_writes_total", "Requests that this node sent as the writer, by kind of object.",
			"kind", map[string]uint64{"service": w.ServiceWrites, "pool": w.PoolWrites, "event": w.EventWrites})
	}
	k := s.Kubernetes
	troubles := len(k.Troubles)
	if k.Unconnected != "" {
		troubles++
	}
	number("kube_troubles", "Kinds of objects and Secrets that the Kubernetes API does not tell of now; 1 without a connection.", troubles)
	t.time("kube_answered_timestamp_seconds", "When the Kubernetes API last answered a request; changes come without one.", k.Answered)
	t.counts("kube_requests_total", "Requests to the Kubernetes API by what they are for; a watch is one, however long.",
		"verb", map[string]uint64{"read": k.Reads, "watch": k.Watches, "write": k.Writes})
	t.count("kube_failures_total", "Requests that the Kubernetes API did not answer, or with an error.", k.Failed)
}

func collectPool(p admin.Pool, t teller) {
	for stage, n := range map[string]int{"announced": p.Announced, "draining": p.Draining, "withdrawn": p.Withdrawn} {
		t.of("stage", stage).gauge("service_addresses", "Addresses of Services by the stage of their announcement by BGP from this node; pool is empty for those in no pool.", float64(n))
	}
	t.gauge("service_addresses_flat", "Addresses of Services that this node may hold on a flat layer 2.", float64(p.Flat))
	if p.Name == "" {
		return // what is in no pool
	}
	for family, u := range map[string]*admin.Usage{"ipv4": p.IPv4, "ipv6": p.IPv6} {
		if u != nil {
			t := t.of("family", family)
			t.gauge("pool_addresses", "Addresses that an address pool has for Services, as the writer says.", u.Capacity)
			t.gauge("pool_addresses_used", "Addresses of an address pool that Services have, as the writer says.", float64(u.Used))
		}
	}
	t.gauge("pool_conflicts", "What keeps addresses of a pool from being used, as the writer says: see its status.", float64(p.Conflicts))
	t.flag("pool_error", "1 while this node cannot use an address pool as it is.", p.Error != "")
}
