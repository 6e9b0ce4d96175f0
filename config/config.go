// Package config is Herald's configuration file, and what drop-ins add to it: YAML, parsed
// strictly, filled with defaults and validated as a whole. Every mistake in a
// file is reported at once, each as one sentence with file, line, column and
// field, so that a bad file can be mended in one go and never replaces a
// running configuration.
//
// [Load] reads a file, [Parse] is its pure part, and a [Watcher] tells when a
// file has changed. The format is described in docs/config.md, which is
// generated from this package.
package config

//go:generate go test ./internal/reference -run TestPages -update

import (
	"net/netip"
	"time"

	"github.com/herald-vip/herald/bgp/asn"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/health"
)

// The only API version and kind this build reads.
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
	// NodeName names this node in logs, metrics and shutdown messages: lower-case letters and digits, with `-` and `.` between. With a `services` section it must be the Node's name in Kubernetes. `--node-name` and the environment's `NODE_NAME` go before it. Default: the host's name.
	NodeName string `yaml:"nodeName"`
	// VIPs are the virtual IPs this speaker announces while their checks pass; there is at least one, unless there are `balancers`, a `services` section, or an `election` with `checks` to tell the others of. Default: none.
	VIPs []VIP `yaml:"vips"`
	// Checks are the health checks that VIPs refer to by name. With an `election` section every member is told what they say. Default: none.
	Checks []health.Check `yaml:"checks"`
	// Realtime runs the process under real-time scheduling (SCHED_RR) with its memory locked, so that a busy node does not delay it; what the host does not permit is reported in status. BFD intervals below 50ms need it. Default: false.
	Realtime bool `yaml:"realtime"`
	// Services has the node announce the VIPs of Kubernetes Services of `type: LoadBalancer` from the address pools in Kubernetes; `services: {}` is enough in a pod. It cannot change while running. Default: none of them.
	Services *Services `yaml:"services"`
	// BGP configures the embedded BGP speaker. Required by a VIP with `announce: bgp`.
	BGP *BGP `yaml:"bgp"`
	// Election configures how nodes know each other, what each serves, and on a flat layer 2 who holds a VIP. Required by a VIP with `announce: arp` or `whenAllFail: keep` and by `balancers` with `members`.
	Election *electorate.Settings `yaml:"election"`
	// ARP configures how a holder makes itself known on a flat layer 2, and what keeps it from answering for longer than it may.
	ARP ARP `yaml:"arp"`
	// LoadBalancer says whether the balancers are in force.
	LoadBalancer LoadBalancer `yaml:"loadBalancer"`
	// Balancers spread the connections that arrive at this node over healthy backends. Default: none.
	Balancers []Balancer `yaml:"balancers"`
	// Admin is the local control socket behind `herald status`, `drain` and `undrain`.
	Admin Admin `yaml:"admin"`
	// Metrics is the HTTP listener of /metrics, /healthz, /healthz/NAME and /readyz, and of a status page at /.
	Metrics Metrics `yaml:"metrics"`
}

// Announce is how a VIP reaches the network.
type Announce string

// The ways a VIP may reach the network.
const (
	// AnnounceBGP advertises the VIP as a route to BGP peers.
	AnnounceBGP Announce = "bgp"
	// AnnounceARP has one elected node answer for the VIP on a flat layer 2, by ARP and neighbour discovery.
	AnnounceARP Announce = "arp"
	// AnnounceKernel keeps a route in a table of the kernel, which a routing daemon of the node redistributes.
	AnnounceKernel Announce = "kernel"
)

// OnFailure is what a failing check does to an announced VIP.
type OnFailure string

// What a failing check may do.
const (
	// Withdraw takes route and address away.
	Withdraw OnFailure = "withdraw"
	// Demote keeps both, as a last resort.
	Demote OnFailure = "demote"
)

// WhenAllFail is what becomes of a VIP that all members fail to serve in time.
type WhenAllFail string

// Keep has the last ones keep it.
const Keep WhenAllFail = "keep"

