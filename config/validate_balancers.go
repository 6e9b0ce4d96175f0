package config

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/yaml"
)

// mayBalance reports whether there are balancers, or some with mistakes.
func (v validator) mayBalance() bool { return len(v.config.Balancers) > 0 || !v.WasRead("balancers") }

func (v validator) balancers() {
	all := v.config.Balancers
	v.names("balancer", "balancers", len(all), func(i int) string { return all[i].Name })
	places := map[netip.AddrPort]yaml.Path{} // the listener of each address
	for i := range all {
		p := yaml.Path("balancers").Item(i).Field("listen")
		if len(all[i].Listen) == 0 {
			v.Errorf(p, "list at least one address or vip")
		}
		for j, l := range all[i].Listen {
			v.listener(p.Item(j), &all[i], l, places)
		}
	}
	for i := range all {
		v.balancer(yaml.Path("balancers").Item(i), &all[i], places)
	}
	v.checksPassBy(places)
}

// balancer validates one balancer except its listeners; places maps each address of all balancers to its listener.
func (v validator) balancer(p yaml.Path, b *balancer.Config, places map[netip.AddrPort]yaml.Path) {
	v.backends(p.Field("backends"), b, places)
	switch check := p.Field("check"); {
	case b.Check == nil:
	case b.Backends.Members != nil:
		v.Errorf(check, "members advertise their own checks: remove it, and name those in backends.members.checks")
	default:
		v.backendCheck(check, b.Check)
	}
	if b.Transparent && b.Mode == balancer.Proxy {
		v.Errorf(p.Field("transparent"), "a proxy connects from this node's address: remove it, or mode: proxy")
	}
}

// listener validates one listener of b and adds its addresses to places.
func (v validator) listener(p yaml.Path, b *balancer.Config, l balancer.Listener, places map[netip.AddrPort]yaml.Path) {
	switch {
	case l.VIP != "" && l.Address.IsValid():
		v.Errorf(p, "has both address and vip: make them two")
		return
	case l.VIP != "":
		if l.Port == 0 {
			v.Errorf(p.Field("port"), "want 1 to 65535, got 0")
		}
		v.vipNames.refer(v, p.Field("vip"), l.VIP)
	case l.Address.IsValid():
		if l.Port != 0 {
			v.Errorf(p.Field("port"), "the address has its own port: remove it")
		}
		if !v.listenAddress(p.Field("address"), b, l.Address) {
			return
		}
	case v.WasRead(p.Field("address")) && v.WasRead(p.Field("vip")):
		v.Errorf(p, "give it an address, or vip and port")
	}
	for _, at := range v.config.placesOf(l) {
		other, taken := places[at.AddrPort]
		switch {
		case !at.IsValid() || at.Port() == 0: // reported
		case taken:
			v.Errorf(p, "%s is where %s listens already", at.AddrPort, other)
		default:
			places[at.AddrPort] = p
		}
	}
}

// listenAddress reports a mistake in an address of b and returns false, or returns true.
func (v validator) listenAddress(p yaml.Path, b *balancer.Config, at netip.AddrPort) bool {
	addr := at.Addr()
	owner := slices.IndexFunc(v.config.Balancers, func(b balancer.Config) bool { return v.isMember(at, b.Backends.Members) })
	switch {
	case !yaml.IsUnicast(addr):
		v.Errorf(p, "want one address of this node, got %s", addr)
	case addr.Is6() && (addr.IsLinkLocalUnicast() || addr.Zone() != ""):
		v.Errorf(p, "want an address that is not link-local and has no zone, got %s", addr)
	case addr.Is6() && addr.IsLoopback() && b.Mode != balancer.Proxy:
		v.Errorf(p, "the kernel cannot forward connections to ::1: listen at 127.0.0.1, or set mode: proxy")
	case addr.IsLoopback() && b.Transparent:
		v.Errorf(p, "no backend can answer a client with the address %s: remove transparent", addr)
	case owner >= 0:
		v.Errorf(p, "%s is a backend of %s: listen at another port", at, yaml.Path("balancers").Item(owner))
	case v.isOwn(at):
		v.Errorf(p, "%s is where Herald itself listens, for metrics or members: listen at another port", at)
	default:
		return true
	}
	return false
}

// isOwn reports whether Herald listens at at, for metrics or for members: a balancer there
// would take their connections.
func (v validator) isOwn(at netip.AddrPort) bool {
	if e := v.config.Election; e != nil && (e.Bind == at || slices.Contains(slices.Collect(maps.Values(e.Members)), at)) {
		return true
	}
	host, port, err := net.SplitHostPort(v.config.Metrics.Listen)
	if err != nil || port != strconv.Itoa(int(at.Port())) {
		return false
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case host == "localhost":
		return at.Addr().IsLoopback()
	case err != nil:
		return host == ""
	default:
		return addr.IsUnspecified() || addr == at.Addr()
	}
}

// isMember reports whether at is the address of a backend in m.
func (v validator) isMember(at netip.AddrPort, m *balancer.Members) bool {
	e := v.config.Election
	if m == nil || e == nil || at.Port() != m.Port {
		return false
	}
	for _, member := range e.Members {
		if member.Addr() == at.Addr() {
			return true
		}
	}
	return e.Bind.Addr() == at.Addr()
}

func (v validator) backends(p yaml.Path, b *balancer.Config, places map[netip.AddrPort]yaml.Path) {
	var given []string
	if m := b.Backends.Members; m != nil {
		given = append(given, "members")
		v.memberBackends(p.Field("members"), m)
	}
	if s := b.Backends.Static; s != nil {
		given = append(given, "static")
		v.staticBackends(p.Field("static").Field("addresses"), b, s, places)
	}
	if d := b.Backends.DNS; d != nil {
		given = append(given, "dns")
		v.dnsBackends(p.Field("dns"), d)
	}
	read := v.WasRead(p.Field("members")) && v.WasRead(p.Field("static")) && v.WasRead(p.Field("dns"))
	switch {
	case len(given) == 0 && read:
		v.Errorf(p, "give it members, static or dns")
	case len(given) > 1:
		v.Errorf(p, "has %s: keep one", strings.Join(given, " and "))
	}
}

