package nft

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// host calls the rest of the kernel: settings, routes and connections. Each call has a timeout, as with nftables, because
// the kernel's lock for links may be held for long, for instance while a driver waits for its hardware.
type host struct {
	netns int // file descriptor of a network namespace; 0 is the process's

	settings ruleset.Calls // settings and routes; by DataPlane.changing
	ends     ruleset.Calls // ending connections; by DataPlane.changing
	counts   ruleset.Calls // counting connections, for one DataPlane.Counts at a time
}

// endTimeout is how long to wait for the end of connections. A hundred thousand take seconds, and
// the call continues after the timeout.
const endTimeout = 10 * time.Second

// errUnanswered means that a call to the host timed out, or that an earlier one has not returned yet.
var errUnanswered = errors.New("the kernel does not answer")

// in runs f in the host's network namespace and returns its result. After a timeout f continues, so it must not use shared
// variables.
func in[T any](h host, calls ruleset.Calls, f func() (T, error)) (T, error) {
	var answer, none T
	err := calls.Do(func() (err error) {
		if h.netns != 0 {
			runtime.LockOSThread() // never unlocked: the thread stays in the namespace and ends with the goroutine
			if err := unix.Setns(h.netns, unix.CLONE_NEWNET); err != nil {
				return err
			}
		}
		answer, err = f()
		return err
	})
	if errors.Is(err, ruleset.ErrStuck) {
		return none, errUnanswered
	}
	return answer, err
}

// setLocalnet sets route_localnet of a link in the host's network namespace.
func (h host) setLocalnet(link string, on bool) error {
	_, err := in(h, h.settings, func() (struct{}, error) { return struct{}{}, setLocalnet(link, on) })
	return err
}

const settings = "/proc/sys/net"

// setting reads a sysctl.
func setting(path ...string) (string, error) {
	value, err := os.ReadFile(filepath.Join(append([]string{settings}, path...)...))
	return strings.TrimSpace(string(value)), err
}

// write sets a sysctl. The error says how the user can set it.
func write(value string, path ...string) error {
	name := filepath.Join(path...)
	f, err := os.OpenFile(filepath.Join(settings, name), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("%w: on the host, sysctl -w net/%s=%s", err, name, value)
	}
	return nil
}

// localnetLacks returns the links without route_localnet, which drop packets of 127.0.0.0/8. The setting "all" counts for
// each link.
func localnetLacks(links map[string]bool) ([]string, error) {
	const conf, name = "ipv4/conf", "route_localnet"
	if all, err := setting(conf, "all", name); err != nil || all == "1" {
		return nil, err
	}
	var out []string
	for link := range sorted(links) {
		value, err := setting(conf, link, name)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the link may have gone
			return nil, err
		}
		if value == "0" {
			out = append(out, link)
		}
	}
	return out, nil
}

// setLocalnet sets whether a link accepts packets of 127.0.0.0/8.
func setLocalnet(name string, on bool) error {
	var value uint32
	if on {
		value = 1
	}
	err := link.RouteLocalnet.Set(name, value)
	if errors.Is(err, unix.ENODEV) {
		return nil // the link and its setting are gone
	}
	return err
}

// forward4 switches IPv4 forwarding on for all links. It uses rtnetlink, as /proc/sys may be read-only.
func forward4() (changed []string, err error) {
	if on, err := setting("ipv4/ip_forward"); err != nil || on == "1" {
		return nil, err
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		on, err := setting("ipv4/conf", l.Name, "forwarding")
		if err != nil || on == "1" || l.Flags&net.FlagLoopback != 0 {
			continue // it has no IPv4, is gone, or forwards already
		}
		if err := link.Forwarding.Set(l.Name, 1); err != nil && !errors.Is(err, unix.ENODEV) {
			return changed, err
		}
		changed = append(changed, "net.ipv4.conf."+l.Name+".forwarding")
	}
	return changed, nil
}

// forward6 switches IPv6 forwarding on. A forwarding host ignores router advertisements unless accept_ra is 2, so
// forward6 sets it on links that accepted them.
func forward6() (changed []string, err error) {
	const conf, name = "ipv6/conf", "forwarding"
	if on, err := setting(conf, "all", name); err != nil || on == "1" {
		if errors.Is(err, os.ErrNotExist) {
			err = nil // the kernel has no IPv6
		}
		return nil, err
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		accept, err := setting(conf, link.Name, "accept_ra")
		if err != nil || accept != "1" || link.Flags&net.FlagLoopback != 0 {
			continue
		}
		if err := write("2", conf, link.Name, "accept_ra"); err != nil {
			return changed, err
		}
		changed = append(changed, "net.ipv6.conf."+link.Name+".accept_ra")
	}
	if err := write("1", conf, "all", name); err != nil {
		return changed, err
	}
	return append(changed, "net.ipv6.conf.all."+name), nil
}

