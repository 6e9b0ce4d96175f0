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

// placeholder is the host in a check that stands for each backend's address.
const placeholder = "backend"

// sightings are what members say of themselves as backends. Known tells which were
// backends before.
func (m *Members) sightings(members []Member, known func(netip.AddrPort) bool) []sighting {
	var all []sighting
	for _, member := range members {
		if !member.Addr.IsValid() {
			continue // not known yet
		}
		s := sighting{
			name:   member.Name,
			addr:   netip.AddrPortFrom(member.Addr.Unmap(), m.Port),
			silent: member.TimedOut,
			gone:   member.TimedOut,
		}
		var missing, failing []string
		for _, check := range m.Checks {
			switch healthy, found := member.Checks[check]; {
			case !found:
				missing = append(missing, check)
			case !healthy:
				failing = append(failing, check)
			}
		}
		switch {
		case len(missing) == len(m.Checks) && !known(s.addr):
			continue // it offers nothing of the kind
		case len(failing) > 0:
			s.said, s.reason = sick, "unhealthy: "+strings.Join(failing, ", ")
		case len(missing) > 0:
			s.reason = "offers no verdict yet: " + strings.Join(missing, ", ")
		case member.Draining:
			s.said, s.reason = leaving, "is draining"
		default:
			s.said, s.reason = well, "healthy: "+strings.Join(m.Checks, ", ")
		}
		switch {
		case s.silent && s.said == leaving:
			s.reason = "was drained or stopped, and has not been heard since"
		case s.silent:
			s.reason = "has not been heard"
		}
		all = append(all, s)
	}
	return all
}

// CheckAt is a check of the backend at addr, which is one of a name's unless dns is nil.
func CheckAt(check health.Check, addr netip.AddrPort, dns *DNS) health.Check {
	if check.TCP != nil {
		host, port, err := net.SplitHostPort(check.TCP.Address)
		switch {
		case check.TCP.Address == placeholder:
			check.TCP = &health.TCP{Address: addr.String()}
		case err == nil && host == placeholder:
			check.TCP = &health.TCP{Address: net.JoinHostPort(addr.Addr().String(), port)}
		}
	}
	if check.HTTP == nil {
		return check
	}
	u, err := url.Parse(check.HTTP.URL)
	if err != nil || u.Hostname() != placeholder {
		return check
	}
	get := *check.HTTP
	u.Host = net.JoinHostPort(addr.Addr().String(), cmp.Or(u.Port(), strconv.Itoa(int(addr.Port()))))
	get.URL = u.String()
	if dns != nil {
		// Certificates carry the name that clients use; of static backends that is their address.
		get.ServerName = cmp.Or(get.ServerName, dns.Name)
	}
	check.HTTP = &get
	return check
}

func checkName(balancer string, addr netip.AddrPort) string { return balancer + "/" + addr.String() }

// watched is a backend of a list or a name.
func watched(c Config, addr netip.AddrPort, listed bool, verdict health.Verdict) sighting {
	s := sighting{name: addr.String(), addr: addr, gone: !listed}
	switch {
	case c.Check == nil:
		s.said, s.reason = well, "not checked"
	case verdict.State == health.Healthy:
		s.said, s.reason = well, verdict.Reason
	case verdict.State == health.Unhealthy && !verdict.Paused:
		s.said, s.reason = sick, verdict.Reason
	default: // none yet, or none any more since this process stood still: no fault of the backend's
		s.reason = verdict.Reason
	}
	if !listed && s.said != sick {
		s.said, s.reason = leaving, "is not listed any more"
		if c.DNS != nil {
			s.reason = c.DNS.Name + " does not resolve to it any more"
		}
	}
	return s
}

// addresses are those of a list, each once and in order.
func addresses(list []netip.AddrPort) []netip.AddrPort {
	list = slices.Clone(list)
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}
