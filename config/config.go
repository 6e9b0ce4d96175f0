// Package config reads Herald's configuration file and its drop-ins: YAML, parsed strictly, filled with defaults and
// validated as a whole. It reports all mistakes at once, each as one sentence with file, line, column and field. A file
// with mistakes never replaces a running configuration.
//
// [Load] reads a file, [Parse] reads only data, and package watch reports changes of a file. docs/config.md describes
// the format and is generated from the types of this package, health, election/electorate and others.
package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/health"
)

// The only API version and kind that this build reads.
const (
	APIVersion = "herald.dev/v1alpha1"
	Kind       = "Speaker"
)

// Config is one speaker's configuration.
type Config struct {
	// APIVersion must be `herald.dev/v1alpha1`. Required.
	APIVersion string `yaml:"apiVersion" want:"herald.dev/v1alpha1"`
	// Kind must be `Speaker`. Required.
	Kind string `yaml:"kind" want:"Speaker"`
	// NodeName names this node in logs, metrics and shutdown messages: lower-case letters and digits, with `-` and `.` between. With a `services` section it must be the Node's name in Kubernetes. `--node-name` and the environment variable `NODE_NAME` take precedence. Default: the host's name.
	NodeName string `yaml:"nodeName"`
	// VIPs are the virtual IPs this speaker announces while their checks pass. At least one is required without `balancers`, a `services` section, or an `election` with `checks` that members advertise. Default: none.
	VIPs []VIP `yaml:"vips"`
	// Checks are the health checks that VIPs refer to by name. With an `election` section each member advertises its results to the others. Default: none.
	Checks []health.Check `yaml:"checks"`
	// Realtime runs the process under real-time scheduling (SCHED_RR) with its memory locked, so that a busy node does not delay it. Status reports which of this the host does not permit. BFD intervals below 50ms need it. Default: false.
	Realtime bool `yaml:"realtime"`
	// Services makes the node announce the VIPs of Kubernetes Services of `type: LoadBalancer` from the address pools in Kubernetes; `services: {}` is enough in a pod. It cannot change while running. Default: no Services.
	Services *Services `yaml:"services"`
	// BGP configures the embedded BGP speaker. Required by a VIP with `announce: bgp`.
	BGP *BGP `yaml:"bgp"`
	// Election configures how nodes find each other, share their health, and elect the holder of a VIP on a flat layer 2. Required by a VIP with `announce: arp` or `whenAllFail: keep` and by `balancers` with `members`.
	Election *electorate.Settings `yaml:"election"`
	// ARP configures how a holder announces itself on a flat layer 2, and how it is kept from answering after its lease.
	ARP ARP `yaml:"arp"`
	// LoadBalancer selects whether the balancers are in force.
	LoadBalancer LoadBalancer `yaml:"loadBalancer"`
	// Balancers spread the connections that arrive at this node over healthy backends. Default: none.
	Balancers []balancer.Config `yaml:"balancers"`
	// Admin is the local control socket behind `herald status`, `drain` and `undrain`.
	Admin Admin `yaml:"admin"`
	// Metrics is the HTTP listener for /metrics, /healthz, /healthz/NAME and /readyz, and for a status page at /.
	Metrics Metrics `yaml:"metrics"`
}

// Announce is the way a VIP is announced.
type Announce string

// The ways to announce a VIP.
const (
	// AnnounceBGP advertises the VIP as a route to BGP peers.
	AnnounceBGP Announce = "bgp"
	// AnnounceARP lets one elected node answer for the VIP on a flat layer 2, by ARP and neighbour discovery.
	AnnounceARP Announce = "arp"
	// AnnounceKernel keeps a route in a table of the kernel, for a routing daemon on the node to redistribute.
	AnnounceKernel Announce = "kernel"
)

// OnFailure is the effect of a failing check on an announced VIP.
type OnFailure string

// The effects of a failing check.
const (
	// Withdraw removes route and address.
	Withdraw OnFailure = "withdraw"
	// Demote keeps both, as a last resort.
	Demote OnFailure = "demote"
)

// WhenAllFail is the treatment of a VIP when its checks fail slowly on all members.
type WhenAllFail string

