package balancer

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/health"
)

// The reason tells whether a timed-out member drained before.
func TestReasonsOfMembers(t *testing.T) {
	for _, c := range []struct {
		change func(*Member)
		want   string
	}{
		{func(*Member) {}, "healthy: apiserver"},
		{drains, "is draining"},
		{timesOut, "sends no advertisements"},
		{func(m *Member) { m.Draining, m.TimedOut = true, true }, "was drained or stopped, and has sent no advertisement since"},
		{func(m *Member) { m.Checks["apiserver"], m.TimedOut = false, true }, "sends no advertisements"},
	} {
		members := Members{Port: 6443, Checks: []string{"apiserver"}}
		seen := members.observations([]Member{master("10.0.0.1", c.change)}, func(netip.AddrPort) bool { return true })
		if len(seen) != 1 || seen[0].reason != c.want {
			t.Errorf("observed %+v, want the reason %q", seen, c.want)
		}
	}
}

func TestCheckFor(t *testing.T) {
	byName := &DNS{Name: "masters.example", Port: 6443}
	for _, test := range []struct {
		name       string
		check      Probe
		dns        *DNS
		addr, want string
		serverName string
	}{
		{"tcp", Probe{TCP: &health.TCP{Address: "backend:6443"}}, nil, "10.0.0.1:6443", "10.0.0.1:6443", ""},
		{"tcp at the backend itself", Probe{TCP: &health.TCP{Address: "backend"}}, nil, "[fd00::1]:6443", "[fd00::1]:6443", ""},
		{"tcp over IPv6", Probe{TCP: &health.TCP{Address: "backend:8080"}}, nil, "[fd00::1]:6443", "[fd00::1]:8080", ""},
		{"tcp at a port of its own", Probe{TCP: &health.TCP{Address: "backend:80"}}, nil, "[fd00::1]:6443", "[fd00::1]:80", ""},
		{"https with a query", Probe{HTTP: &health.HTTP{URL: "https://backend/readyz?verbose"}}, nil, "[fd00::1]:6443", "https://[fd00::1]:6443/readyz?verbose", ""},
		{"tcp to elsewhere", Probe{TCP: &health.TCP{Address: "10.9.9.9:1"}}, nil, "10.0.0.1:6443", "10.9.9.9:1", ""},
		{"https", Probe{HTTP: &health.HTTP{URL: "https://backend:6443/readyz"}}, nil, "10.0.0.1:6443", "https://10.0.0.1:6443/readyz", ""},
		{"https over IPv6", Probe{HTTP: &health.HTTP{URL: "https://backend/readyz"}}, nil, "[fd00::1]:6443", "https://[fd00::1]:6443/readyz", ""},
		{"its own port", Probe{HTTP: &health.HTTP{URL: "http://backend/v2/"}}, nil, "10.0.0.1:5001", "http://10.0.0.1:5001/v2/", ""},
		{"a name's certificate", Probe{HTTP: &health.HTTP{URL: "https://backend:6443/"}}, byName, "10.0.0.1:6443", "https://10.0.0.1:6443/", "masters.example"},
		{"a certificate's own name", Probe{HTTP: &health.HTTP{URL: "https://backend:6443/", ServerName: "kubernetes"}}, byName, "10.0.0.1:6443", "https://10.0.0.1:6443/", "kubernetes"},
		{"another host", Probe{HTTP: &health.HTTP{URL: "https://judge.example/of/backend"}}, byName, "10.0.0.1:6443", "https://judge.example/of/backend", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			template := test.check
			addr := addrPorts(test.addr)[0]
			got := checks([]*running{{config: Config{Name: "api", Check: &template, Backends: Backends{DNS: test.dns}}, listed: []netip.AddrPort{addr}}})[0]
			if got.Name != "api/"+test.addr {
				t.Errorf("name %q", got.Name)
			}
			where, serverName := "", ""
			if got.TCP != nil {
				where = got.TCP.Address
			} else {
				where, serverName = got.HTTP.URL, got.HTTP.ServerName
			}
			if where != test.want || serverName != test.serverName {
				t.Errorf("checks %s as %q, want %s as %q", where, serverName, test.want, test.serverName)
			}
			if diff := cmp.Diff(test.check, template); diff != "" {
				t.Errorf("the configured check was changed:\n%s", diff)
			}
		})
	}
}
