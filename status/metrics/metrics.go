// Package metrics serves a speaker's metrics and health to scrapers and kubelets. It reads metrics from the same
// [admin.Status] that `herald status` shows, so the two cannot disagree.
package metrics

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/page"
)

// Healthy answers as [admin.Status.Healthy] does. It must be quick: each load balancer asks about once a second.
type Healthy func(name string) (known, healthy bool, why string)

// NewHandler serves /metrics, /healthz (the process works), /healthz/NAME (see [Healthy]), /readyz (see
// [admin.Status.Ready]) and, at /, a page for people. It calls healthy for each request of /healthz/NAME, nodes for each
// of the page, and status for every other request and the page.
func NewHandler(status func() admin.Status, healthy Healthy, nodes func() *page.Nodes) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector(status),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page.New().Handler(status, nodes))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		// status takes the locks of all parts but the fence: if it returns, no part is stuck.
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

// collector collects the metrics of a status.
type collector func() admin.Status

// Describe implements [prometheus.Collector]. It describes none: the metrics depend on the status, which is not
// available before the daemon has begun.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (status collector) Collect(metrics chan<- prometheus.Metric) {
	collect(status(), teller{metrics: metrics})
}

// teller emits metrics with its labels, which alternate name and value.
type teller struct {
	metrics chan<- prometheus.Metric
	labels  []string
}

// of returns a teller with additional labels.
func (t teller) of(labels ...string) teller {
	return teller{t.metrics, slices.Concat(t.labels, labels)}
}

func (t teller) gauge(name, help string, v float64) { t.tell(prometheus.GaugeValue, name, help, v) }

// flag is 1 if on.
func (t teller) flag(name, help string, on bool) {
	v := 0.0
	if on {
		v = 1
	}
	t.gauge(name, help, v)
}

// time is in seconds of Unix time, 0 for never.
func (t teller) time(name, help string, at time.Time) {
	v := 0.0
	if !at.IsZero() {
		v = float64(at.UnixMilli()) / 1000
	}
	t.gauge(name, help, v)
}

func (t teller) count(name, help string, n uint64) {
	t.tell(prometheus.CounterValue, name, help, float64(n))
}

// counts emits a counter for each value of the label.
func (t teller) counts(name, help, label string, byValue map[string]uint64) {
	for kind, n := range byValue {
		t.of(label, kind).count(name, help, n)
	}
}

func (t teller) tell(kind prometheus.ValueType, name, help string, v float64) {
	var names, values []string
	for pair := range slices.Chunk(t.labels, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	t.metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc("herald_"+name, help, names, nil), kind, v, values...)
}

// collect emits all metrics of a status.
func collect(s admin.Status, t teller) {
	t.of("version", s.Version).gauge("build_info", "Always 1; the label is the version.", 1)
	t.flag("realtime", "1 while the process is under real-time scheduling with its memory locked.", s.Realtime == admin.RealtimeOn)
	t.flag("draining", "1 while the node is drained.", s.Draining != "")
	t.gauge("config_generation", "Configurations applied since the start.", float64(s.Config.Generation))
	t.time("config_loaded_timestamp_seconds", "When the configuration in force was loaded.", s.Config.Loaded)
	t.flag("config_error", "1 while the present configuration file is not in force but an older one is; status shows why.", s.Config.Error != "")
	for _, v := range s.VIPs {
		collectVIP(v, t.of("vip", v.Name, "address", v.Address.String()))
	}
	collectElection(s, t)
	collectBalancers(s, t)
	collectPassing(s.Passing, t)
	if s.Services != nil {
		collectServices(s.Services, t)
	}
	for _, k := range s.Checks {
		t := t.of("check", k.Name)
		t.flag("check_healthy", "1 while the check is healthy, 0 while it is unhealthy or undecided.", k.State == health.Healthy)
		t.flag("check_warning", "1 while the check has a warning, such as an expiring certificate.", k.Warning != "")
		t.gauge("check_latency_seconds", "Duration of the last probe.", k.Latency.Seconds())
		t.time("check_since_timestamp_seconds", "When the check's state last changed.", k.Since)
		t.counts("check_probes_total", "Probes by result.", "result", map[string]uint64{"pass": k.Passes, "fail": k.Failures})
	}
	for _, p := range s.Peers {
		collectPeer(p, t.of("peer", p.Name))
	}
}

