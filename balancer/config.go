package balancer

import (
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/health"
)

// Method selects the backend of a new connection.
type Method string

// The methods of selection.
const (
	// RoundRobin uses the backends in turn.
	RoundRobin Method = "round-robin"
	// SourceHash selects by a hash of the client's address.
	SourceHash Method = "source-hash"
)

// Mode is the mechanism that forwards the connections of a balancer.
type Mode string

// The modes of a balancer.
const (
	// Kernel rewrites packets by nftables.
	Kernel Mode = "kernel"
	// Proxy makes Herald accept connections and splice them.
	Proxy Mode = "proxy"
)

// Config configures a balancer, which spreads the TCP connections that arrive at this node over healthy backends.
type Config struct {
	// Name identifies the balancer in logs, status and metrics: at most 63 lower-case letters and digits, with `-` and `.` between. Required.
	Name string `yaml:"name"`
	// Listen lists the addresses for connections, from clients on this node and from remote clients. Required.
	Listen []Listener `yaml:"listen"`
	// Backends are the servers: exactly one of `members`, `static` and `dns`. Required.
	Backends Backends `yaml:"backends"`
	// Check decides which backends of `static` and `dns` are healthy; `members` advertise their own checks. Default: the backend accepts connections.
	Check *Probe `yaml:"check"`
	// Method selects the backend of a new connection: `round-robin`, in turn; or `source-hash`, the same backend for all connections of a client while it is healthy. Default: round-robin.
	Method Method `yaml:"method" default:"round-robin" want:"round-robin or source-hash"`
	// Mode is the mechanism that forwards connections: the `kernel`, by nftables, or a `proxy` in Herald, which costs more and drops its connections when Herald ends. Default: kernel.
	Mode Mode `yaml:"mode" default:"kernel" want:"kernel or proxy"`
	// Transparent shows backends the client's address instead of this node's. Their answers must then pass this node. Not with `mode: proxy`. Default: false.
	Transparent bool `yaml:"transparent"`
	// Forget is how long a backend that has left the members or DNS is still reported, 1s to 168h. Default: 4h.
	Forget time.Duration `yaml:"forget" default:"4h" want:"1s to 168h"`
}

// Listener is a place where connections are accepted: either `address`, or `vip` and `port`.
type Listener struct {
	// Address is an address of this node with a port, such as `127.0.0.1:9443`; `[::1]` only with `mode: proxy`.
	Address netip.AddrPort `yaml:"address"`
	// VIP is the name of a VIP of this file; the balancer listens at all of its addresses.
	VIP string `yaml:"vip"`
	// Port is the port at the VIP.
	Port uint16 `yaml:"port"`
}

// Backends are the servers of a balancer; exactly one of the fields is set.
type Backends struct {
	// Members uses the members of the election, with or without a vote, while their own checks pass.
	Members *Members `yaml:"members"`
	// Static lists the backends.
	Static *Static `yaml:"static"`
	// DNS uses all addresses of a name.
	DNS *DNS `yaml:"dns"`
}

// Members are the members of the election that run the given checks, at their addresses in the election. Joining and leaving needs no change of the file.
type Members struct {
	// Port is the port of the members' servers. Required.
	Port uint16 `yaml:"port" want:"1 to 65535"`
	// Checks are the names, in the members' own files, of the checks that must all pass. Required.
	Checks []string `yaml:"checks"`
}

// Static are backends with fixed addresses.
type Static struct {
	// Addresses are the backends' addresses, each with a port; a balancer of this file may not listen there. Required.
	Addresses []netip.AddrPort `yaml:"addresses"`
}

// DNS are backends at all addresses (A and AAAA) of a name.
type DNS struct {
	// Name is the name to look up by the node's resolver. Required.
	Name string `yaml:"name"`
	// Port is the port of the servers. Required.
	Port uint16 `yaml:"port" want:"1 to 65535"`
	// Interval is the time between two look-ups, 1s to 1h; while one fails, the addresses stay. Default: 30s.
	Interval time.Duration `yaml:"interval" default:"30s" want:"1s to 1h"`
}

// BackendHost is the placeholder for a backend's address in the check of a balancer.
const BackendHost = "backend"

// Probe is a health check of each backend, as in `checks`, but without a name. The host `backend` is replaced by the backend's address; without a port the check uses the backend's port.
type Probe struct {
	// HTTP checks an HTTP or HTTPS endpoint, such as `https://backend/readyz`.
	HTTP *health.HTTP `yaml:"http"`
	// TCP checks that a port accepts connections. Default: the backend's own, unless there is `http`.
	TCP         *health.TCP `yaml:"tcp"`
	health.Pace `yaml:",inline"`
}

// HealthCheck returns p as a check without a name; nil if p is nil.
func (p *Probe) HealthCheck() *health.Check {
	if p == nil {
		return nil
	}
	return &health.Check{HTTP: p.HTTP, TCP: p.TCP, Pace: p.Pace}
}

// addresses returns the addresses of listeners. The VIPs of listeners have to be resolved to addresses before.
func (c Config) addresses() []netip.AddrPort {
	var out []netip.AddrPort
	for _, l := range c.Listen {
		if l.Address.IsValid() {
			out = append(out, l.Address)
		}
	}
	return addresses(out)
}

// Member is the state of a member of the election, as it advertises it.
type Member struct {
	Name string
	Addr netip.Addr
	// Checks are the results of its checks by name, without checks that have no result yet.
	Checks   map[string]bool
	Draining bool
	// TimedOut reports that its last message has expired, or that it has left.
	TimedOut bool
}

// Serves reports whether the member serves a VIP or balancer with these checks.
func (m Member) Serves(checks []string) bool {
	return !m.TimedOut && !m.Draining && !slices.ContainsFunc(checks, func(name string) bool { return !m.Checks[name] })
}

// Status is the status of a balancer. Its JSON is part of the output of `herald status -o json`.
type Status struct {
	Name string `json:"name"`
	// Listen are the addresses and ports of its listeners. With an external load balancer they are not in force.
	Listen   []netip.AddrPort `json:"listen"`
	Mode     Mode             `json:"mode"`
	Method   Method           `json:"method"`
	Backends []BackendStatus  `json:"backends"`
	// Error is the error of the data plane or of the last look-up; empty without one.
	Error string `json:"error,omitempty"`
}

// BackendStatus is the status of a backend.
type BackendStatus struct {
	Backend
	// Since is the start of its state.
	Since time.Time `json:"since,omitzero"`
	// Connections counts all connections that it got, Open the established ones; -1 if unknown.
	Connections uint64 `json:"connections"`
	Open        int    `json:"open"`
}
