package manager

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/tenant"
)

// How nodes are probed: one that refuses is out at once, one that is silent after two probes. There is one probe of
// each node, however many Services it serves.
const (
	probeInterval = 200 * time.Millisecond
	probeTimeout  = 300 * time.Millisecond
	probeRise     = 2
	probeFall     = 2
)

// prober knows which nodes of tenants answer.
type prober struct {
	log     *slog.Logger
	changed func(tenant string, answers bool)

	mu      sync.Mutex
	tenants map[string]*probed
}

// probed are the nodes of one tenant. Once all of them were known it is complete: what is not known yet does not answer then, and
// changes of the tenant need not wait for it.
type probed struct {
	monitor  *health.Monitor
	complete bool
}

// newProber probes nothing yet. It calls changed when a node of a tenant begins to answer, or ceases.
func newProber(log *slog.Logger, changed func(tenant string, answers bool)) *prober {
	return &prober{log: log, changed: changed, tenants: make(map[string]*probed)}
}

// close ends all probes. Nobody calls probe any more.
func (p *prober) close() {
	for _, of := range p.tenants {
		of.monitor.Close()
	}
}

// probe has these nodes of a tenant probed, and none that it had besides; none ends its probes. It is called for one tenant once at a time.
func (p *prober) probe(name string, how v1alpha1.TenantProbe, nodes []tenant.Node) error {
	var checks []health.Check
	for _, n := range nodes {
		if c, ok := checkOf(name, how, n); ok {
			checks = append(checks, c)
		}
	}
	p.mu.Lock()
	of := p.tenants[name]
	switch {
	case len(checks) == 0:
		delete(p.tenants, name)
	case of == nil:
		of = &probed{monitor: health.NewMonitor(p.log, func(v health.Verdict) {
			if v.State != health.Unknown && !v.Paused { // that this process stood still says nothing of nodes
				p.changed(name, v.State == health.Healthy)
			}
		})}
		p.tenants[name] = of
	}
	p.mu.Unlock()
	switch {
	case of == nil:
		return nil
	case len(checks) == 0:
		of.monitor.Close()
		return nil
	}
	if err := of.monitor.Apply(checks); err != nil {
		return fmt.Errorf("probe the nodes of %s: %w", name, err)
	}
	return nil
}

func checkOf(name string, how v1alpha1.TenantProbe, n tenant.Node) (health.Check, bool) {
	to := netip.AddrPortFrom(n.Addrs[0], uint16(how.Port)).String()
	c := health.Check{Name: name + "/" + n.Name, Interval: probeInterval, Timeout: probeTimeout, Rise: probeRise, Fall: probeFall}
	switch how.Protocol {
	case "HTTP":
		c.HTTP = &health.HTTP{URL: "http://" + to + how.Path}
	case "TCP":
		c.TCP = &health.TCP{Address: to}
	default:
		return c, false
	}
	return c, true
}

// answers tells which nodes of a tenant answer. It is not ok until it was known of all of them once.
func (p *prober) answers(t *v1alpha1.Tenant, nodes []tenant.Node) (answers func(node string) bool, ok bool) {
	if t.Spec.Nodes.Probe.Protocol == "None" {
		return func(string) bool { return true }, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]bool) // of those that are known
	of := p.tenants[t.Name]
	if of == nil {
		return func(string) bool { return false }, len(nodes) == 0
	}
	for _, v := range of.monitor.Verdicts() {
		if _, node, _ := strings.Cut(v.Check, "/"); v.State != health.Unknown {
			out[node] = v.State == health.Healthy || v.Paused
		}
	}
	known := !slices.ContainsFunc(nodes, func(n tenant.Node) bool { _, known := out[n.Name]; return !known })
	of.complete = of.complete || known && len(nodes) > 0
	return func(node string) bool { return out[node] }, known || of.complete
}
