// Package metrics serves a speaker's metrics and its health to scrapers and
// kubelets. Metrics are read from the same [admin.Status] that `herald status`
// shows, so the two cannot disagree.
package metrics

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/statuspage"
)

// Healthy answers as [admin.Status.Healthy] does. Load balancers ask every second or so, each of
// them, so it is to be quick.
type Healthy func(name string) (known, healthy bool, why string)

// NewHandler serves /metrics, /healthz (the process works), /healthz/NAME (see
// [Healthy]) and /readyz (see [admin.Status.Ready]), and at / a page for
// people. healthy is asked for each request of /healthz/NAME, and status for each other one.
func NewHandler(status func() admin.Status, healthy Healthy) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newCollector(status),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", statuspage.New().Handler(status))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		// Status takes every lock there is: if it returns, nothing is wedged.
		status()
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /healthz/{name}", func(w http.ResponseWriter, r *http.Request) {
		known, well, why := healthy(r.PathValue("name"))
		switch {
		case !known:
			w.WriteHeader(http.StatusNotFound)
		case !well:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, why)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, why := status().Ready()
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, why)
	})
	return mux
}

type collector struct {
	status func() admin.Status
	descs  map[string]*prometheus.Desc
}

var _ prometheus.Collector = (*collector)(nil)

func newCollector(status func() admin.Status) *collector {
	c := &collector{status: status, descs: make(map[string]*prometheus.Desc)}
	desc := func(name, help string, labels ...string) {
		c.descs[name] = prometheus.NewDesc("herald_"+name, help, labels, nil)
	}
	desc("build_info", "Always 1; the label is the version.", "version")
	desc("realtime", "1 while the process is under real-time scheduling with its memory locked.")
	desc("draining", "1 while everything is withdrawn on purpose.")
	desc("config_generation", "Configurations applied since the start.")
	desc("config_loaded_timestamp_seconds", "When the configuration in force was loaded.")
	desc("config_error", "1 while the configuration file has errors and an older one is in force.")
	desc("vip_announced", "1 while this node announces the address as one in good health; vip_stage tells of draining and demoted ones.", "vip", "address")
	desc("vip_peers", "BGP peers that were sent the address's route; none for a VIP on a flat layer 2.", "vip", "address")
	desc("vip_stage", "1 for the stage the address is in.", "vip", "address", "stage")
	desc("vip_since_timestamp_seconds", "When the address reached its stage.", "vip", "address")
	desc("vip_error", "1 while something stands in the way of the address's stage.", "vip", "address")
	desc("vip_restored_total", "Times the address was put back after something removed it.", "vip", "address")
	desc("vip_last_withdrawal_seconds", "From the first sign of failure to route and address gone, at the last unplanned withdrawal.", "vip", "address")
	desc("vip_last_withdrawal_timestamp_seconds", "When the last unplanned withdrawal began.", "vip", "address")
	desc("check_healthy", "1 healthy, 0 unhealthy or not known yet.", "check")
	desc("check_warning", "1 while a check has a warning, such as an expiring certificate.", "check")
	desc("check_latency_seconds", "Duration of the last probe.", "check")
	desc("check_since_timestamp_seconds", "When the check's state last changed.", "check")
	desc("check_probes_total", "Probes by result.", "check", "result")
	desc("bgp_session_up", "1 while the session is established.", "peer", "asn")
	desc("bgp_session_since_timestamp_seconds", "When the session came up or went down.", "peer", "asn")
	desc("bgp_session_drops_total", "Established sessions that were lost.", "peer", "asn")
	desc("bgp_routes_advertised", "Routes the peer was sent.", "peer", "asn")
	desc("bfd_session_up", "1 while the BFD session is up.", "peer")
	desc("bfd_session_since_timestamp_seconds", "When the BFD session reached its state.", "peer")
	desc("bfd_session_downs_total", "Times that BFD ended the BGP session.", "peer")
	desc("bfd_detection_time_seconds", "How long the peer may be silent, as agreed.", "peer")
	desc("bfd_packets_total", "BFD packets by direction; discarded are those received that broke a rule.", "peer", "direction")
	desc("vip_conflicts_total", "Times that a machine outside the electorate was seen using the address.", "vip", "address")
	desc("vip_conflict", "1 while a machine outside the electorate uses the address.", "vip", "address")
	desc("lease_held", "1 while this node holds the lease of the VIP.", "vip")
	desc("lease_holder", "1 for the member that is known to hold the lease of the VIP; none if there is none.", "vip", "member")
	desc("lease_epoch", "Grows with every new holder of the lease.", "vip")
	desc("lease_standing", "1 while this node would take the lease of the VIP.", "vip")
	desc("election_problem", "1 while this node takes no part in the election, as status tells.")
	desc("election_changing", "1 while a change of the electorate waits for members, as status tells.")
	desc("election_member_alive", "1 while votes are heard from the member.", "member")
	desc("election_packets_total", "Packets that did not count: from strangers, undecipherable, or ignored for what they say.", "kind")
	desc("fence_on", "1 while the kernel guards against answers after the end of a lease.")
	describeBalancers(desc)
	describeServices(desc)
	return c
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name string, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], kind, v, labels...)
	}
	gauge := func(name string, v float64, labels ...string) { send(prometheus.GaugeValue, name, v, labels...) }
	count := func(name string, v float64, labels ...string) { send(prometheus.CounterValue, name, v, labels...) }

	s := c.status()
	gauge("build_info", 1, s.Version)
	gauge("realtime", truth(s.Realtime == admin.RealtimeOn))
	gauge("draining", truth(s.Draining != ""))
	gauge("config_generation", float64(s.Config.Generation))
	gauge("config_loaded_timestamp_seconds", seconds(s.Config.Loaded))
	gauge("config_error", truth(s.Config.Error != ""))
	sent := make(map[netip.Prefix]int) // to how many peers
	for _, p := range s.Peers {
		for _, prefix := range p.Advertised {
			sent[prefix]++
		}
	}
	for _, v := range s.VIPs {
		address := v.Address.String()
		if v.Announce != "arp" {
			gauge("vip_peers", float64(sent[netip.PrefixFrom(v.Address, v.Address.BitLen())]), v.Name, address)
		}
		gauge("vip_announced", truth(v.Stage == "announced" && v.Error == ""), v.Name, address)
		gauge("vip_stage", 1, v.Name, address, v.Stage)
		gauge("vip_since_timestamp_seconds", seconds(v.Since), v.Name, address)
		gauge("vip_error", truth(v.Error != ""), v.Name, address)
		count("vip_restored_total", float64(v.Restored), v.Name, address)
		if last := v.LastWithdrawal; last != nil {
			gauge("vip_last_withdrawal_seconds", last.Seconds, v.Name, address)
			gauge("vip_last_withdrawal_timestamp_seconds", seconds(last.At), v.Name, address)
		}
	}
	c.collectElection(s, gauge, count)
	collectBalancers(s, gauge, count)
	if s.Services != nil {
		collectServices(s.Services, gauge, count)
	}
	for _, k := range s.Checks {
		gauge("check_healthy", truth(k.State == "healthy"), k.Name)
		gauge("check_warning", truth(k.Warning != ""), k.Name)
		gauge("check_latency_seconds", k.Latency, k.Name)
		gauge("check_since_timestamp_seconds", seconds(k.Since), k.Name)
		count("check_probes_total", float64(k.Passes), k.Name, "pass")
		count("check_probes_total", float64(k.Failures), k.Name, "fail")
	}
	for _, p := range s.Peers {
		asn := fmt.Sprint(p.ASN)
		gauge("bgp_session_up", truth(p.State == "established"), p.Name, asn)
		gauge("bgp_session_since_timestamp_seconds", seconds(p.Since), p.Name, asn)
		count("bgp_session_drops_total", float64(p.Drops), p.Name, asn)
		gauge("bgp_routes_advertised", float64(p.Sent()), p.Name, asn)
		if b := p.BFD; b != nil {
			gauge("bfd_session_up", truth(b.State == "up"), p.Name)
			gauge("bfd_session_since_timestamp_seconds", seconds(b.Since), p.Name)
			count("bfd_session_downs_total", float64(b.Downs), p.Name)
			gauge("bfd_detection_time_seconds", b.DetectionTime, p.Name)
			count("bfd_packets_total", float64(b.In), p.Name, "in")
			count("bfd_packets_total", float64(b.Out), p.Name, "out")
			count("bfd_packets_total", float64(b.Discarded), p.Name, "discarded")
		}
	}
}