// AdvertisedVIP is what the name of a VIP has before it among what members offer: no name of a check does.
const AdvertisedVIP = "vip:"

// VIP is one virtual IP, or several (dual stack) that live and die together.
type VIP struct {
	// Name identifies the VIP in logs, status and metrics: at most 63 lower-case letters and digits, with `-` and `.` between. Required.
	Name string `yaml:"name"`
	// Addresses are the VIP's addresses; /32 and /128 are implied. Required.
	Addresses []netip.Addr `yaml:"addresses"`
	// Announce is how the VIP reaches the network: `bgp`, as a route from every healthy node; `kernel`, likewise, as a route in a table of the kernel that FRR, BIRD or another routing daemon of the node redistributes; or `arp`, on a flat layer 2 from the one that holds its lease. Required.
	Announce Announce `yaml:"announce" want:"bgp, kernel or arp"`
	// Kernel is where the route is with `announce: kernel`.
	Kernel *Table `yaml:"kernel"`
	// Prefixes are announced in place of those addresses that they cover, while these are healthy, as the Internet takes no route longer than /24 or /48. VIPs may share one. Default: none.
	Prefixes []netip.Prefix `yaml:"prefixes"`
	// PrefixWhile is what has to be healthy for a prefix to be announced: `any` address behind it, of whichever VIP, or `all` of them. Default: any.
	PrefixWhile PrefixWhile `yaml:"prefixWhile" default:"any" want:"any or all"`
	// Interface is the link that carries the address. Default: `lo` with `announce: bgp`; with `announce: arp` the link whose subnet holds the address. With `announce: kernel` none does.
	Interface string `yaml:"interface"`
	// Checks name the checks that must all pass before the VIP is announced. Required.
	Checks []string `yaml:"checks"`
	// Linger is how long this node still answers for the VIP after a planned withdrawal, 0s to 5m. Default: 1s.
	Linger time.Duration `yaml:"linger" default:"1s" want:"0s to 5m"`
	// Peers name the BGP peers that hear of the VIP, by their address or interface, or as `default-ipv4` and `default-ipv6`. A VIP that moves is announced to the new ones half a second before it leaves the old ones; a peer that is new itself needs to be up before. Default: all.
	Peers []string `yaml:"peers"`
	// HoldDown is the longest that a VIP whose checks flap stays withdrawn after they pass again, 0s to 1h: the first return is at once, each further one within a short time waits twice as long. 0s turns it off. Default: 1m.
	HoldDown time.Duration `yaml:"holdDown" default:"1m" want:"0s to 1h"`
	// OnFailure is what a failing check does to an announced VIP: `withdraw` it or `demote` it to the worst route there is, which routers use only when no other node has a better one. Default: withdraw.
	OnFailure OnFailure `yaml:"onFailure" default:"withdraw" want:"withdraw or demote"`
	// WhenAllFail is what becomes of a VIP whose checks fail slowly (no answer in time, or one of 5xx or 429) on all members of the `election`: `withdraw` it, or `keep` it where it was announced until a member is well, with `announce: arp` by its lease, otherwise as the worst route there is. A refused connection is never kept. It is to be the same on all members. Default: withdraw.
	WhenAllFail WhenAllFail `yaml:"whenAllFail" default:"withdraw" want:"withdraw or keep"`
	// Priority is the node's claim to the VIP with `announce: arp`, 0 to 1000: of the healthy nodes the one with the highest gets a VIP that is free. Default: 100.
	Priority int `yaml:"priority" default:"100" want:"0 to 1000"`
	// Preempt has the VIP move to this node, without loss, once it has been healthy for a while and its priority is higher than the holder's. Default: false, the VIP stays where it is.
	Preempt bool `yaml:"preempt"`
	// OnConflict is what the holder does when a machine that is no member uses the VIP: `defend` it, by announcing it again, or `yield` and give it up until the other is gone. Either is reported. Default: defend.
	OnConflict OnConflict `yaml:"onConflict" default:"defend" want:"defend or yield"`
	// Bridge has a node whose checks have failed, or that drains, send new connections for the VIP on to healthy masters while routers and neighbours still bring them here, and has packets of established connections passed on to the master that owns them, unless `announce` is `arp`. It needs an `election` section, by which the masters are known. Default: whether there is an `election` section.
	Bridge *bool `yaml:"bridge"`
	// Attributes are added to those of the `bgp` section for this VIP's routes.
	Attributes `yaml:",inline"`
}

