// Package facts gathers the facts about a node that package doctor examines, within ten seconds and
// without changing anything.
package facts

import (
	"crypto/x509"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/status/admin"
)

// Facts describe a node and its neighbours. The zero value of a field means that it was not gathered.
type Facts struct {
	// Now is the time of the examination.
	Now time.Time
	// File is the configuration file.
	File string
	// Running is the status of the Herald that runs here; nil if none answers on the admin socket.
	Running *admin.Status
	// RunningError is the reason why Running is nil.
	RunningError error
	// Modes are the modes of the files with secrets that the configuration names, by path.
	Modes map[string]fs.FileMode

	// Capabilities are the effective ones of the running Herald, or else of this process,
	// as a bit set of unix.CAP_*; Holder names that process.
	Capabilities uint64
	Holder       string
	// Descriptors is RLIMIT_NOFILE, the limit of open files and sockets of this process.
	Descriptors uint64
	// ClockSource is the kernel's current clock source.
	ClockSource string
	// Settings are kernel settings, by their path below /proc/sys.
	Settings map[string]string
	// ReadOnlySettings reports that this process cannot change them.
	ReadOnlySettings bool

	// TunError is the reason why no tun link can be created, if a VIP is announced by the kernel.
	TunError error

	// Host has the links, addresses and neighbours of the node.
	Host link.Survey
	// HostError is the reason why Host is unknown, RouterIDError why the node has no BGP identifier.
	HostError, RouterIDError error
	routerID                 netip.Addr // if the file sets none
	// FenceError is the reason why the kernel has no fence. FenceLeft reports that Herald's tables exist.
	FenceError error
	FenceLeft  bool

	// BalancingError is the reason why the kernel cannot balance.
	BalancingError error
	// ForwardDrops are the chains that drop forwarded packets by policy.
	ForwardDrops []ruleset.ChainID
	// Backends holds the backends of each balancer, by its name.
	Backends map[string]Backends

	// Programs are the processes in this network namespace that announce addresses or routes.
	Programs []Program
	// Manifests are static pods of such programs.
	Manifests []Manifest
	// Sockets are the listening sockets on ports that matter.
	Sockets []Socket
	// Ports has the error of binding each port that Herald needs; nil if it is free.
	Ports map[Port]error

	// Wire names the machines that answer for each VIP on a flat layer 2.
	Wire map[netip.Addr]Use
	// Members are how the other members of the election can be reached, by name.
	Members map[string]Reach
	// Peers has the obstacle to each BGP session as a sentence, by name; empty if there is none.
	Peers map[string]string
	// Checks are the verdicts of one probe of each health check.
	Checks []health.Verdict
	// Absent are the checks with a missing file.
	Absent map[string]bool
	// Endpoints are the servers of https checks, by the check's name.
	Endpoints map[string]Endpoint

	// Tenants are listed by the cluster of the announced Services. TenantsError is the reason why they are unknown.
	Tenants      []v1alpha1.Tenant
	TenantsError error
}

// Program is a process.
type Program struct {
	PID  int
	Name string
	Args []string
	// Mentions are the VIPs that its command line, environment or configuration names.
	Mentions []netip.Addr
}

// Manifest is a file of a static pod.
type Manifest struct {
	File     string
	Image    string
	Mentions []netip.Addr // VIPs that it names
}

// Socket is a listening TCP socket or an unconnected UDP socket.
type Socket struct {
	Network string // tcp or udp
	Local   netip.AddrPort
	// PID and Program are its owner; zero if the owner is not visible.
	PID     int
	Program string
	inode   string // finds the owner
}

// Port is a port that Herald needs.
type Port struct {
	Use     string // gossip, metrics, BGP, BFD, balancer or second chance
	Network string // tcp or udp
	Local   netip.AddrPort
}

// Backends are the backends of a balancer.
type Backends struct {
	// Err is the reason why they are unknown, or why the balancer does not work.
	Err      error
	Backends []Backend
}

// Backend is a server and its answer.
type Backend struct {
	// Name is the name of a member, or else the address.
	Name    string
	Address netip.AddrPort
	// Serves reports whether it takes connections, and Reason why.
	Serves bool
	Reason string
}

// Use names the machines that answer for an address on its link.
type Use struct {
	// Err is the reason why the link could not be probed.
	Err error
	// MAC answered first; nil without an answer. Stranger is the first that belongs to no member.
	MAC, Stranger net.HardwareAddr
}

// Answer is the answer of a port.
type Answer int

// The answers.
const (
	Unasked     Answer = iota
	Accepted           // by TCP
	Refused            // by a reset or ICMP
	Silent             // no answer in time
	Unreachable        // no route, or no answer to ARP or NDP
)

// Reach has the answers of a member's gossip port. Silent for UDP does not tell whether the datagram arrived.
type Reach struct{ TCP, UDP Answer }

// Endpoint is a server and its certificate.
type Endpoint struct {
	// Address is its host and port, ServerName the name that its certificate must have.
	Address, ServerName string
	// Chain is the chain that it sent, its own certificate first; empty if it did not answer.
	Chain []*x509.Certificate
	// Client is the client certificate of the check, if any.
	Client *x509.Certificate
	// Roots are the authorities of caFile; nil means the system's.
	Roots *x509.CertPool
	// Resolved are the addresses of the certificate's DNS names.
	Resolved map[string][]netip.Addr
}
