package balancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/health"
)

// observations returns observations of the members that are backends. known reports whether an address was a backend
// before.
func (m *Members) observations(members []Member, known func(netip.AddrPort) bool) []observation {
	var all []observation
	for _, member := range members {
		if !member.Addr.IsValid() {
			continue // unknown yet
		}
		o := observation{
			name:     member.Name,
			addr:     netip.AddrPortFrom(member.Addr.Unmap(), m.Port),
			timedOut: member.TimedOut,
			gone:     member.TimedOut,
		}
		var missing, failing []string
		for _, check := range m.Checks {
			switch ok, found := member.Checks[check]; {
			case !found:
				missing = append(missing, check)
			case !ok:
				failing = append(failing, check)
			}
		}
		switch {
		case len(missing) == len(m.Checks) && !known(o.addr):
			continue // it has no such check
		case len(failing) > 0:
			o.condition, o.reason = unhealthy, "unhealthy: "+strings.Join(failing, ", ")
		case len(missing) > 0:
			o.reason = "has no check result yet: " + strings.Join(missing, ", ")
		case member.Draining:
			o.condition, o.reason = leaving, "is draining"
		default:
			o.condition, o.reason = healthy, "healthy: "+strings.Join(m.Checks, ", ")
		}
		switch {
		case o.timedOut && o.condition == leaving:
			o.reason = "was drained or stopped, and has sent no advertisement since"
		case o.timedOut:
			o.reason = "sends no advertisements"
		}
		all = append(all, o)
	}
	return all
}

// CheckAt returns check for the backend at addr. dns is the name that it belongs to, or nil.
func CheckAt(check health.Check, addr netip.AddrPort, dns *DNS) health.Check {
	if check.TCP != nil {
		host, port, err := net.SplitHostPort(check.TCP.Address)
		switch {
		case check.TCP.Address == BackendHost:
			check.TCP = &health.TCP{Address: addr.String()}
		case err == nil && host == BackendHost:
			check.TCP = &health.TCP{Address: net.JoinHostPort(addr.Addr().String(), port)}
		}
	}
	if check.HTTP == nil {
		return check
	}
	u, err := url.Parse(check.HTTP.URL)
	if err != nil || u.Hostname() != BackendHost {
		return check
	}
	get := *check.HTTP
	u.Host = net.JoinHostPort(addr.Addr().String(), cmp.Or(u.Port(), strconv.Itoa(int(addr.Port()))))
	get.URL = u.String()
	if dns != nil {
		// Certificates have the name that clients use, which for static backends is the address.
		get.ServerName = cmp.Or(get.ServerName, dns.Name)
	}
	check.HTTP = &get
	return check
}

func checkName(balancer string, addr netip.AddrPort) string { return balancer + "/" + addr.String() }

// checked returns the observation of a static backend or of an address of a name.
func checked(c Config, addr netip.AddrPort, listed bool, verdict health.Verdict) observation {
	o := observation{name: addr.String(), addr: addr, gone: !listed}
	switch {
	case c.Check == nil:
		o.condition, o.reason = healthy, "not checked"
	case verdict.State == health.Healthy:
		o.condition, o.reason = healthy, verdict.Reason
	case verdict.State == health.Unhealthy && !verdict.Paused:
		o.condition, o.reason = unhealthy, verdict.Reason
	default: // no result yet, or none since this process was suspended, which is not the backend's fault
		o.reason = verdict.Reason
	}
	if !listed && o.condition != unhealthy {
		o.condition, o.reason = leaving, "is no longer listed"
		if dns := c.Backends.DNS; dns != nil {
			o.reason = dns.Name + " no longer resolves to it"
		}
	}
	return o
}

// addresses returns a list in order and without duplicates.
func addresses(list []netip.AddrPort) []netip.AddrPort {
	list = slices.Clone(list)
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

const (
	// maxAddresses limits the addresses of a name.
	maxAddresses = 64
	// lookUpTimeout limits a look-up. lookUpRetry is the longest pause after a failed one.
	lookUpTimeout = 10 * time.Second
	lookUpRetry   = 5 * time.Second
)

// lookUp is the state of look-ups of a name.
type lookUp struct {
	next    time.Time
	running bool
	err     error // of the last look-up
}

// network returns the family of addresses to look up: the kernel cannot translate between families.
func (r *running) network() string {
	is4 := func(a netip.AddrPort) bool { return a.Addr().Unmap().Is4() }
	is6 := func(a netip.AddrPort) bool { return !is4(a) }
	has4, has6 := slices.ContainsFunc(r.listen, is4), slices.ContainsFunc(r.listen, is6)
	switch {
	case r.config.Mode == Proxy || has4 == has6:
		return "ip"
	case has4:
		return "ip4"
	}
	return "ip6"
}

// resolve looks up a balancer's name once and applies the result.
func (s *Set) resolve(ctx context.Context, balancer string, dns DNS, network string) {
	bounded, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	ips, err := s.resolver.LookupNetIP(bounded, network, dns.Name)
	if ctx.Err() != nil {
		return
	}
	err = s.recheck(func() []*running {
		s.noteLookUp(balancer, dns, ips, err)
		return s.balancers
	})
	s.noteUnchecked(err)
}

// noteLookUp records the result of a look-up. s.mu is held.
func (s *Set) noteLookUp(balancer string, dns DNS, ips []netip.Addr, err error) {
	r := s.find(balancer)
	if r == nil {
		return // removed meanwhile
	}
	now := r.config.Backends.DNS
	if now == nil || now.Name != dns.Name || now.Port != dns.Port {
		return // the configuration changed meanwhile
	}
	r.lookUp = lookUp{next: time.Now().Add(now.Interval), err: err}
	if err != nil {
		if _, named := errors.AsType[*net.DNSError](err); !named { // which contains the name
			r.lookUp.err = fmt.Errorf("look up %s: %w", dns.Name, err)
		}
		r.lookUp.next = time.Now().Add(min(now.Interval, lookUpRetry))
		return
	}
	var list []netip.AddrPort
	for _, ip := range ips {
		list = append(list, netip.AddrPortFrom(ip.Unmap(), dns.Port))
	}
	list = addresses(list)
	r.listed = list[:min(len(list), maxAddresses)]
}

// noteUnchecked logs an error of the monitor about new checks, which differ from valid ones only by address.
func (s *Set) noteUnchecked(err error) {
	if err != nil {
		s.log.Error("cannot check backends", "err", err)
	}
}
