package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/health"
)

// LoadBalancerType says whose load balancer the nodes use.
type LoadBalancerType string

// Whose it may be.
const (
	// Internal is Herald's own.
	Internal LoadBalancerType = "internal"
	// External is the user's.
	External LoadBalancerType = "external"
)

// LoadBalancer is the switch between Herald's balancers and the user's own.
type LoadBalancer struct {
	// Type is `internal`, the balancers are in force, or `external`: none takes connections, those that are established stay, and a load balancer of the user's own asks `GET /healthz/NAME` on the metrics listener, with the name of a VIP, balancer or check. Default: internal.
	Type LoadBalancerType `yaml:"type" default:"internal" want:"internal or external"`
}

// Method is how the backend of a new connection is chosen.
type Method string

// The methods there are.
const (
	// RoundRobin takes one after the other.
	RoundRobin Method = "round-robin"
	// SourceHash takes one by the client's address.
	SourceHash Method = "source-hash"
)

// Mode is what carries the connections of a balancer.
type Mode string

// The modes there are.
const (
	// Kernel rewrites packets by nftables.
	Kernel Mode = "kernel"
	// Proxy has Herald itself accept connections and splice them.
	Proxy Mode = "proxy"
)

// Balancer spreads the TCP connections that arrive at this node over backends that are healthy.
type Balancer struct {
	// Name identifies the balancer in logs, status and metrics: at most 63 lower-case letters and digits, with `-` and `.` between. Required.
	Name string `yaml:"name"`
	// Listen is where connections arrive, of this node's own clients and of others that reach the node by these addresses. Required.
	Listen []Listener `yaml:"listen"`
	// Backends are who takes them: exactly one of `members`, `static` and `dns`. Required.
	Backends Backends `yaml:"backends"`
	// Check tells which backends of `static` and `dns` are healthy; those of `members` tell by their own checks. Default: the backend accepts connections.
	Check *Probe `yaml:"check"`
	// Method is how the backend of a new connection is chosen: `round-robin`, one after the other; or `source-hash`, the same for all connections of a client while it is there. Default: round-robin.
	Method Method `yaml:"method" default:"round-robin" want:"round-robin or source-hash"`
	// Mode is what carries the connections: the `kernel`, by nftables, or a `proxy` in Herald itself, which costs more and whose connections end with Herald. Default: kernel.
	Mode Mode `yaml:"mode" default:"kernel" want:"kernel or proxy"`
	// Transparent shows backends the client's own address instead of this node's. They must then answer by way of this node. Not with `mode: proxy`. Default: false.
	Transparent bool `yaml:"transparent"`
	// Forget is after how long a backend that is gone, as a member or from DNS, is no longer reported, 1s to 168h. Default: 4h.
	Forget time.Duration `yaml:"forget" default:"4h" want:"1s to 168h"`
}

// Listener is where connections arrive: either `address`, or `vip` and `port`.
type Listener struct {
	// Address is one of this node's, with a port, such as `127.0.0.1:9443`; `[::1]` only with `mode: proxy`.
	Address netip.AddrPort `yaml:"address"`
	// VIP is the name of a VIP of this file, all of its addresses.
	VIP string `yaml:"vip"`
	// Port is that of the VIP.
	Port uint16 `yaml:"port"`
}

// Backends are the servers of a balancer; exactly one of the fields is set.
type Backends struct {
	// Members are those of the election, with a vote or without, whose own checks pass.
	Members *Members `yaml:"members"`
	// Static are listed here.
	Static *Static `yaml:"static"`
	// DNS are all addresses of a name.
	DNS *DNS `yaml:"dns"`
}

// Members are the members of the election that offer some checks, at the address by which the others know them. Who joins or leaves is learnt from the others; no list has to be edited.
type Members struct {
	// Port is where they serve. Required.
	Port uint16 `yaml:"port" want:"1 to 65535"`
	// Checks are the names, in the members' own files, of the checks that must all pass. Required.
	Checks []string `yaml:"checks"`
}

