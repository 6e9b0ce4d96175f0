package admin_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
)

// worker balances two backends, one of them serving, and has no VIP.
func worker() admin.Status {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return admin.Status{
		Node: "w1", Version: "v1.2.3", Started: at, Config: admin.Config{File: "/etc/herald/herald.yaml", Generation: 1},
		Balancers: []admin.Balancer{{Type: "internal", Status: balancer.Status{
			Name: "apiserver", Mode: "kernel", Method: "round-robin",
			Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9443")},
			Backends: []balancer.BackendStatus{
				{Backend: balancer.Backend{Name: "m1", Addr: netip.MustParseAddrPort("10.0.1.1:6443"), State: "serving", Reason: "apiserver healthy"}, Since: at, Connections: 7, Open: 3},
				{Backend: balancer.Backend{Name: "m2", Addr: netip.MustParseAddrPort("10.0.1.2:6443"), State: "dead", Reason: "no answer\nfor 2s"}, Connections: 5, Open: -1},
			},
		}}},
		// The kernel has no fence, and nothing here needs one. That m2 is silent memberlist does not know yet.
		Election: &admin.Election{Fence: "the kernel has no nftables", Members: []lease.Member{
			{Name: "m1", Address: netip.MustParseAddrPort("10.0.1.1:7946"), Voter: true, Alive: true, Received: at},
			{Name: "m2", Address: netip.MustParseAddrPort("10.0.1.2:7946"), Voter: true, Alive: true, Received: at},
			{Name: "w1", Address: netip.MustParseAddrPort("10.0.1.7:7946"), Self: true, Alive: true},
		}, Offers: []admin.Offer{
			{MemberState: advertisement.MemberState{Member: "m1", Received: at, Advertisement: advertisement.Advertisement{Checks: map[string]bool{"registry": false, "apiserver": true}}}},
			{MemberState: advertisement.MemberState{Member: "m2", TimedOut: true, Received: at, Advertisement: advertisement.Advertisement{Checks: map[string]bool{"apiserver": true}}}},
			{MemberState: advertisement.MemberState{Member: "w1", Self: true, Advertisement: advertisement.Advertisement{Draining: true}}},
		}},
	}
}

func TestWriteTextOfBalancers(t *testing.T) {
	s := worker()
	want := `herald v1.2.3 on w1, up 1m0s, configuration /etc/herald/herald.yaml generation 1

BALANCER    LISTENS AT       MODE     METHOD        SERVING   WHY
apiserver   127.0.0.1:9443   kernel   round-robin   1 of 2    -

BACKEND   OF          ADDRESS         STATE     FOR    CONNECTIONS   OPEN   WHY
m1        apiserver   10.0.1.1:6443   serving   1m0s   7             3      apiserver healthy
m2        apiserver   10.0.1.2:6443   dead      -      5             -      no answer for 2s

MEMBER   ADDRESS         VOTES   STATE       HEARD      STANDS FOR   WHY
m1       10.0.1.1:7946   yes     alive       1m0s ago   0            -
m2       10.0.1.2:7946   yes     silent      1m0s ago   0            -
w1       10.0.1.7:7946   no      this node   -          0            -

OFFERED BY   STATE      HEARD       CHECKS
m1           serving    1m0s ago    apiserver, registry (unhealthy)
m2           silent     1m0s ago    apiserver
w1           draining   this node   -
`
	wantText(t, s, s.Started.Add(time.Minute), want)
}

// The status names the error of a balancer, or the reason why it has no backend.
func TestWhyOfABalancer(t *testing.T) {
	m2 := balancer.BackendStatus{Backend: balancer.Backend{Name: "m2", State: "dead", Reason: "sends no advertisements"}}
	for _, c := range []struct {
		subject admin.Balancer
		want    string
	}{
		{admin.Balancer{Status: balancer.Status{Backends: []balancer.BackendStatus{{Backend: balancer.Backend{State: "serving"}}, m2}}}, ""},
		{admin.Balancer{Status: balancer.Status{Backends: []balancer.BackendStatus{m2}}}, "no backend serves: m2: sends no advertisements"},
		{admin.Balancer{Status: balancer.Status{Error: "no nf_tables"}}, "no nf_tables"},
		{admin.Balancer{Unknown: "no known member has the check registry"}, "no backend is known: no known member has the check registry"},
		{admin.Balancer{Type: "external", Unknown: "x"}, "loadBalancer.type is external: takes no connections"},
		{admin.Balancer{Type: "external", Status: balancer.Status{Error: "lookup a.example: no such host"}}, "loadBalancer.type is external: takes no connections; lookup a.example: no such host"},
	} {
		if got := c.subject.Why(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.subject, got, c.want)
		}
	}
}

