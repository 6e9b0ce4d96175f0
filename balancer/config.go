package balancer

import (
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/health"
)

// Mode is what carries a balancer's connections.
type Mode int

const (
	// Kernel has the kernel rewrite their packets.
	Kernel Mode = iota
	// Proxy copies their bytes in user space.
	Proxy
)

// String returns "kernel" or "proxy".
func (m Mode) String() string {
	if m == Proxy {
		return "proxy"
	}
	return "kernel"
}

// Config is a balancer that is wanted. Exactly one of Members, Static and DNS is set.
type Config struct {
	// Name tells balancers apart.
	Name string
	// Listen is where connections arrive. While it is empty none is taken: those that are
	// established stay, and backends are watched all the same.
	Listen []netip.AddrPort
	Method Method
	Mode   Mode
	// Transparent keeps the client's address, see [Service].
	Transparent bool
	// Forget is after how long a backend that is gone is forgotten.
	Forget time.Duration

	// Members are those of the election that offer what is asked for.
	Members *Members
	// Static are addresses that are known beforehand.
	Static []netip.AddrPort
	// DNS is a name whose addresses are backends.
	DNS *DNS
	// Check is how each backend of Static and DNS is watched; nil takes all of them for
	// healthy. The host "backend" in its URL or address stands for the backend's address, and
	// where no port is named, for the backend's port as well. Its name is not used.
	Check *health.Check
}

// Members says which members of the election are backends.
type Members struct {
	// Port is where they serve, at the address that they have in the election.
	Port uint16
	// Checks are the names, at least one, of the checks that must be healthy there. Who offers not
	// one of them is no backend.
	Checks []string
}

// DNS is a name that is looked up again and again.
type DNS struct {
	Name string
	// Port is where its addresses serve.
	Port uint16
	// Interval is the time between two look-ups. One that fails changes nothing.
	Interval time.Duration
}

// Member is what a member of the election says of itself.
type Member struct {
	Name string
	Addr netip.Addr
	// Checks are its verdicts by name; one without a verdict yet is left out.
	Checks   map[string]bool
	Draining bool
	// TimedOut: it has not been heard of for as long as what it said holds, or has left.
	TimedOut bool
}

// Serves reports whether the member serves what takes these checks to pass.
func (m Member) Serves(checks []string) bool {
	return !m.TimedOut && !m.Draining && !slices.ContainsFunc(checks, func(name string) bool { return !m.Checks[name] })
}

// Status is a balancer as it is.
type Status struct {
	Name     string
	Backends []BackendStatus
	// Error is why the plane does not carry it as it should, or why its backends could not be
	// looked up; empty if all is well.
	Error string
}

// BackendStatus is a backend as it is.
type BackendStatus struct {
	Backend
	// Since is when it came into its state.
	Since time.Time
	// Connections counts those that it was given, Open are those it has; -1 if that is not known.
	Connections uint64
	Open        int
}