// Static are backends that are listed.
type Static struct {
	// Addresses are those of the backends, each with its port; none is where a balancer of this file listens. Required.
	Addresses []netip.AddrPort `yaml:"addresses"`
}

// DNS are all addresses (A and AAAA) of a name.
type DNS struct {
	// Name is looked up by the node's resolver. Required.
	Name string `yaml:"name"`
	// Port is where they serve. Required.
	Port uint16 `yaml:"port" want:"1 to 65535"`
	// Interval is the time between two look-ups, 1s to 1h; while one fails, the addresses stay. Default: 30s.
	Interval time.Duration `yaml:"interval" default:"30s" want:"1s to 1h"`
}

// BackendHost stands for the address of each backend in the check of a balancer.
const BackendHost = "backend"

// Probe is a health check of each backend, as in `checks`, but without a name: the host `backend` stands for the backend's address, and without a port it is the backend's own.
type Probe struct {
	// HTTP checks an HTTP or HTTPS endpoint, such as `https://backend/readyz`.
	HTTP *health.HTTP `yaml:"http"`
	// TCP checks that a port accepts connections. Default: the backend's own, unless there is `http`.
	TCP *health.TCP `yaml:"tcp"`
	// Interval is the time between the starts of two probes, 10ms to 1m. Default: 200ms.
	Interval time.Duration `yaml:"interval" default:"200ms" want:"10ms to 1m"`
	// Timeout bounds one probe, body included, 10ms to 1m. Default: 300ms.
	Timeout time.Duration `yaml:"timeout" default:"300ms" want:"10ms to 1m"`
	// Rise is how many probes in a row must pass to become healthy, 1 to 100. Default: 2.
	Rise int `yaml:"rise" default:"2" want:"1 to 100"`
	// Fall is how many probes in a row must fail to become unhealthy, 1 to 100; a refused connection needs only one. Default: 2.
	Fall int `yaml:"fall" default:"2" want:"1 to 100"`
}

// HealthCheck returns p as a check without a name; nil if p is nil.
func (p *Probe) HealthCheck() *health.Check {
	if p == nil {
		return nil
	}
	return &health.Check{HTTP: p.HTTP, TCP: p.TCP, Interval: p.Interval, Timeout: p.Timeout, Rise: p.Rise, Fall: p.Fall}
}

// Place is where a balancer listens, and by which VIP if it is one's address.
type Place struct {
	netip.AddrPort
	VIP string
}

// Places are all of a balancer's.
func (c *Config) Places(b Balancer) []Place {
	var out []Place
	for _, l := range b.Listen {
		out = append(out, c.placesOf(l)...)
	}
	return out
}

func (c *Config) placesOf(l Listener) []Place {
	if l.VIP == "" {
		return []Place{{l.Address, ""}}
	}
	var out []Place
	for _, v := range c.VIPs {
		if v.Name != l.VIP {
			continue
		}
		for _, addr := range v.Addresses {
			out = append(out, Place{netip.AddrPortFrom(addr, l.Port), v.Name})
		}
	}
	return out
}

// HTTPChecks returns the HTTP checks of checks and balancers, and for its files each gRPC check as one without a URL.
func (c *Config) HTTPChecks() []*health.HTTP {
	var out []*health.HTTP
	for _, k := range c.Checks {
		out = append(out, k.HTTP, k.GRPC.TLS())
	}
	for _, b := range c.Balancers {
		if b.Check != nil {
			out = append(out, b.Check.HTTP)
		}
	}
	return slices.DeleteFunc(out, func(h *health.HTTP) bool { return h == nil })
}

// Flat reports whether a VIP is announced on a flat layer 2.
func (c *Config) Flat() bool {
	return slices.ContainsFunc(c.VIPs, func(v VIP) bool { return v.Announce == AnnounceARP })
}
