package balancer

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

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