// prepareHost sets the host's settings for services. The error names the services that lack one. p.changing is held.
func (p *DataPlane) prepareHost(services []balancer.Service) error {
	var faults []error
	blame := func(host error, needs func(netip.AddrPort) bool) {
		for _, s := range services {
			if host != nil && slices.ContainsFunc(s.Listen, needs) {
				faults = append(faults, &balancer.ServiceError{Service: s.Name, Err: host})
			}
		}
	}
	blame(p.prepareLocal(services), isLoopback)
	for _, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		needs := func(place netip.AddrPort) bool { return family(place.Addr()) && !isLoopback(place) }
		if !slices.ContainsFunc(services, func(s balancer.Service) bool { return slices.ContainsFunc(s.Listen, needs) }) {
			continue
		}
		if err := p.forward(family(netip.IPv4Unspecified())); err != nil {
			blame(fmt.Errorf("serves this host's own clients only: %w", err), needs)
		}
	}
	return errors.Join(faults...)
}

// prepareLocal sets route_localnet on the links to backends of services at 127.0.0.1. The table remembers the links
// first, so that a successor can reset them.
func (p *DataPlane) prepareLocal(services []balancer.Service) error {
	backends := make(map[netip.Addr]bool)
	for _, s := range services {
		if slices.ContainsFunc(s.Listen, isLoopback) {
			for _, b := range s.Backends {
				backends[b.Addr.Addr()] = true
			}
		}
	}
	lack, err := in(p.host, p.host.settings, func() ([]string, error) { return localnetLacks(linksTo(backends)) })
	if err != nil {
		return fmt.Errorf("cannot listen at 127.0.0.1: %w", err)
	}
	if len(lack) == 0 {
		return nil
	}
	if err := p.owner.remember(lack); err != nil {
		return err
	}
	for _, link := range lack {
		if err := p.host.setLocalnet(link, true); err != nil {
			return fmt.Errorf("cannot listen at 127.0.0.1: %w", err)
		}
	}
	p.log.Info("set route_localnet for listeners at 127.0.0.1; packets from outside to 127.0.0.0/8 are still dropped", "links", lack)
	return nil
}

// forward switches forwarding on for a family and logs the changed settings.
//
// Herald never switches it off: another program, such as a container runtime, may find it on and rely on it.
func (p *DataPlane) forward(v4 bool) error {
	switchOn := forward6
	if v4 {
		switchOn = forward4
	}
	changed, err := in(p.host, p.host.settings, switchOn)
	if len(changed) > 0 {
		p.log.Info("switched forwarding on for connections of other hosts; it stays on, as other programs may rely on it", "settings", changed)
	}
	return err
}

// linksTo returns the links on the routes to IPv4 addresses, without lo.
func linksTo(addrs map[netip.Addr]bool) map[string]bool {
	out := make(map[string]bool)
	for addr := range addrs {
		if !addr.Is4() {
			continue
		}
		if name, err := link.To(addr); err == nil && name != "lo" { // the next refresh tries again without a route
			out[name] = true
		}
	}
	return out
}

// Probe reports whether this kernel can balance: nil, or an ErrUnsupported with the reason. It tries in a new network
// namespace and leaves the host's unchanged.
func Probe() error {
	return unsupported(ruleset.Try(probe))
}

func probe() error {
	netns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer unix.Close(netns)
	p := newPlane(slog.New(slog.DiscardHandler), Options{}, netns)
	defer p.owner.kernel.Close()
	if err := p.owner.adopt(); err != nil {
		return err
	}
	place := netip.AddrFrom4([4]byte{192, 0, 2, 1}) // TEST-NET-1 (RFC 5737)
	_, _, err = p.owner.apply([]balancer.Service{{
		Name: "probe", Listen: []netip.AddrPort{netip.AddrPortFrom(place, 1)}, Method: balancer.SourceHash,
		Backends: []balancer.Backend{{Addr: netip.AddrPortFrom(place, 2), State: balancer.Serving}},
	}})
	return err
}
