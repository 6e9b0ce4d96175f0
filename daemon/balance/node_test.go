package balance

import (
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
)

const balancing = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- {name: cp, addresses: [10.99.0.10, "fd00:99::10"], announce: arp, checks: [apiserver]}
checks:
- {name: apiserver, tcp: {address: "127.0.0.1:6443"}}
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946"}
  keyFile: /etc/herald/gossip.key
balancers:
- name: api
  listen: [{address: "127.0.0.1:9443"}, {vip: cp, port: 9443}]
  backends: {members: {port: 6443, checks: [apiserver, ready]}}
- name: registry
  listen: [{address: "127.0.0.1:5000"}]
  backends: {members: {port: 5001, checks: [registry]}}
- name: files
  listen: [{address: "10.0.1.1:80"}]
  backends: {static: {addresses: ["10.0.2.1:80", "10.0.2.2:80"]}}
  check: {http: {url: "http://backend/ok", status: [204]}, rise: 3}
  method: source-hash
  transparent: true
- name: mirror
  listen: [{address: "127.0.0.1:443"}]
  backends: {dns: {name: mirror.example.org, port: 443, interval: 1m}}
  mode: proxy
  forget: 1h
`

var ports = cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})

func parseBalancing(t *testing.T, change ...string) *config.Config {
	t.Helper()
	return must.Get[*config.Config](t)(config.Parse("herald.yaml", []byte(strings.NewReplacer(change...).Replace(balancing))))
}

// listen returns listeners at addresses.
func listen(places ...string) []balancer.Listener {
	var out []balancer.Listener
	for _, place := range places {
		out = append(out, balancer.Listener{Address: netip.MustParseAddrPort(place)})
	}
	return out
}

func TestBalancers(t *testing.T) {
	want := []balancer.Config{
		{
			Name: "api", Listen: listen("127.0.0.1:9443", "10.99.0.10:9443", "[fd00:99::10]:9443"), Mode: balancer.Kernel, Method: balancer.RoundRobin,
			Backends: balancer.Backends{Members: &balancer.Members{Port: 6443, Checks: []string{"apiserver", "ready"}}}, Forget: 4 * time.Hour,
		},
		{
			Name: "registry", Listen: listen("127.0.0.1:5000"), Mode: balancer.Kernel, Method: balancer.RoundRobin,
			Backends: balancer.Backends{Members: &balancer.Members{Port: 5001, Checks: []string{"registry"}}}, Forget: 4 * time.Hour,
		},
		{
			Name: "files", Listen: listen("10.0.1.1:80"), Mode: balancer.Kernel, Method: balancer.SourceHash, Transparent: true,
			Backends: balancer.Backends{Static: &balancer.Static{Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.0.2.1:80"), netip.MustParseAddrPort("10.0.2.2:80")}}}, Forget: 4 * time.Hour,
			Check: &balancer.Probe{
				HTTP: &health.HTTP{URL: "http://backend/ok", Status: []int{204}}, Pace: health.Pace{Interval: 200 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 3, Fall: 2},
			},
		},
		{
			Name: "mirror", Listen: listen("127.0.0.1:443"), Mode: balancer.Proxy, Method: balancer.RoundRobin,
			Backends: balancer.Backends{DNS: &balancer.DNS{Name: "mirror.example.org", Port: 443, Interval: time.Minute}}, Forget: time.Hour,
			Check: &balancer.Probe{TCP: &health.TCP{Address: "backend"}, Pace: health.Pace{Interval: 200 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 2, Fall: 2}},
		},
	}
	if diff := cmp.Diff(want, balancers(parseBalancing(t)), ports); diff != "" {
		t.Errorf("internal (-want +got):\n%s", diff)
	}
	for i := range want {
		want[i].Listen = nil
	}
	if diff := cmp.Diff(want, balancers(parseBalancing(t, "balancers:", "loadBalancer: {type: external}\nbalancers:")), ports); diff != "" {
		t.Errorf("external (-want +got):\n%s", diff)
	}
}

// ownChecks returns the checks of a balancer that has this node as a backend.
func TestOwnChecks(t *testing.T) {
	c := parseBalancing(t)
	for i, want := range [][]string{{"apiserver", "ready"}, nil, nil, nil} {
		if diff := cmp.Diff(want, ownChecks(c, c.Balancers[i])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.Balancers[i].Name, diff)
		}
	}
}

func TestMembers(t *testing.T) {
	checks := map[string]bool{"apiserver": true}
	state := func(name string) election.MemberState {
		return election.MemberState{Member: name, Address: netip.MustParseAddrPort("10.0.1.1:7946"), Advertisement: election.Advertisement{Checks: checks}}
	}
	self, draining, silent, left := state("self"), state("draining"), state("silent"), state("left")
	self.Self, draining.Advertisement.Draining, silent.TimedOut = true, true, true
	left.TimedOut, left.Left = true, true
	addr := netip.MustParseAddr("10.0.1.1")
	want := []balancer.Member{
		{Name: "self", Addr: addr, Checks: checks},
		{Name: "draining", Addr: addr, Checks: checks, Draining: true},
		{Name: "silent", Addr: addr, Checks: checks, TimedOut: true},
		{Name: "left", Addr: addr, Checks: checks, TimedOut: true, Draining: true},
	}
	all, others := members([]election.MemberState{self, draining, silent, left})
	if diff := cmp.Diff(want, all, ports); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], others, ports); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
}

// fakePlane records the services of Apply.
type fakePlane struct {
	mu      sync.Mutex
	carried []balancer.Service
}

func (p *fakePlane) Apply(services []balancer.Service) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carried = services
	return nil
}

func (p *fakePlane) Counts() ([]balancer.Count, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []balancer.Count
	for _, s := range p.carried {
		for i, b := range s.Backends {
			out = append(out, balancer.Count{Service: s.Name, Backend: b.Addr, Connections: uint64(10 + i), Open: -1})
		}
	}
	return out, nil
}

func (p *fakePlane) Close() error { return nil }

// The state of members reaches the data plane before time passes, and the status.
func TestMembersReachTheDataPlane(t *testing.T) { synctest.Test(t, membersReachTheDataPlane) }

func membersReachTheDataPlane(t *testing.T) {
	plane := &fakePlane{}
	n := New(slog.New(slog.DiscardHandler), plane, &fakePlane{}, nil, &fakeChance{})
	defer n.End()
	carried := func() []balancer.Service {
		synctest.Wait()
		return plane.carried
	}
	c := parseBalancing(t)
	c.Balancers = c.Balancers[:1]
	must.Do(t, n.SetBalancers(c))
	state := func(member, address string, healthy bool) election.MemberState {
		return election.MemberState{Member: member, Address: netip.MustParseAddrPort(address), Advertisement: election.Advertisement{Checks: map[string]bool{"apiserver": true, "ready": healthy}}}
	}
	if got, want := n.Status(c)[0].Why(), "no backend is known: no known member has the check apiserver or ready"; got != want {
		t.Errorf("status without members %q, want %q", got, want)
	}
	if got, want := unknown(parseBalancing(t).Balancers[3].Backends), "mirror.example.org has no address yet"; got != want {
		t.Errorf("status of a name %q, want %q", got, want)
	}
	n.SetMemberStates([]election.MemberState{state("m1", "10.0.1.1:7946", true), state("m2", "10.0.1.2:7946", false)})
	if s := carried(); len(s) != 1 || len(s[0].Listen) != 3 || len(s[0].Backends) != 2 {
		t.Fatalf("services %+v", plane.carried)
	}
	got := n.Status(c)
	want := []admin.Balancer{{
		Status: balancer.Status{
			Name: "api", Mode: "kernel", Method: "round-robin", Listen: listeners(c, c.Balancers[0]),
			Backends: []balancer.BackendStatus{
				{Backend: balancer.Backend{Name: "m1", Addr: netip.MustParseAddrPort("10.0.1.1:6443"), State: "serving"}, Connections: 10, Open: -1},
				{Backend: balancer.Backend{Name: "m2", Addr: netip.MustParseAddrPort("10.0.1.2:6443"), State: "dead"}, Connections: 11, Open: -1},
			},
		},
		Type: "internal", Checks: []string{"apiserver", "ready"},
	}}
	if diff := cmp.Diff(want, got, ports, cmpopts.IgnoreFields(balancer.BackendStatus{}, "Reason", "Since")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.LoadBalancer.Type = config.External
	must.Do(t, n.SetBalancers(c))
	if s := carried(); len(s) != 1 || len(s[0].Listen) != 0 || len(s[0].Backends) != 2 {
		t.Errorf("services with an external load balancer %+v", s)
	}
	if st := n.Status(c); st[0].Type != "external" || len(st[0].Listen) != 3 {
		t.Errorf("status %+v", st)
	}
}