func TestBridgeInText(t *testing.T) {
	s := status()
	s.VIPs[0].Bridge = "forwards new connections to m2, m3"
	var text strings.Builder
	must.Do(t, s.WriteText(&text, s.Started))
	if want := "apiserver healthy (put back 1×); forwards new connections to m2, m3"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in:\n%s", want, text.String())
	}
}

func TestReadyToBalance(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*admin.Balancer)
		ready  bool
		why    string
	}{
		"one backend is enough": {func(*admin.Balancer) {}, true, "balancing"},
		"error":                 {func(b *admin.Balancer) { b.Error = "no nf_tables" }, false, "balancer apiserver: no nf_tables"},
		"none known":            {func(b *admin.Balancer) { b.Backends = nil }, false, "balancer apiserver: no backend is known"},
		"none serves":           {func(b *admin.Balancer) { b.Backends = b.Backends[1:] }, false, "balancer apiserver: no backend serves: m2: no answer\nfor 2s"},
		"the user's own":        {func(b *admin.Balancer) { b.Type, b.Backends = "external", nil }, true, "nothing to announce"},
	} {
		s := worker()
		c.change(&s.Balancers[0])
		if ready, why := s.Ready(); ready != c.ready || why != c.why {
			t.Errorf("%s: ready is %t, %q; want %t, %q", name, ready, why, c.ready, c.why)
		}
	}
}

func TestHealthy(t *testing.T) {
	master := admin.Status{
		VIPs: []admin.VIP{{Status: speaker.Status{Name: "cp"}, Checks: []string{"apiserver", "registry"}}, {Status: speaker.Status{Name: "both"}, Checks: []string{"apiserver"}}, {Status: speaker.Status{Name: "gone"}}},
		Checks: []health.Verdict{
			{Name: "apiserver", State: health.Healthy}, {Name: "registry", State: health.Unhealthy, Reason: "connection refused"}, {Name: "new", State: health.Unknown, Reason: "no answer yet"},
			{Name: "both", State: health.Unhealthy},
		},
		Balancers: []admin.Balancer{
			{Status: balancer.Status{Name: "own"}, Checks: []string{"apiserver"}},
			{Status: balancer.Status{Name: "partly"}, Checks: []string{"apiserver", "storage"}},
			{Status: balancer.Status{Name: "dns", Backends: []balancer.BackendStatus{{Backend: balancer.Backend{State: "dead"}}}}},
			{Status: balancer.Status{Name: "empty"}},
			{Status: balancer.Status{Name: "new"}, Checks: []string{"apiserver"}},
		},
	}
	drained := master
	drained.Draining = "upgrade"
	for _, c := range []struct {
		subject        admin.Status
		name           string
		known, healthy bool
		why            string
	}{
		{master, "cp", true, false, "registry unhealthy: connection refused"},
		{master, "both", true, true, "apiserver healthy"}, // the VIP, not the check
		{master, "new", true, true, "apiserver healthy"},  // the balancer, not the check
		{master, "apiserver", true, true, "apiserver healthy"},
		{master, "registry", true, false, "registry unhealthy: connection refused"},
		{master, "own", true, true, "apiserver healthy"},
		{master, "partly", true, false, "storage: this node has no such check"},
		{master, "dns", true, false, "none of 1 backends serves"},
		{master, "empty", true, false, "no backend is known"},
		{master, "nobody", false, false, `no VIP, balancer or check has the name "nobody"`},
		{master, "gone", false, false, `no VIP, balancer or check has the name "gone"`},
		{drained, "own", true, false, "draining: upgrade"},
		{drained, "nobody", false, false, `no VIP, balancer or check has the name "nobody"`},
		{worker(), "apiserver", true, true, "1 of 2 backends serve"},
	} {
		known, healthy, why := c.subject.Healthy(c.name)
		if known != c.known || healthy != c.healthy || why != c.why {
			t.Errorf("%s: %t %t %q, want %t %t %q", c.name, known, healthy, why, c.known, c.healthy, c.why)
		}
	}
}