func collectVIP(v admin.VIP, t teller) {
	if v.Announce == speaker.ByARP {
		t.flag("vip_conflict", "1 while a host that is not a member uses the address.", v.Conflict != "")
		t.flag("vip_rival", "1 while another member holds the address as well as this node.", v.Rival != "")
		t.count("vip_conflicts_total", "Packets of hosts that are not members and use the address.", v.Conflicts)
	} else if v.Announce != speaker.ByKernel {
		t.gauge("vip_peers", "BGP peers that were sent the address's route; missing for VIPs announced in another way.", float64(len(v.Sent)))
	}
	t.flag("vip_announced", "1 while this node announces the address: by BGP to at least one peer, in a table of the kernel, or on a flat layer 2. 0 while it drains or is demoted, see vip_stage; vip_kept marks a holder that is unhealthy.",
		v.State == speaker.Announced)
	t.of("stage", string(v.Stage)).gauge("vip_stage", "1 for the stage of the address.", 1)
	t.time("vip_since_timestamp_seconds", "When the address reached the state that status shows.", v.Since)
	t.flag("vip_error", "1 while an error keeps the address from its stage.", v.State == admin.Blocked)
	t.count("vip_restored_total", "Times the address was put back after something removed it.", uint64(v.Restored))
	t.flag("vip_kept", "1 while the address stays as the last resort although its checks fail, because no other member is known to serve it.", v.Kept)
	t.flag("vip_bridged", "1 while new connections to the address are forwarded to other nodes because it is leaving this one.", len(v.BridgedTo) > 0)
	if a := v.Arrivals; a != nil {
		t.count("vip_arrivals_total", "TCP connections opened to the address on this node, counted by their first packets.", a.Arrived)
	}
	if last := v.LastWithdrawal; last != nil {
		t.gauge("vip_last_withdrawal_seconds", "Time from the first sign of failure to the removal of route and address, at the last unplanned withdrawal.", last.Took.Seconds())
		t.time("vip_last_withdrawal_timestamp_seconds", "When the last unplanned withdrawal began.", last.At)
	}
}

func collectPeer(p bgp.Session, t teller) {
	if b := p.BFD; b != nil {
		t.flag("bfd_session_up", "1 while the BFD session is up.", b.State == bfd.Up)
		t.time("bfd_session_since_timestamp_seconds", "When the BFD session reached its state.", b.Since)
		t.count("bfd_session_downs_total", "Times that BFD ended the BGP session.", b.Downs)
		t.gauge("bfd_detection_time_seconds", "Negotiated detection time: how long the peer may be silent.", b.DetectionTime.Seconds())
		t.counts("bfd_packets_total", "BFD packets by direction; discarded are those received that broke a rule.",
			"direction", map[string]uint64{"in": b.In, "out": b.Out, "discarded": b.Discarded})
	}
	t = t.of("asn", p.AS())
	t.flag("bgp_session_up", "1 while the session is established.", p.State == bgp.Established)
	t.time("bgp_session_since_timestamp_seconds", "When the session came up or went down.", p.Since)
	if p.State == bgp.Established {
		t.gauge("bgp_session_hold_time_seconds", "Negotiated hold time: how long the peer may be silent where BFD does not end the session sooner; missing unless established.", p.HoldTime.Seconds())
	}
	t.count("bgp_session_drops_total", "Established sessions that were lost.", p.Drops)
	t.gauge("bgp_routes_advertised", "Routes the peer was sent.", float64(p.Sent()))
}