// Keep makes the members that announced it keep it as the last resort.
const Keep WhenAllFail = "keep"

// AdvertisedVIP is the prefix of a VIP's name in advertisements; no name of a check starts with it.
const AdvertisedVIP = "vip:"

// VIP is one virtual IP, or several (dual stack) that are announced and withdrawn together.
type VIP struct {
	// Name identifies the VIP in logs, status and metrics: at most 63 lower-case letters and digits, with `-` and `.` between. Required.
	Name string `yaml:"name"`
	// Addresses are the VIP's addresses; /32 and /128 are implied. Required.
	Addresses []netip.Addr `yaml:"addresses"`
	// Announce is the way the VIP is announced. `bgp`: as a route from every healthy node. `kernel`: likewise, as a route in a table of the kernel that FRR, BIRD or another routing daemon on the node redistributes. `arp`: on a flat layer 2, from the node that holds its lease. Required.
	Announce Announce `yaml:"announce" want:"bgp, kernel or arp"`
	// Kernel is the routing table and the metric with `announce: kernel`.
	Kernel *Table `yaml:"kernel"`
	// Prefixes are aggregates that are announced in place of the addresses they contain, while these are healthy: the Internet accepts no route longer than /24 or /48. VIPs may share a prefix. Default: none.
	Prefixes []netip.Prefix `yaml:"prefixes"`
	// PrefixWhile selects when a prefix is announced: while `any` address in it is healthy, of any VIP, or while `all` are. Default: any.
	PrefixWhile PrefixWhile `yaml:"prefixWhile" default:"any" want:"any or all"`
	// Interface is the link that carries the address. Default: `lo` with `announce: bgp`; with `announce: arp` the link with the subnet of the address. Not with `announce: kernel`.
	Interface string `yaml:"interface"`
	// Checks name the checks that must all pass before the VIP is announced. Required.
	Checks []string `yaml:"checks"`
	// Linger is how long this node still answers for the VIP after a planned withdrawal, 0s to 5m. Default: 1s.
	Linger time.Duration `yaml:"linger" default:"1s" want:"0s to 5m"`
	// Peers name the BGP peers that the VIP is advertised to, by their address or interface, or as `default-ipv4` and `default-ipv6`. When the list changes, the new peers get the route half a second before the old ones lose it; a newly configured peer must be up first. Default: all.
	Peers []string `yaml:"peers"`
	// HoldDown is the longest time that a VIP with flapping checks stays withdrawn after they pass again, 0s to 1h. The first return is immediate; each further one within a short time waits twice as long. 0s turns it off. Default: 1m.
	HoldDown time.Duration `yaml:"holdDown" default:"1m" want:"0s to 1h"`
	// OnFailure is the effect of a failing check on an announced VIP: `withdraw` it, or `demote` it to the worst possible route. Routers use that only when no other node has a better one. Default: withdraw.
	OnFailure OnFailure `yaml:"onFailure" default:"withdraw" want:"withdraw or demote"`
	// WhenAllFail is the treatment of a VIP when its checks fail slowly on all members of the `election`: no answer in time, or a status of 5xx or 429. `withdraw` withdraws it. `keep` keeps it as the last resort where it was announced, until a member is healthy: with `announce: arp` by its lease, otherwise as the worst possible route. A refused connection always withdraws. Use the same value on all members. Default: withdraw.
	WhenAllFail WhenAllFail `yaml:"whenAllFail" default:"withdraw" want:"withdraw or keep"`
	// Priority ranks the node for the VIP with `announce: arp`, 0 to 1000: the healthy node with the highest priority gets a free VIP. Default: 100.
	Priority int `yaml:"priority" default:"100" want:"0 to 1000"`
	// Preempt moves the VIP to this node, without loss, once it has been healthy for a while and its priority is higher than the holder's. Default: false, the VIP stays where it is.
	Preempt bool `yaml:"preempt"`
	// OnConflict is the holder's reaction to a machine outside the election that uses the VIP: `defend` it, by announcing it again, or `yield` it until the other machine is gone. Both are reported. Default: defend.
	OnConflict OnConflict `yaml:"onConflict" default:"defend" want:"defend or yield"`
	// Bridge forwards new connections for the VIP to healthy masters while this node drains or its checks fail, as routers and neighbours may still send them here. Unless `announce` is `arp`, packets of established connections are forwarded to the master that owns them. It needs an `election` section to know the masters. Default: true with an `election` section, else false.
	Bridge *bool `yaml:"bridge"`
	// Attributes are added to the attributes of the `bgp` section for this VIP's routes.
	v1alpha1.Attributes `yaml:",inline"`
}

