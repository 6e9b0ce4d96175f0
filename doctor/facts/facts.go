// Package facts gathers what is to be known of a node before it is examined: it looks and
// asks, within ten seconds, and leaves everything as it was.
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

// Facts are what was seen of a node and its neighbours. The zero value of each is for
// what was not, or need not be, looked at.
type Facts struct {
	// Now is when.
	Now time.Time
	// File is the configuration file.
	File string
	// Running is the status of the Herald that runs here; nil if none answers on the admin socket.
	Running *admin.Status
	// RunningError is why the admin socket tells nothing.
	RunningError error
	// Modes are the modes of the files with secrets that the configuration names, by path.
	Modes map[string]fs.FileMode

	// Capabilities are the effective ones of the Herald that runs, or else of this process,
	// as a bit set of unix.CAP_*; Holder says whose.
	Capabilities uint64
	Holder       string
	// Descriptors is RLIMIT_NOFILE, how many files and sockets this process may have open.
	Descriptors uint64
	// ClockSource is the kernel's.
	ClockSource string
	// Settings are the kernel's by their path below /proc/sys.
	Settings map[string]string
	// ReadOnlySettings says that this process cannot change them.
	ReadOnlySettings bool

	// TunError is why no link can be made for routes in the kernel, if there are to be any.
	TunError error

	// Host is what the node has of links and addresses.
	Host link.Survey
	// HostError is why Host is unknown, RouterIDError why the node has no BGP identifier.
	HostError, RouterIDError error
	routerID                 netip.Addr // if the file sets none
	// FenceError is why the kernel has no fence, FenceLeft whether Herald's tables are there.
	FenceError error
	FenceLeft  bool

	// BalancingError is why the kernel cannot balance.
	BalancingError error
	// ForwardDrops are chains that drop what is forwarded unless a rule of theirs accepts it.
	ForwardDrops []ruleset.ChainID
	// Backends are those of each balancer, by its name.
	Backends map[string]Backends

	// Programs are those that run in this network namespace and announce addresses or routes.
	Programs []Program
	// Manifests are static pods of such programs.
	Manifests []Manifest
	// Sockets are the ports that are listened on.
	Sockets []Socket
	// Ports are what binding each port that Herald needs led to.
	Ports map[Port]error

	// Wire is who answers for each VIP on a flat layer 2.
	Wire map[netip.Addr]Use
	// Members are how the other members of the election can be reached, by name.
	Members map[string]Reach
	// Peers say in a sentence what keeps a BGP session from coming up, by name; empty if nothing does.
	Peers map[string]string
	// Checks are the verdicts of one probe of each health check.
	Checks []health.Verdict
	// Absent are the checks of which a file is not there.
	Absent map[string]bool
	// Endpoints are the servers of https checks, by the check's name.
	Endpoints map[string]Endpoint

	// Tenants are those of the cluster whose Services this node announces, TenantsError why they are unknown.
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

// Socket is a TCP port that is listened on or a UDP port that is open to all.
type Socket struct {
	Network string // tcp or udp
	Local   netip.AddrPort
	// PID and Program are its owner; zero if that cannot be seen.
	PID     int
	Program string
	inode   string // by which they are found
}

// Port is one that Herald needs.
type Port struct {
	Use     string // gossip, metrics, BGP, BFD, balancer or second chance
	Network string // tcp or udp
	Local   netip.AddrPort
}

// Backends are who may take the connections of a balancer.
type Backends struct {
	// Err is what keeps the balancer from knowing them, or from its work.
	Err      error
	Backends []Backend
}

// Backend is a server, and how it answered.
type Backend struct {
	// Name is a member's, or the address if it is none.
	Name    string
	Address netip.AddrPort
	// Serves is whether it would take connections, and Reason why.
	Serves bool
	Reason string
}

// Use is who answers for an address on its link.
type Use struct {
	// Err is why the link could not be asked.
	Err error
	// MAC is the first that answered, nil if nobody did; Stranger the first that is no member's.
	MAC, Stranger net.HardwareAddr
}

// Answer is what came back from a port.
type Answer int

// The answers.
const (
	Unasked     Answer = iota
	Accepted           // the connection was
	Refused            // by a reset or ICMP
	Silent             // nothing came
	Unreachable        // no route, or nobody answers ARP or NDP
)

// Reach is how a member's gossip port can be reached. A datagram that is not Refused
// may have arrived or not: Silent says no more.
type Reach struct{ TCP, UDP Answer }

// Endpoint is a server and its certificate.
type Endpoint struct {
	// Address is its host and port, ServerName what its certificate is to be for.
	Address, ServerName string
	// Chain is what it sent, its own certificate first; empty if it could not be asked.
	Chain []*x509.Certificate
	// Client is what the check shows to it; nil if nothing.
	Client *x509.Certificate
	// Roots are the authorities of caFile; nil means the system's.
	Roots *x509.CertPool
	// Resolved are the addresses of the certificate's DNS names.
	Resolved map[string][]netip.Addr
}
