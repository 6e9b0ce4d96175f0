package manager

import (
	"fmt"
	"log/slog"
	"maps"
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
	monitor *health.Monitor
	changed func(tenant string)

	mu     sync.Mutex
	checks map[string][]health.Check // by tenant
	known  map[string]bool           // whether a node answers, by the name of its check
	// settled are the tenants all of whose nodes were known once: of those, what is not known yet does not answer.
	settled map[string]bool
}

// newProber probes nothing yet. It calls changed when a node of a tenant begins to answer, or ceases.
func newProber(log *slog.Logger, changed func(tenant string)) *prober {
	p := &prober{
		changed: changed, checks: make(map[string][]health.Check), known: make(map[string]bool), settled: make(map[string]bool),
	}
	p.monitor = health.NewMonitor(log, p.heed)
	return p
}

func (p *prober) close() { p.monitor.Close() }

func checkName(tenant, node string) string { return tenant + "/" + node }

// heed takes note of a verdict. That this process stood still says nothing of nodes.
func (p *prober) heed(v health.Verdict) {
	if v.State == health.Unknown || v.Paused {
		return
	}
	p.mu.Lock()
	was, known := p.known[v.Check]
	answers := v.State == health.Healthy
	p.known[v.Check] = answers
	p.mu.Unlock()
	if !known || was != answers {
		name, _, _ := strings.Cut(v.Check, "/")
		p.changed(name)
	}
}

// probe has these nodes of a tenant probed, and none that it had besides; nil ends its probes.
func (p *prober) probe(name string, how v1alpha1.TenantProbe, nodes []tenant.Node) error {
	var checks []health.Check
	for _, n := range nodes {
		if c, ok := checkOf(name, how, n); ok {
			checks = append(checks, c)
		}
	}
	p.mu.Lock()
	p.checks[name] = checks
	if len(checks) == 0 {
		delete(p.checks, name)
		delete(p.settled, name)
	}
	var all []health.Check
	for _, of := range slices.Sorted(maps.Keys(p.checks)) {
		all = append(all, p.checks[of]...)
	}
	wanted := make(map[string]bool)
	for _, c := range all {
		wanted[c.Name] = true
	}
	maps.DeleteFunc(p.known, func(check string, _ bool) bool { return !wanted[check] })
	p.mu.Unlock()
	if err := p.monitor.Apply(all); err != nil {
		return fmt.Errorf("probe the nodes of %s: %w", name, err)
	}
	return nil
}

func checkOf(name string, how v1alpha1.TenantProbe, n tenant.Node) (health.Check, bool) {
	to := netip.AddrPortFrom(n.Addrs[0], uint16(how.Port)).String()
	c := health.Check{Name: checkName(name, n.Name), Interval: probeInterval, Timeout: probeTimeout, Rise: probeRise, Fall: probeFall}
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

// answers tells which nodes of a tenant answer. It is not ok while it is not known of all that there were at first.
func (p *prober) answers(t *v1alpha1.Tenant, nodes []tenant.Node) (answers func(node string) bool, ok bool) {
	if t.Spec.Nodes.Probe.Protocol == "None" {
		return func(string) bool { return true }, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]bool)
	unknown := 0
	for _, n := range nodes {
		answers, known := p.known[checkName(t.Name, n.Name)]
		out[n.Name] = answers
		if !known {
			unknown++
		}
	}
	if unknown == 0 && len(nodes) > 0 {
		p.settled[t.Name] = true
	}
	return func(node string) bool { return out[node] }, unknown == 0 || p.settled[t.Name]
}