// collectElection reports leases, members and the fence of a flat layer 2.
func collectElection(s admin.Status, t teller) {
	for _, l := range leases(s) {
		t := t.of("vip", l.Lease)
		t.flag("lease_held", "1 while this node holds the lease of the VIP.", l.Holder != "" && l.Holder == s.Node)
		if l.Holder != "" {
			t.of("member", l.Holder).gauge("lease_holder", "1 for the member that is known to hold the lease of the VIP; missing without a holder.", 1)
		}
		t.gauge("lease_epoch", "Grows with every new holder of the lease.", float64(l.Epoch))
		t.flag("lease_standing", "1 while this node campaigns for the lease of the VIP.", l.Campaigning)
	}
	e := s.Election
	if e == nil {
		return
	}
	t.flag("election_problem", "1 while this node takes no part in the election; status shows why.", e.Problem != "")
	t.flag("election_changing", "1 while a change of the electorate waits for members, which status names.", e.Change != "")
	for _, m := range e.Members {
		if m.Voter {
			t.of("member", m.Name).flag("election_member_alive", "1 while packets from the voter arrive.", m.Alive || m.Self)
		}
	}
	t.counts("election_packets_total", "Packets that did not count: from strangers, undecipherable, or ignored for their content.",
		"kind", map[string]uint64{"stranger": e.Strangers, "undecipherable": e.Undecipherable, "ignored": e.Ignored})
	t.flag("fence_on", "1 while the fence is installed. It stops the kernel's answers at the end of a lease.", e.Fence == admin.FenceOn)
}

func collectPassing(p *admin.Passing, t teller) {
	if p == nil {
		return
	}
	t.flag("passing", "1 while misrouted packets are passed on along the members until they reach the owning one.", p.Error == "" && len(p.Members) > 0)
	t.counts("passing_packets_total", "Misrouted packets: passed on, answered here because no member was left, or refused because there were too many.",
		"what", map[string]uint64{"passed": p.Passed, "answered": p.Answered, "refused": p.Refused})
}

// leases returns the lease of each VIP on a flat layer 2; an empty lease if this node knows none yet. Alerts must see a
// VIP without a holder, even if its checks have never passed on any node.
func leases(s admin.Status) []admin.Lease {
	var out []admin.Lease
	if s.Election != nil {
		out = slices.Clone(s.Election.Leases)
	}
	for _, v := range s.VIPs {
		if v.Announce == speaker.ByARP && !slices.ContainsFunc(out, func(l admin.Lease) bool { return l.Lease == v.Name }) {
			out = append(out, admin.Lease{LeaseStatus: lease.LeaseStatus{Lease: v.Name}})
		}
	}
	return out
}

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

// The network may reach the listener: its clients must not exhaust the speaker's memory and file descriptors.
const (
	maxClients = 64
	timeout    = 10 * time.Second // for one request
)

// Listen opens address, host:port, for [NewHandler]. Errors of single connections are logged at debug level.
func Listen(address string, log *slog.Logger, status func() admin.Status, healthy Healthy, nodes func() *page.Nodes) (*admin.Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	return newServer(l, log, status, healthy, nodes), nil
}

func newServer(l net.Listener, log *slog.Logger, status func() admin.Status, healthy Healthy, nodes func() *page.Nodes) *admin.Server {
	return admin.NewServer("metrics.listen", &listener{Listener: l}, &http.Server{
		Handler:     NewHandler(status, healthy, nodes),
		ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	})
}

// listener bounds its open connections to maxClients: it closes the oldest for a new one. A client that never ends its
// request, or never reads the answer, thus keeps no other out, above all no liveness probe.
type listener struct {
	net.Listener
	mu   sync.Mutex
	open []*client // the oldest first
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &client{Conn: conn, listener: l}
	if oldest := l.add(c); oldest != nil {
		_ = oldest.Close() // its server ignores the error, too
	}
	return c, nil
}

// add records a new connection. It returns the connection to close for it, or nil.
func (l *listener) add(c *client) *client {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) <= maxClients {
		return nil
	}
	return l.open[0]
}

// client is an open connection of a listener.
type client struct {
	net.Conn
	listener *listener
}

func (c *client) Close() error {
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.mu.Unlock()
	return c.Conn.Close()
}