// Table is where the routes to a VIP are in the kernel (`ip route show table N`).
type Table struct {
	// Table is its number, 1 to 65535 but for 255, which is the kernel's own; 254 is the main table, which every routing daemon reads. Default: 201.
	Table int `yaml:"table" default:"201" want:"1 to 65535"`
	// Metric is the routes' priority, 1 to 16777214: lower is better. A route that is about to leave, or that is demoted, has 16777215. Default: 100.
	Metric int `yaml:"metric" default:"100" want:"1 to 16777214"`
}

// PrefixWhile is what has to be healthy for a prefix to be announced.
type PrefixWhile string

// What may have to be healthy.
const (
	WhileAny PrefixWhile = "any"
	WhileAll PrefixWhile = "all"
)

// OnConflict is what the holder of a VIP does about a foreign machine that uses it.
type OnConflict string

// What a holder may do.
const (
	// Defend announces the VIP again.
	Defend OnConflict = "defend"
	// Yield gives it up.
	Yield OnConflict = "yield"
)

// Services are the VIPs of Kubernetes Services. What announces them is in the API: address pools, and peers besides those of the file.
type Services struct {
	// Kubeconfig is the file that says where the Kubernetes API is and how to log in. Default: the pod's service account.
	Kubeconfig string `yaml:"kubeconfig"`
	// LoadBalancerClass is the `spec.loadBalancerClass` of the Services that are Herald's. Default: herald.dev/vip.
	LoadBalancerClass string `yaml:"loadBalancerClass" default:"herald.dev/vip"`
	// DefaultClass makes Services without a class Herald's, too. Default: true.
	DefaultClass bool `yaml:"defaultClass" default:"true"`
	// Assign has the node stand for being the one that gives Services their addresses. Default: true.
	Assign bool `yaml:"assign" default:"true"`
	// Namespace is where those that stand for it have their Lease, and where Secrets with the passwords of BGP peers are. Default: the pod's own, else `kube-system`.
	Namespace string `yaml:"namespace"`
	// Compatibility names the load balancers whose annotations of Services count where there is none of Herald's: `metallb`, `kube-vip`, `cilium`. It is the same on all nodes. Default: none.
	Compatibility []string `yaml:"compatibility" want:"metallb, kube-vip or cilium"`
	// RequireEndpoints says where a Service with `externalTrafficPolicy: Cluster` has to have a ready endpoint for a node to announce it: on `any` node, on that `node` itself, or, with `none`, nowhere. Default: any.
	RequireEndpoints string `yaml:"requireEndpoints" default:"any" want:"none, any or node"`
	// ExcludeCordoned has a node that is cordoned (`spec.unschedulable`) withdraw. Default: false.
	ExcludeCordoned bool `yaml:"excludeCordoned"`
	// IgnoreExcludeLabel has nodes with the label `node.kubernetes.io/exclude-from-external-load-balancers` announce, too, for clusters whose every node is a master. Default: false.
	IgnoreExcludeLabel bool `yaml:"ignoreExcludeLabel"`
	// ExcludeTaints are the keys of taints that have a node withdraw, such as `node.kubernetes.io/out-of-service`. Default: none.
	ExcludeTaints []string `yaml:"excludeTaints"`
	// Linger is how long a node on a flat layer 2 still answers for an address after it has withdrawn it on purpose, 0s to 5m. Default: 1s.
	Linger time.Duration `yaml:"linger" default:"1s" want:"0s to 5m"`
	// HostPorts lets clients that use a Service's address on a flat layer 2 reach what listens on the node that has it, at ports which no Service has there. Default: false, they are refused.
	HostPorts bool `yaml:"hostPorts"`
}

