package facts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/nft"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/status/admin"
)

// Time limits of the examination and of its parts.
const (
	wholeTimeout   = 9 * time.Second
	runningTimeout = 2 * time.Second
	connectTimeout = 1500 * time.Millisecond
)

// Gather gathers the facts about the node of c, which was read from file, and asks its neighbours,
// members, peers and servers. It takes less than ten seconds even if none answers, and changes nothing.
// The returned configuration is c, with the members filled in if c has none.
func Gather(ctx context.Context, c *config.Config, file string) (*config.Config, *Facts) {
	ctx, cancel := context.WithTimeout(ctx, wholeTimeout)
	defer cancel()
	root := os.DirFS("/")
	f := &Facts{Now: time.Now(), File: file}
	f.Running, f.RunningError = running(ctx, c)
	f.Host, f.HostError = link.ReadSurvey()
	c = f.withMembers(c)
	if c.BGP != nil && !c.BGP.RouterID.IsValid() {
		f.routerID, f.RouterIDError = link.RouterID(c.NodeName, Addresses(c, config.AnnounceBGP, config.AnnounceARP, config.AnnounceKernel)...)
	}
	f.lookAtKernel(root)
	f.lookAtSoftware(root, c)
	f.lookAtProcess(c)
	f.Absent = absentFiles(c)
	f.Ports = make(map[Port]error)
	for _, p := range Ports(c) {
		if p.Local.Addr().Zone() == "" {
			f.Ports[p] = tryPort(p)
		}
	}

	// Each part sets fields of its own.
	var parts sync.WaitGroup
	parts.Go(func() { f.tryKernel(c) })
	parts.Go(func() { f.lookAtFilters(c) })
	parts.Go(func() { f.Backends = f.askBackends(ctx, c) })
	parts.Go(func() { f.Checks = probeChecks(ctx, c.Checks) })
	parts.Go(func() { f.Endpoints = inspect(ctx, c) })
	parts.Go(func() { f.Peers = f.askPeers(ctx, c) })
	parts.Go(func() { f.Tenants, f.TenantsError = askTenants(ctx, c) })
	parts.Go(func() {
		f.Members = f.askMembers(ctx, c)
		if again, err := link.ReadSurvey(); err == nil { // now with the members in the neighbour table
			f.Host.Neighbours = again.Neighbours
		}
		f.Wire = f.askWire(ctx, c)
	})
	parts.Wait()
	return c, f
}

// together asks about all items concurrently and returns the answers by name.
func together[T, R any](items []T, name func(T) string, ask func(T) R) map[string]R {
	var (
		mu  sync.Mutex
		out = make(map[string]R)
		all sync.WaitGroup
	)
	for _, item := range items {
		all.Go(func() {
			answer := ask(item)
			mu.Lock()
			defer mu.Unlock()
			out[name(item)] = answer
		})
	}
	all.Wait()
	return out
}

// itself returns name: it names items that are names.
func itself(name string) string { return name }

// running asks the Herald of this node for its status.
func running(ctx context.Context, c *config.Config) (*admin.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, runningTimeout)
	defer cancel()
	status, err := admin.NewClient(c.Admin.Socket).Status(ctx)
	if err != nil {
		return nil, err
	}
	return &status, nil
}

// lookAtProcess reads the capabilities of Herald, or else of this process, and the modes of the secrets.
// It needs f.Programs.
func (f *Facts) lookAtProcess(c *config.Config) {
	f.Holder = "this process"
	f.Capabilities, _ = capabilities(0)
	if p, ok := f.Herald(); ok && f.Running != nil {
		if own, err := capabilities(p.PID); err == nil {
			f.Capabilities, f.Holder = own, fmt.Sprintf("Herald, process %d,", p.PID)
		}
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		f.Descriptors = limit.Cur
	}
	f.Modes = make(map[string]fs.FileMode)
	for _, path := range Secrets(c) {
		if info, err := os.Stat(path); err == nil {
			f.Modes[path] = info.Mode()
		}
	}
	if len(Addresses(c, config.AnnounceKernel)) > 0 {
		f.TunError = unix.Access(route.TunDevice, unix.R_OK|unix.W_OK)
	}
	err := unix.Access("/proc/sys/net/ipv4/conf/all/arp_announce", unix.W_OK)
	f.ReadOnlySettings = errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES)
}

// capabilities returns the effective capabilities of a process; 0 means this one.
func capabilities(pid int) (uint64, error) {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3, Pid: int32(pid)}, &data[0])
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), err
}

// tryKernel tries the kernel features of the fence and of balancers, unless a running Herald reports them.
func (f *Facts) tryKernel(c *config.Config) {
	if f.Running == nil && len(Places(c, balancer.Kernel)) > 0 {
		f.BalancingError = nft.Probe()
	}
	if f.Running == nil && c.Flat() && c.ARP.Fence != config.FenceOff {
		f.FenceError = fence.Probe()
		f.FenceLeft, _ = fence.Left() // only for the wording
	}
}

// source returns addr if this node has it, else the zero value, so that the kernel chooses.
func (f *Facts) source(addr netip.Addr) netip.Addr {
	if _, ok := f.Host.Has(addr); ok {
		return addr
	}
	return netip.Addr{}
}

// String names the owner of the socket.
func (s Socket) String() string {
	if s.PID == 0 {
		return "a program that is not visible from here"
	}
	return fmt.Sprintf("%s, process %d", s.Program, s.PID)
}

// Owner returns the socket that listens on p; the zero value if none is visible.
func (f *Facts) Owner(p Port) Socket {
	for _, s := range f.Sockets {
		if s.Network == p.Network && s.Local.Port() == p.Local.Port() &&
			(s.Local.Addr() == p.Local.Addr() || s.Local.Addr().IsUnspecified() || p.Local.Addr().IsUnspecified()) {
			return s
		}
	}
	return Socket{}
}

// Herald returns the process of the Herald that runs in this network namespace.
func (f *Facts) Herald() (Program, bool) {
	i := slices.IndexFunc(f.Programs, func(p Program) bool { return p.Name == "herald" && slices.Contains(p.Args, "run") })
	if i < 0 {
		return Program{}, false
	}
	return f.Programs[i], true
}

// Links returns all links in order of their index.
func (f *Facts) Links() []link.Link {
	return slices.SortedFunc(maps.Values(f.Host.Links), func(a, b link.Link) int { return cmp.Compare(a.Index, b.Index) })
}

// Carrier returns the link for an address of v, as the daemon chooses it.
func (f *Facts) Carrier(v config.VIP, addr netip.Addr) (string, error) {
	switch {
	case v.Announce == config.AnnounceKernel:
		return route.Device, nil
	case v.Interface != "":
		return v.Interface, nil
	}
	return f.Host.For(addr)
}

// Member returns the member with this MAC address in the neighbour table; empty if there is none.
func (f *Facts) Member(c *config.Config, mac net.HardwareAddr) string {
	for _, n := range f.Host.Neighbours {
		if !bytes.Equal(n.MAC, mac) {
			continue
		}
		for _, name := range Others(c) {
			if c.Election.Members[name].Addr() == n.Addr {
				return name
			}
		}
	}
	return ""
}

// NameOf returns a name in the certificate that stands for addr or resolves to it; empty if there is none.
func (e Endpoint) NameOf(addr netip.Addr) string {
	leaf := e.Chain[0]
	if leaf.VerifyHostname(addr.String()) == nil {
		return addr.String()
	}
	for _, name := range leaf.DNSNames {
		if slices.Contains(e.Resolved[name], addr) {
			return name
		}
	}
	return ""
}
