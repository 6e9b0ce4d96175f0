package metrics

import (
	"github.com/herald-vip/herald/admin"
)

// This file tells of Kubernetes Services, of which there may be thousands: counts by
// pool, and nothing by Service.

func describeServices(desc func(name, help string, labels ...string)) {
	desc("services", "Services of type LoadBalancer that are Herald's.")
	desc("services_synced", "1 once everything has been heard from the Kubernetes API: before, no Service is announced.")
	desc("service_addresses", "Addresses of Services by the stage of their announcement by BGP from this node; pool is empty for those in no pool.", "pool", "stage")
	desc("service_addresses_flat", "Addresses of Services that this node may hold on a flat layer 2.", "pool")
	desc("service_addresses_standing", "Addresses of Services on a flat layer 2 that this node would take the lease of.")
	desc("service_addresses_held", "Addresses of Services that this node answers for on a flat layer 2.")
	desc("service_addresses_obstructed", "Addresses of Services on a flat layer 2 with something in their way, or used by a machine that is no member, too.")
	desc("service_routes", "Prefixes announced for Services.")
	desc("service_routes_failing", "Prefixes for Services that the BGP speaker would not take, or take back.")
	desc("service_writer", "1 while this node is the one that gives Services their addresses, 0 while it stands for it.")
	desc("service_refused", "Services that have not got all that they ask for, by the reason in their condition; told by the writer.", "reason")
	desc("service_assignments_total", "Statuses of Services that this node wrote with other addresses.")
	desc("service_refusals_total", "Statuses of Services that this node wrote with another reason why there is no address.")
	desc("service_writes_total", "Requests that this node sent as the writer, by kind of object.", "kind")
	desc("pool_addresses", "Addresses that an address pool has for Services, as the writer says.", "pool", "family")
	desc("pool_addresses_used", "Addresses of an address pool that Services have, as the writer says.", "pool", "family")
	desc("pool_conflicts", "What keeps addresses of a pool from being used, as the writer says: see its status.", "pool")
	desc("pool_error", "1 while this node cannot use an address pool as it is.", "pool")
	desc("bgppeer_left_out", "BGPPeer resources that are for this node but not in force, as status tells.")
	desc("kube_troubles", "Kinds of objects and Secrets that the Kubernetes API does not tell of now; 1 without a connection.")
	desc("kube_answered_timestamp_seconds", "When the Kubernetes API last answered a request; changes come without one.")
	desc("kube_requests_total", "Requests to the Kubernetes API by what they are for; a watch is one, however long.", "verb")
	desc("kube_failures_total", "Requests that the Kubernetes API did not answer, or with an error.")
}

func collectServices(s *admin.Services, gauge, count func(string, float64, ...string)) {
	gauge("services", float64(s.Total))
	gauge("services_synced", truth(s.Synced))
	gauge("service_routes", float64(s.Routes))
	gauge("service_routes_failing", float64(s.Failing))
	gauge("service_addresses_standing", float64(s.Stands))
	gauge("service_addresses_held", float64(s.Held))
	gauge("service_addresses_obstructed", float64(s.Obstructed))
	gauge("bgppeer_left_out", float64(len(s.LeftOut)))
	for _, p := range s.Pools {
		gauge("service_addresses", float64(p.Announced), p.Name, "announced")
		gauge("service_addresses", float64(p.Draining), p.Name, "draining")
		gauge("service_addresses", float64(p.Withdrawn), p.Name, "withdrawn")
		gauge("service_addresses_flat", float64(p.Flat), p.Name)
		if p.Name == "" {
			continue // what is in no pool
		}
		for family, u := range map[string]*admin.Usage{"ipv4": p.IPv4, "ipv6": p.IPv6} {
			if u != nil {
				gauge("pool_addresses", u.Capacity, p.Name, family)
				gauge("pool_addresses_used", float64(u.Used), p.Name, family)
			}
		}
		gauge("pool_conflicts", float64(p.Conflicts), p.Name)
		gauge("pool_error", truth(p.Error != ""), p.Name)
	}
	if w := s.Writer; w != nil {
		gauge("service_writer", truth(w.Writes))
		for reason, n := range w.Refused {
			gauge("service_refused", float64(n), reason)
		}
		count("service_assignments_total", float64(w.Assignments))
		count("service_refusals_total", float64(w.Refusals))
		count("service_writes_total", float64(w.ServiceWrites), "service")
		count("service_writes_total", float64(w.PoolWrites), "pool")
		count("service_writes_total", float64(w.EventWrites), "event")
	}
	k := s.Kubernetes
	troubles := len(k.Troubles)
	if k.Unconnected != "" {
		troubles++
	}
	gauge("kube_troubles", float64(troubles))
	gauge("kube_answered_timestamp_seconds", seconds(k.Answered))
	count("kube_requests_total", float64(k.Reads), "read")
	count("kube_requests_total", float64(k.Watches), "watch")
	count("kube_requests_total", float64(k.Writes), "write")
	count("kube_failures_total", float64(k.Failed))
}
