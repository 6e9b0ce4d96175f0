package nft

import (
	"errors"
	"fmt"
	"maps"
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

// host is the rest of the kernel that is needed: settings, routes, connections. Another program
// may have the kernel's lock of links for long, as while a driver waits for its hardware; so each call
// has its end, as those of nftables have.
type host struct {
	netns int // file descriptor of a network namespace; 0: the process's

	settings ruleset.Calls // and routes; by Plane.applying
	ends     ruleset.Calls // of connections; by Plane.applying
	counts   ruleset.Calls // of connections; by Plane.counting
}

// endTimeout is for how long ending connections is waited for: of a hundred thousand it takes
// seconds, and goes on then.
const endTimeout = 10 * time.Second

// errUnanswered is when a call to the host has not ended in time, or the last one still has not.
var errUnanswered = errors.New("the kernel does not answer")

func newHost(netns int, timeout time.Duration) host {
	return host{netns, ruleset.NewCalls(timeout), ruleset.NewCalls(max(timeout, endTimeout)), ruleset.NewCalls(timeout)}
}

// in returns what f does in the host's network namespace. A call that is not waited for any more may go on,
// so f is not to touch what others do.
func in[T any](h host, calls ruleset.Calls, f func() (T, error)) (T, error) {
	var answer, none T
	err := calls.Do(func() (err error) {
		if h.netns != 0 {
			runtime.LockOSThread() // and never unlock: the thread, which is elsewhere now, ends with the goroutine
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

// setLocalnet lets packets of 127.0.0.0/8 pass a link, or no longer.
func (h host) setLocalnet(link string, on bool) error {
	_, err := in(h, h.settings, func() (struct{}, error) { return struct{}{}, setLocalnet(link, on) })
	return err
}

const settings = "/proc/sys/net"

// setting reads a setting of the kernel's.
func setting(path ...string) (string, error) {
	value, err := os.ReadFile(filepath.Join(append([]string{settings}, path...)...))
	return strings.TrimSpace(string(value)), err
}

// write changes a setting. The error says how the user can do it.
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

// localnetLacks tells which of links drop packets of 127.0.0.0/8. What is set for all
// links counts for each.
func localnetLacks(links map[string]bool) ([]string, error) {
	const conf, name = "ipv4/conf", "route_localnet"
	if all, err := setting(conf, "all", name); err != nil || all == "1" {
		return nil, err
	}
	var out []string
	for link := range sorted(links) {
		value, err := setting(conf, link, name)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it may have just gone
			return nil, err
		}
		if value == "0" {
			out = append(out, link)
		}
	}
	return out, nil
}

// setLocalnet lets packets of 127.0.0.0/8 pass a link, or no longer.
func setLocalnet(name string, on bool) error {
	var value uint32
	if on {
		value = 1
	}
	err := link.RouteLocalnet.Set(name, value)
	if errors.Is(err, unix.ENODEV) {
		return nil // with the link the setting has gone
	}
	return err
}

// forward4 lets packets pass that come by any link. It asks rtnetlink, as /proc/sys may be read-only.
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
			continue // it has no IPv4, has gone, or forwards
		}
		if err := link.Forwarding.Set(l.Name, 1); err != nil && !errors.Is(err, unix.ENODEV) {
			return changed, err
		}
		changed = append(changed, "net.ipv4.conf."+l.Name+".forwarding")
	}
	return changed, nil
}

// forward6 lets packets of IPv6 pass. A host that forwards does not accept router
// advertisements unless it is told to in so many words (accept_ra=2): where it did it goes on.
func forward6() (changed []string, err error) {
	const conf, name = "ipv6/conf", "forwarding"
	if on, err := setting(conf, "all", name); err != nil || on == "1" {
		if errors.Is(err, os.ErrNotExist) {
			err = nil // there is no IPv6
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

// prepareHost sets what services need of the host besides the table, and says which of them have to do
// without.
func (p *Plane) prepareHost(services []balancer.Service) error {
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

// prepareLocal lets packets of 127.0.0.0/8 pass where services listen at 127.0.0.1. The table remembers
// what is set before it is, so that a successor can take it back.
func (p *Plane) prepareLocal(services []balancer.Service) error {
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
	if err := p.remember(lack); err != nil {
		return err
	}
	for _, link := range lack {
		if err := p.host.setLocalnet(link, true); err != nil {
			return fmt.Errorf("cannot listen at 127.0.0.1: %w", err)
		}
	}
	p.log.Info("set route_localnet for what listens at 127.0.0.1; packets from outside to 127.0.0.0/8 are dropped all the same", "links", lack)
	return nil
}

// remember writes down which links are about to be set.
func (p *Plane) remember(links []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.want.localnet
	p.want.localnet = maps.Clone(before)
	for _, link := range links {
		p.want.localnet[link] = true
	}
	err := p.sync()
	if err != nil {
		p.want.localnet = before
	}
	return err
}

// forward has the host forward packets of a family for others than its own clients, and logs what it
// has changed.
//
// It is never switched off again: another program that finds it on takes that for granted, a container
// runtime for one, and nobody can tell whether one has.
func (p *Plane) forward(v4 bool) error {
	switchOn := forward6
	if v4 {
		switchOn = forward4
	}
	changed, err := in(p.host, p.host.settings, switchOn)
	if len(changed) > 0 {
		p.log.Info("switched forwarding on for others' connections; it stays on, as others may have come to need it", "settings", changed)
	}
	return err
}

// linksTo are the links by which IPv4 addresses are reached now; not lo.
func linksTo(addrs map[netip.Addr]bool) map[string]bool {
	out := make(map[string]bool)
	for addr := range addrs {
		if !addr.Is4() {
			continue
		}
		if name, err := link.To(addr); err == nil && name != "lo" { // without a route there will be another refresh
			out[name] = true
		}
	}
	return out
}