// Table is the kernel's routing table for the routes to a VIP (`ip route show table N`).
type Table struct {
	// Table is its number, 1 to 65535, except 255, which the kernel uses itself; 254 is the main table, which every routing daemon reads. Default: 201.
	Table int `yaml:"table" default:"201" want:"1 to 65535"`
	// Metric is the routes' priority, 1 to 16777214: lower is better. A demoted route, or one about to be withdrawn, has 16777215. Default: 100.
	Metric int `yaml:"metric" default:"100" want:"1 to 16777214"`
}

// PrefixWhile is the condition for a prefix to be announced.
type PrefixWhile string

// The conditions for a prefix.
const (
	WhileAny PrefixWhile = "any"
	WhileAll PrefixWhile = "all"
)

// OnConflict is the reaction of a VIP's holder to a foreign machine that uses it.
type OnConflict string

// The reactions of a holder.
const (
	// Defend announces the VIP again.
	Defend OnConflict = "defend"
	// Yield gives it up.
	Yield OnConflict = "yield"
)

// Services configures the VIPs of Kubernetes Services. Address pools and further peers are resources in Kubernetes.
type Services struct {
	// Kubeconfig is the file with the address of the Kubernetes API and the credentials for it. Default: the pod's service account.
	Kubeconfig string `yaml:"kubeconfig"`
	// LoadBalancerClass is the `spec.loadBalancerClass` of the Services that Herald serves. Default: herald.dev/vip.
	LoadBalancerClass string `yaml:"loadBalancerClass" default:"herald.dev/vip"`
	// DefaultClass makes Herald serve Services without a class, too. Default: true.
	DefaultClass bool `yaml:"defaultClass" default:"true"`
	// Assign makes the node a candidate for the role that gives Services their addresses. Default: true.
	Assign bool `yaml:"assign" default:"true"`
	// Namespace contains the Lease of these candidates, and the Secrets with the passwords of BGP peers. Default: the pod's own, else `kube-system`.
	Namespace string `yaml:"namespace"`
	// Compatibility names load balancers: `metallb`, `kube-vip`, `cilium`. Their annotations on Services apply if Herald's own are absent. Use the same list on all nodes. Default: none.
	Compatibility []string `yaml:"compatibility" want:"metallb, kube-vip or cilium"`
	// RequireEndpoints selects where a Service with `externalTrafficPolicy: Cluster` needs a ready endpoint before a node announces it: on `any` node, on that `node` itself, or, with `none`, nowhere. Default: any.
	RequireEndpoints string `yaml:"requireEndpoints" default:"any" want:"none, any or node"`
	// ExcludeCordoned makes a cordoned node (`spec.unschedulable`) withdraw. Default: false.
	ExcludeCordoned bool `yaml:"excludeCordoned"`
	// IgnoreExcludeLabel makes nodes with the label `node.kubernetes.io/exclude-from-external-load-balancers` announce, too, for clusters of masters only. Default: false.
	IgnoreExcludeLabel bool `yaml:"ignoreExcludeLabel"`
	// ExcludeTaints are the keys of taints that make a node withdraw, such as `node.kubernetes.io/out-of-service`. Default: none.
	ExcludeTaints []string `yaml:"excludeTaints"`
	// Linger is how long a node on a flat layer 2 still answers for an address after a planned withdrawal, 0s to 5m. Default: 1s.
	Linger time.Duration `yaml:"linger" default:"1s" want:"0s to 5m"`
	// HostPorts lets clients of a Service's address on a flat layer 2 reach other programs on its holder, at ports that no Service uses there. Default: false, such connections are refused.
	HostPorts bool `yaml:"hostPorts"`
}

