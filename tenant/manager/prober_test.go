package manager

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// nodesOf returns nodes of a tenant at these addresses.
func nodesOf(hosts ...string) (nodes []tenant.Node) {
	for i, host := range hosts {
		nodes = append(nodes, tenant.Node{Name: fmt.Sprint("n", i+1), Addrs: []netip.Addr{netip.MustParseAddr(host)}})
	}
	return nodes
}

// healthz serves the health of a node; after stop, connections are refused.
func healthz(t *testing.T, address string) (port int32, stop func()) {
	t.Helper()
	l := must.Get[net.Listener](t)(net.Listen("tcp", address))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return int32(l.Addr().(*net.TCPAddr).Port), s.Close
}

// The prober has no result until all nodes have one; from then on a new node counts as not answering until it has answered.
func TestProber(t *testing.T) {
	t.Parallel()
	port, stop := healthz(t, "127.0.0.1:0")
	healthz(t, fmt.Sprintf("127.0.0.2:%d", port))
	told := make(chan string, 100)
	p := newProber(slog.New(slog.DiscardHandler), func(name string, _ bool) { told <- name })
	defer p.close()
	acme := &v1alpha1.Tenant{}
	acme.Name = "acme"
	acme.Spec.Nodes.Probe = v1alpha1.TenantProbe{Protocol: "HTTP", Port: port, Path: "/healthz"}
	nodes := nodesOf("127.0.0.1", "127.0.0.2", "127.0.0.3")
	says := func(nodes []tenant.Node) string {
		answers, ok := p.answers(acme, nodes)
		if !ok {
			return "not known"
		}
		out := ""
		for _, n := range nodes {
			if answers(n.Name) {
				out += n.Name
			}
		}
		return out
	}
	if got := says(nodes); got != "not known" {
		t.Errorf("before any probe: %s", got)
	}
	must.Do(t, p.probe("acme", acme.Spec.Nodes.Probe, nodes))
	wait.Until(t, "the answering nodes are known", func() bool { return says(nodes) == "n1n2" })
	if name := <-told; name != "acme" {
		t.Errorf("changed is called for %s", name)
	}
	more := append(nodes, tenant.Node{Name: "n4", Addrs: nodes[0].Addrs})
	if got := says(more); got != "n1n2" {
		t.Errorf("with an unprobed node: %s", got)
	}
	stop()
	wait.Until(t, "one node refuses", func() bool { return says(nodes) == "n2" })

	acme.Spec.Nodes.Probe.Protocol = "None"
	if got := says(nodes); got != "n1n2n3" {
		t.Errorf("without probes: %s", got)
	}
	if err := p.probe("acme", acme.Spec.Nodes.Probe, nodes); err != nil || len(p.tenants) > 0 {
		t.Errorf("without probes: tenants %v, error %v", p.tenants, err)
	}
}
