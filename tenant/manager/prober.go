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

// Parameters of the probes: a node is down at once if it refuses, and after two probes if it times out. Each node is probed
// once for all Services.
const (
	probeInterval = 200 * time.Millisecond
	probeTimeout  = 300 * time.Millisecond
	probeRise     = 2
	probeFall     = 2
)

// prober probes the nodes of tenants.
type prober struct {
	log     *slog.Logger
	changed func(tenant string, answers bool)

	mu      sync.Mutex
	tenants map[string]*probed
}

// probed is the probes of one tenant. It is complete once all nodes have had a result. From then on a new node without a
// result counts as not answering, so that changes of the tenant need not wait for it.
type probed struct {
	monitor  *health.Monitor
	complete bool
}

// newProber returns a prober without probes. It calls changed when a node of a tenant begins or ceases to answer.
func newProber(log *slog.Logger, changed func(tenant string, answers bool)) *prober {
	return &prober{log: log, changed: changed, tenants: make(map[string]*probed)}
}

// close ends all probes. probe must not be called afterwards.
func (p *prober) close() {
	for _, t := range p.tenants {
		t.monitor.Close()
	}
}

// probe replaces the probed nodes of a tenant; without nodes it ends the tenant's probes. Calls for one tenant must not overlap.
func (p *prober) probe(name string, how v1alpha1.TenantProbe, nodes []tenant.Node) error {
	var checks []health.Check
	for _, n := range nodes {
		if c, ok := checkOf(name, how, n); ok {
			checks = append(checks, c)
		}
	}
	p.mu.Lock()
	known := p.tenants[name]
	switch {
	case len(checks) == 0:
		delete(p.tenants, name)
	case known == nil:
		known = &probed{monitor: health.NewMonitor(p.log, func(v health.Verdict) {
			if v.State != health.Unknown && !v.Paused { // a pause of this process says nothing about nodes
				p.changed(name, v.State == health.Healthy)
			}
		})}
		p.tenants[name] = known
	}
	p.mu.Unlock()
	switch {
	case known == nil:
		return nil
	case len(checks) == 0:
		known.monitor.Close()
		return nil
	}
	if err := known.monitor.Apply(checks); err != nil {
		return fmt.Errorf("probe the nodes of %s: %w", name, err)
	}
	return nil
}

func checkOf(name string, how v1alpha1.TenantProbe, n tenant.Node) (health.Check, bool) {
	target := netip.AddrPortFrom(n.Addrs[0], uint16(how.Port)).String()
	c := health.Check{Name: name + "/" + n.Name, Pace: health.Pace{Interval: probeInterval, Timeout: probeTimeout, Rise: probeRise, Fall: probeFall}}
	switch how.Protocol {
	case "HTTP":
		c.HTTP = &health.HTTP{URL: "http://" + target + how.Path}
	case "TCP":
		c.TCP = &health.TCP{Address: target}
	default:
		return c, false
	}
	return c, true
}

// answers reports which nodes of a tenant answer; not ok until all nodes have had a result once.
func (p *prober) answers(t *v1alpha1.Tenant, nodes []tenant.Node) (answers func(node string) bool, ok bool) {
	if t.Spec.Nodes.Probe.Protocol == "None" {
		return func(string) bool { return true }, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]bool) // nodes with a result
	probed := p.tenants[t.Name]
	if probed == nil {
		return func(string) bool { return false }, len(nodes) == 0
	}
	for _, v := range probed.monitor.Verdicts() {
		if _, node, _ := strings.Cut(v.Name, "/"); v.State != health.Unknown {
			out[node] = v.State == health.Healthy || v.Paused
		}
	}
	known := !slices.ContainsFunc(nodes, func(n tenant.Node) bool { _, known := out[n.Name]; return !known })
	probed.complete = probed.complete || known && len(nodes) > 0
	return func(node string) bool { return out[node] }, known || probed.complete
}