// collectElection tells of VIPs on a flat layer 2.
func (c *collector) collectElection(s admin.Status, gauge, count func(string, float64, ...string)) {
	for _, v := range s.VIPs {
		if v.Announce == "arp" {
			gauge("vip_conflict", truth(v.Conflict != ""), v.Name, v.Address.String())
			count("vip_conflicts_total", float64(v.Conflicts), v.Name, v.Address.String())
		}
	}
	for _, l := range leases(s) {
		gauge("lease_held", truth(l.Holder != "" && l.Holder == s.Node), l.VIP)
		if l.Holder != "" {
			gauge("lease_holder", 1, l.VIP, l.Holder)
		}
		gauge("lease_epoch", float64(l.Epoch), l.VIP)
		gauge("lease_standing", truth(l.Stands), l.VIP)
	}
	e := s.Election
	if e == nil {
		return
	}
	gauge("election_problem", truth(e.Problem != ""))
	gauge("election_changing", truth(e.Change != ""))
	for _, m := range e.Members {
		gauge("election_member_alive", truth(m.Alive || m.Self), m.Name)
	}
	count("election_packets_total", float64(e.Strangers), "stranger")
	count("election_packets_total", float64(e.Undecipherable), "undecipherable")
	count("election_packets_total", float64(e.Ignored), "ignored")
	gauge("fence_on", truth(e.Fence == admin.FenceOn))
}

// leases has one for each VIP on a flat layer 2, an empty one if this node knows of
// none, as it does before it has stood for the VIP: that nobody holds a VIP is to
// be seen even if its checks have not passed on any node yet.
func leases(s admin.Status) []admin.Lease {
	var out []admin.Lease
	if s.Election != nil {
		out = slices.Clone(s.Election.Leases)
	}
	for _, v := range s.VIPs {
		if v.Announce == "arp" && !slices.ContainsFunc(out, func(l admin.Lease) bool { return l.VIP == v.Name }) {
			out = append(out, admin.Lease{VIP: v.Name})
		}
	}
	return out
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is t as Prometheus has times; never is 0.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
