package facts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/status/admin"
)

// lookAtFilters looks for filters that may drop forwarded connections. It ignores missing permissions,
// which are a finding of their own.
func (f *Facts) lookAtFilters(c *config.Config) {
	if len(Passed(c)) > 0 {
		f.ForwardDrops, _ = ruleset.ForwardDrops()
	}
}

// askBackends probes the backends of each balancer once, or takes them from a running Herald.
func (f *Facts) askBackends(ctx context.Context, c *config.Config) map[string]Backends {
	if c.LoadBalancer.Type != config.Internal {
		return nil
	}
	if f.Running != nil {
		return together(f.Running.Balancers, func(b admin.Balancer) string { return b.Name }, told)
	}
	return together(c.Balancers, func(b balancer.Config) string { return b.Name }, func(b balancer.Config) Backends { return askEach(ctx, c, b) })
}

// told converts the backends that a running Herald reports.
func told(b admin.Balancer) Backends {
	var out Backends
	if why := b.Why(); why != "" && len(b.Backends) == 0 || b.Error != "" {
		out.Err = errors.New(why)
	}
	for _, k := range b.Backends {
		out.Backends = append(out.Backends, Backend{Name: k.Name, Address: k.Addr, Serves: k.State == balancer.Serving, Reason: string(k.State) + ": " + k.Reason})
	}
	return out
}

// askEach probes each backend of b with its check, or without one by a TCP connection.
func askEach(ctx context.Context, c *config.Config, b balancer.Config) Backends {
	check := health.Check{Pace: health.Pace{Interval: time.Minute, Timeout: connectTimeout, Rise: 1, Fall: 1}, TCP: &health.TCP{Address: balancer.BackendHost}}
	if b.Check != nil {
		check = *b.Check.HealthCheck()
	}
	var (
		out    Backends
		checks []health.Check
	)
	add := func(name string, at netip.AddrPort) {
		k := balancer.CheckAt(check, at, b.Backends.DNS)
		k.Name = at.String()
		checks = append(checks, k)
		out.Backends = append(out.Backends, Backend{Name: name, Address: at, Reason: "no answer during this examination"})
	}
	switch {
	case b.Backends.Members != nil && c.Election != nil:
		for _, member := range slices.Sorted(maps.Keys(c.Election.Members)) {
			add(member, netip.AddrPortFrom(c.Election.Members[member].Addr(), b.Backends.Members.Port))
		}
	case b.Backends.Static != nil:
		for _, at := range b.Backends.Static.Addresses {
			add(at.String(), at)
		}
	case b.Backends.DNS != nil:
		lookup, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		addrs, err := net.DefaultResolver.LookupNetIP(lookup, "ip", b.Backends.DNS.Name)
		if err != nil {
			out.Err = fmt.Errorf("the name of its backends cannot be looked up: %w", err)
		}
		for _, addr := range addrs {
			at := netip.AddrPortFrom(addr.Unmap(), b.Backends.DNS.Port)
			add(at.String(), at)
		}
	}
	for i, v := range probeChecks(ctx, checks) {
		if v.State != health.Unknown {
			out.Backends[i].Serves, out.Backends[i].Reason = v.State == health.Healthy, v.Reason
		}
	}
	return out
}