// BGP is the embedded BGP speaker.
type BGP struct {
	// ASN is the own autonomous system number, 1 to 4294967294. Required.
	ASN uint32 `yaml:"asn"`
	// RouterID is the BGP identifier, an IPv4 address. Default: the first global IPv4 address of the node; without one, a hash of its name.
	RouterID netip.Addr `yaml:"routerID"`
	// Listen accepts sessions that peers open. Default: none, Herald opens all sessions.
	Listen *Listen `yaml:"listen"`
	// ConnectRetry is the longest wait between two attempts to connect to a peer without a `connectRetry` of its own, in whole seconds, 2s to 60s. Default: 2s.
	ConnectRetry time.Duration `yaml:"connectRetry" default:"2s" want:"2s to 60s"`
	// Peers are the routers that this speaker has sessions with. At least one is required unless a `services` section adds peers by BGPPeer resources. Default: none.
	Peers []v1alpha1.Peer `yaml:"peers"`
	// Attributes are the path attributes of all routes.
	v1alpha1.Attributes `yaml:",inline"`
}

// Listen configures where BGP sessions are accepted.
type Listen struct {
	// Addresses to listen on. Default: all.
	Addresses []netip.Addr `yaml:"addresses"`
	// Port to listen on. Default: 179.
	Port uint16 `yaml:"port" default:"179" want:"1 to 65535"`
}

// CalmInterval is the shortest BFD interval that does not need real-time scheduling.
const CalmInterval = 50 * time.Millisecond

// Fence selects whether a kernel filter drops a node's answers for a VIP that it does not hold.
type Fence string

// The uses of the filter.
const (
	// FenceAuto uses it if nftables is available, and reports if not.
	FenceAuto Fence = "auto"
	// FenceRequired refuses to start without it.
	FenceRequired Fence = "required"
	// FenceOff never uses it.
	FenceOff Fence = "off"
)

// ARP configures the holder of a VIP on a flat layer 2.
type ARP struct {
	// Refresh is the time between repeated announcements of a VIP, so that entries in switches and hosts do not expire, 1s to 1h. Default: 60s.
	Refresh time.Duration `yaml:"refresh" default:"1m" want:"1s to 1h"`
	// Fence is an nftables filter that drops a node's answers for a VIP after its lease has ended, even if Herald is frozen. `auto` uses it if possible and reports if not, `required` refuses to start without it, `off` never uses it. Default: auto.
	Fence Fence `yaml:"fence" default:"auto" want:"auto, required or off"`
}

// Admin is the control socket.
type Admin struct {
	// Socket is the path of a Unix socket, created with mode 0600. Default: /run/herald/herald.sock.
	Socket string `yaml:"socket" default:"/run/herald/herald.sock"`
}

// Metrics is the HTTP listener for scrapers and probes.
type Metrics struct {
	// Listen is host:port; empty turns it off. Default: 127.0.0.1:9474.
	Listen string `yaml:"listen" default:"127.0.0.1:9474"`
}

// LoadBalancerType selects the load balancer that the nodes use.
type LoadBalancerType string

// The types of load balancer.
const (
	// Internal uses Herald's balancers.
	Internal LoadBalancerType = "internal"
	// External uses a load balancer of the user.
	External LoadBalancerType = "external"
)

// LoadBalancer switches between Herald's balancers and an external one.
type LoadBalancer struct {
	// Type is `internal` or `external`. With `internal` the balancers are in force. With `external` they accept no new connections and keep the established ones; an external load balancer probes `GET /healthz/NAME` on the metrics listener, with the name of a VIP, balancer or check. Default: internal.
	Type LoadBalancerType `yaml:"type" default:"internal" want:"internal or external"`
}

// Place is an address at which a balancer listens. VIP is the name of its VIP, if any.
type Place struct {
	netip.AddrPort
	VIP string
}

// Places returns all places of a balancer.
func (c *Config) Places(b balancer.Config) []Place {
	var out []Place
	for _, l := range b.Listen {
		out = append(out, c.placesOf(l)...)
	}
	return out
}

func (c *Config) placesOf(l balancer.Listener) []Place {
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