// Attributes are BGP path attributes. A VIP's and a peer's are laid over those of the `bgp` section: lists and `prepend` add up, the other numbers replace.
type Attributes struct {
	// Communities are RFC 1997 communities, `65000:100` or a well-known name: `no-export`, `no-advertise`, `no-export-subconfed`, `no-peer`, `graceful-shutdown`, `blackhole`.
	Communities []string `yaml:"communities"`
	// LargeCommunities are RFC 8092 large communities, `64512:1:2`.
	LargeCommunities []string `yaml:"largeCommunities"`
	// MED is the multi-exit discriminator; lower is preferred by the peer.
	MED *uint32 `yaml:"med"`
	// LocalPref is sent to iBGP peers only, as 100 unless given; higher is preferred. Refused where no peer is iBGP.
	LocalPref *uint32 `yaml:"localPref"`
	// Prepend adds the own ASN this many more times to the AS path, 0 to 10. Default: 0.
	Prepend int `yaml:"prepend" want:"0 to 10"`
}

// BGP is the embedded BGP speaker.
type BGP struct {
	// ASN is the own autonomous system number, 1 to 4294967294. Required.
	ASN uint32 `yaml:"asn"`
	// RouterID is the BGP identifier, an IPv4 address. Default: the first global IPv4 address of the node, or without one made of its name.
	RouterID netip.Addr `yaml:"routerID"`
	// Listen accepts sessions that peers open. Default: none, sessions are only opened outbound.
	Listen *Listen `yaml:"listen"`
	// ConnectRetry is the longest wait between two attempts to reach a peer, in whole seconds, 2s to 60s. Default: 2s.
	ConnectRetry time.Duration `yaml:"connectRetry" default:"2s" want:"2s to 60s"`
	// Peers are the routers that hear this speaker; without a `services` section, with which peers may be BGPPeer resources, there is at least one. Default: none.
	Peers []Peer `yaml:"peers"`
	// Attributes are those of every route.
	Attributes `yaml:",inline"`
}

// Listen is where BGP sessions are accepted.
type Listen struct {
	// Addresses to listen on. Default: all.
	Addresses []netip.Addr `yaml:"addresses"`
	// Port to listen on. Default: 179.
	Port uint16 `yaml:"port" default:"179" want:"1 to 65535"`
}

// Family is an address family of BGP routes.
type Family string