func (v validator) memberBackends(p yaml.Path, m *balancer.Members) {
	if v.config.Election == nil && v.WasRead("election") {
		v.Errorf(p, "needs an election section to know the members: add one")
	}
	checks := p.Field("checks")
	if len(m.Checks) == 0 {
		v.Errorf(checks, "list at least one check: a member is a backend only while its checks pass")
	}
	for i, name := range m.Checks {
		switch item := checks.Item(i); {
		case slices.Contains(m.Checks[:i], name):
			v.Errorf(item, "%s is listed twice", yaml.Quote(name))
		case !isName(name):
			v.Errorf(item, "want the name of a check of the members, got %s", yaml.Quote(name))
		}
	}
}

// staticBackends validates listed backends. A balancer may not listen at one: a connection could loop.
func (v validator) staticBackends(p yaml.Path, b *balancer.Config, s *balancer.Static, places map[netip.AddrPort]yaml.Path) {
	if len(s.Addresses) == 0 {
		v.Errorf(p, "list at least one address")
		return
	}
	families := map[v1alpha1.Family]bool{}
	for i, at := range s.Addresses {
		p := p.Item(i)
		if !at.IsValid() {
			return // could not be decoded
		}
		families[familyOf(at.Addr())] = true
		listener, balanced := places[at]
		switch {
		case !yaml.IsUnicast(at.Addr()) || at.Addr().Is6() && at.Addr().IsLinkLocalUnicast():
			v.Errorf(p, "want the address of a server, got %s", at.Addr())
		case slices.Contains(s.Addresses[:i], at):
			v.Errorf(p, "%s is listed twice", at)
		case balanced:
			v.Errorf(p, "%s is where %s listens: want the address of a server", at, listener)
		case at.Addr().IsLoopback() && b.Mode != balancer.Proxy:
			v.Errorf(p, "the kernel cannot forward connections to %s: want an address that other hosts reach, or set mode: proxy", at.Addr())
		case v.isVIP(at.Addr()):
			v.Errorf(p, "%s is a VIP of this speaker: want the server's own address", at.Addr())
		}
	}
	if b.Mode == balancer.Proxy {
		return
	}
	for _, at := range v.config.Places(*b) {
		_, listens := places[at.AddrPort]
		if family := familyOf(at.Addr()); listens && !families[family] {
			v.Errorf(p, "%s needs a backend with an %s address, too: add one, or set mode: proxy", at.AddrPort, family)
		}
	}
}

func (v validator) dnsBackends(p yaml.Path, d *balancer.DNS) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	name := p.Field("name")
	_, err := netip.ParseAddr(d.Name)
	switch {
	case d.Name == "":
		v.Errorf(name, "missing: give the name to look up")
	case err == nil:
		v.Errorf(name, "%s is an address: list it in static.addresses", d.Name)
	case len(d.Name) > 253 || strings.Trim(d.Name, letters) != "" || strings.Contains(d.Name, "..") || d.Name[0] == '.':
		v.Errorf(name, "want a name such as masters.example.org, got %s", yaml.Quote(d.Name))
	}
}

// backendCheck validates the check of a balancer's backends, and that it probes the backend.
func (v validator) backendCheck(p yaml.Path, c *balancer.Probe) {
	if c.HTTP != nil && c.TCP != nil {
		v.Errorf(p, "has both http and tcp: make them two checks")
	}
	if c.HTTP != nil {
		c.HTTP.Validate(v.Report, p.Field("http"))
		u, err := url.Parse(c.HTTP.URL)
		if _, bad := health.CheckURL(c.HTTP.URL); err == nil && bad == nil && u.Hostname() != balancer.BackendHost {
			v.Errorf(p.Field("http").Field("url"), "want the host backend, which stands for each backend's address, got %s", yaml.Quote(u.Hostname()))
		}
	}
	if c.TCP != nil {
		at := p.Field("tcp").Field("address")
		host, _, err := net.SplitHostPort(c.TCP.Address)
		switch {
		case c.TCP.Address == balancer.BackendHost:
		case err != nil || !yaml.IsHostPort(c.TCP.Address, false):
			v.Errorf(at, "want backend, or backend:port, got %s", yaml.Quote(c.TCP.Address))
		case host != balancer.BackendHost:
			v.Errorf(at, "want the host backend, which stands for each backend's address, got %s", yaml.Quote(host))
		}
	}
}

// checksPassBy refuses a check at an address where a balancer listens: any backend might answer it.
func (v validator) checksPassBy(places map[netip.AddrPort]yaml.Path) {
	for i := range v.config.Checks {
		c := &v.config.Checks[i]
		var host, port string
		p := yaml.Path("checks").Item(i)
		switch {
		case c.HTTP != nil:
			p = p.Field("http").Field("url")
			u, err := url.Parse(c.HTTP.URL)
			if err != nil {
				continue
			}
			host, port = u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		case c.TCP != nil:
			p = p.Field("tcp").Field("address")
			host, port, _ = net.SplitHostPort(c.TCP.Address)
		}
		if host == "localhost" {
			host = "127.0.0.1"
		}
		at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
		if listener, ok := places[at]; ok && err == nil {
			v.Errorf(p, "%s is where %s listens, and any backend may answer: check this node's own server", at, v.Name(listener, p))
		}
	}
}
