package manager

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/service/tenant"
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

	mu       sync.Mutex
	monitors map[string]*health.Monitor // by tenant
	known    map[string]map[string]bool // by tenant: whether a node answers
	// complete are the tenants all of whose nodes were known once: of those, what is not known yet does not answer.
	complete map[string]bool
}

// newProber probes nothing yet. It calls changed when a node of a tenant begins to answer, or ceases.
func newProber(log *slog.Logger, changed func(tenant string, answers bool)) *prober {
	return &prober{
		log: log, changed: changed, monitors: make(map[string]*health.Monitor), known: make(map[string]map[string]bool), complete: make(map[string]bool),
	}
}

// close ends all probes. Nobody calls probe any more.
func (p *prober) close() {
	for _, m := range p.monitors {
		m.Close()
	}
}

// heed takes note of a verdict. That this process stood still says nothing of nodes.
func (p *prober) heed(v health.Verdict) {
	if v.State == health.Unknown || v.Paused {
		return
	}
	name, node, _ := strings.Cut(v.Check, "/")
	answers := v.State == health.Healthy
	p.mu.Lock()
	was, known := p.known[name][node]
	if p.known[name] != nil {
		p.known[name][node] = answers
	}
	p.mu.Unlock()
	if !known || was != answers {
		p.changed(name, answers)
	}
}

// probe has these nodes of a tenant probed, and none that it had besides; none ends its probes. It is called for one tenant once at a time.
func (p *prober) probe(name string, how v1alpha1.TenantProbe, nodes []tenant.Node) error {
	var checks []health.Check
	wanted := make(map[string]bool)
	for _, n := range nodes {
		if c, ok := checkOf(name, how, n); ok {
			checks = append(checks, c)
			wanted[n.Name] = true
		}
	}
	p.mu.Lock()
	monitor := p.monitors[name]
	switch {
	case len(checks) == 0:
		delete(p.monitors, name)
		delete(p.known, name)
		delete(p.complete, name)
	case monitor == nil:
		monitor = health.NewMonitor(p.log, p.heed)
		p.monitors[name], p.known[name] = monitor, make(map[string]bool)
	}
	maps.DeleteFunc(p.known[name], func(node string, _ bool) bool { return !wanted[node] })
	p.mu.Unlock()
	if len(checks) == 0 {
		if monitor != nil {
			monitor.Close()
		}
		return nil
	}
	if err := monitor.Apply(checks); err != nil {
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
	out := make(map[string]bool)
	unknown := 0
	for _, n := range nodes {
		answers, known := p.known[t.Name][n.Name]
		out[n.Name] = answers
		if !known {
			unknown++
		}
	}
	if unknown == 0 && len(nodes) > 0 {
		p.complete[t.Name] = true
	}
	return func(node string) bool { return out[node] }, unknown == 0 || p.complete[t.Name]
}