// The address families a session may carry.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Peer is one BGP neighbour, named by its address or, unnumbered, by the interface it is reached through; the default gateway is `default-ipv4` or `default-ipv6`.
type Peer struct {
	// Address is the peer's address; a link-local one needs a zone, `fe80::1%eth0`. Either this, `interface` or `defaultGateway` is required.
	Address netip.Addr `yaml:"address"`
	// Interface makes the peer unnumbered: the router at the far end of this link, found by its IPv6 router advertisements.
	Interface string `yaml:"interface"`
	// DefaultGateway makes the peer the default gateway of a family, `ipv4` or `ipv6`: the next hop of the default route with the lowest metric in the main routing table, or each of them if there are several, wherever the route leads at the time. A gateway that is none any more keeps its session for five seconds, in which that with the new one comes up.
	DefaultGateway Family `yaml:"defaultGateway"`
	// ASN is the peer's autonomous system number; the same as the own one makes the session iBGP. `external` is any but the own one, as the peer tells it. Required.
	ASN asn.Peer `yaml:"asn"`
	// Port is the peer's TCP port. Default: 179.
	Port uint16 `yaml:"port" default:"179" want:"1 to 65535"`
	// LocalAddress is the source address of the session. Default: the kernel's choice.
	LocalAddress netip.Addr `yaml:"localAddress"`
	// PasswordFile holds the TCP MD5 password (RFC 2385): one line of at most 80 bytes. It is read again when it changes.
	PasswordFile string `yaml:"passwordFile"`
	// Password is the content of PasswordFile, never part of the file itself.
	Password string `yaml:"-"`
	// HoldTime is the BGP hold time in whole seconds, 3s to 65535s; keepalives are sent at a third of it. Default: 3s.
	HoldTime time.Duration `yaml:"holdTime" default:"3s" want:"3s to 65535s"`
	// Multihop is the TTL of an eBGP session to a peer that is not on a shared link; 0 means directly connected. Default: 0.
	Multihop uint8 `yaml:"multihop"`
	// TTLSecurity is the number of hops the peer may be away under GTSM (RFC 5082); 1 is directly connected, 0 is off, 254 the most. Not together with `multihop`. Default: 0.
	TTLSecurity uint8 `yaml:"ttlSecurity" want:"0 to 254"`
	// BFD watches the path to the peer (RFC 5880), which is to be configured for it too. Routes wait for BFD when a session comes up, for 5s at most. Default: off.
	BFD *BFD `yaml:"bfd"`
	// Families are the address families of the session: `ipv4`, `ipv6`. Default: the one of the peer's address or of `defaultGateway`; both if unnumbered.
	Families []Family `yaml:"families" want:"ipv4 or ipv6"`
	// NextHop4 is the next hop of IPv4 routes sent to this peer. Default: the session's own local address.
	NextHop4 netip.Addr `yaml:"nextHop4"`
	// NextHop6 is the next hop of IPv6 routes sent to this peer. Default: the session's own local address, or, on an IPv4 session, a global IPv6 address of the same link.
	NextHop6 netip.Addr `yaml:"nextHop6"`
	// Attributes are those of the routes sent to this peer.
	Attributes `yaml:",inline"`
}

// CalmInterval is the shortest BFD interval that does not need real-time scheduling.
const CalmInterval = 50 * time.Millisecond

// BFD is a session of Bidirectional Forwarding Detection: a peer that has been silent for `multiplier` intervals is down.
type BFD struct {
	// Interval is the time between two packets, each way; a peer that asks for a longer one is given it. 10ms to 10s, below 50ms with `realtime: true`. Default: 50ms.
	Interval time.Duration `yaml:"interval" default:"50ms" want:"10ms to 10s"`
	// Multiplier is how many intervals of silence end the session, 2 to 50. Default: 3.
	Multiplier uint8 `yaml:"multiplier" default:"3" want:"2 to 50"`
	// Multihop speaks BFD for paths over several hops (RFC 5883), as the router must: FRR does so for sessions with `multihop` or `ttlSecurity`, even on a shared link. Default: whether the session has one of these.
	Multihop *bool `yaml:"multihop"`
}

// Name is how a VIP calls the peer, which no other shares: its address, its interface, or what gateway it is.
// Logs, status and metrics call it so, too, except that they know gateways by their addresses.
func (p *Peer) Name() string {
	switch {
	case p.Address.IsValid():
		return p.Address.String()
	case p.DefaultGateway != "":
		return GatewayName(p.DefaultGateway)
	}
	return p.Interface
}

// GatewayName is that of the peers that are the default gateways of a family.
func GatewayName(f Family) string { return "default-" + string(f) }

// Fence says whether the kernel is to keep a node from answering for a VIP it does not hold.
type Fence string

// The ways to treat the fence.
const (
	// FenceAuto uses it where there is nftables, and reports where not.
	FenceAuto Fence = "auto"
	// FenceRequired starts only with it.
	FenceRequired Fence = "required"
	// FenceOff never uses it.
	FenceOff Fence = "off"
)

// ARP is how a holder makes itself known on a flat layer 2.
type ARP struct {
	// Refresh is the time between two announcements of a VIP that stays, for switches and hosts that forget, 1s to 1h. Default: 60s.
	Refresh time.Duration `yaml:"refresh" default:"1m" want:"1s to 1h"`
	// Fence is the kernel's guard, by nftables, that drops what a node might answer for a VIP whose lease has ended, even if Herald is frozen: `auto` uses it where it can and reports where it cannot, `required` refuses to start without it, `off` does without. Default: auto.
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
