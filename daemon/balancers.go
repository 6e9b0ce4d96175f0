package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/proxy"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
)

// proxyLinger is how long connections through this process may go on when it ends. Those
// through the kernel do not need it.
const proxyLinger = 2 * time.Second

// balancers are those of the file, with the planes that carry them.
type balancers struct {
	log    *slog.Logger
	kernel *lazyPlane
	set    *balancer.Set
}

// newBalancers has none yet. The kernel is shared with the bridge, and closed with the balancers.
func newBalancers(log *slog.Logger, node string, k *lazyPlane) *balancers {
	return &balancers{log: log, kernel: k, set: balancer.New(log, k, proxy.New(proxy.Options{Log: log, Seed: node, Linger: proxyLinger}))}
}

// apply makes the balancers of c the ones that run.
func (b *balancers) apply(c *config.Config) error { return b.set.Apply(balancerConfigs(c)) }

// know takes in what members offer.
func (b *balancers) know(offered []election.Offered) { b.set.Offered(backendMembers(offered)) }

// run does the background work until ctx is done.
func (b *balancers) run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { b.kernel.run(ctx); return nil })
	group.Go(func() error { b.set.Run(ctx); return nil })
	return group.Wait()
}

// close ends balancing such that a successor loses no connection. Nothing runs any more.
func (b *balancers) close() {
	if err := b.set.Close(); err != nil {
		b.log.Warn("leave the balancers to a successor", "err", err)
	}
}

// balancerConfigs are the balancers of c. Those of type external listen nowhere: what is
// established stays.
func balancerConfigs(c *config.Config) []balancer.Config {
	var out []balancer.Config
	for _, b := range c.Balancers {
		one := balancer.Config{Name: b.Name, Transparent: b.Transparent, Forget: b.Forget}
		if c.LoadBalancer.Type == config.Internal {
			one.Listen = listeners(c, b)
		}
		switch b.Method {
		case config.Random:
			one.Method = balancer.Random
		case config.SourceHash:
			one.Method = balancer.SourceHash
		}
		if b.Mode == config.Proxy {
			one.Mode = balancer.Proxy
		}
		switch from := b.Backends; {
		case from.Members != nil:
			one.Members = &balancer.Members{Port: from.Members.Port, Checks: from.Members.Checks}
		case from.Static != nil:
			one.Static = from.Static.Addresses
		case from.DNS != nil:
			one.DNS = &balancer.DNS{Name: from.DNS.Name, Port: from.DNS.Port, Interval: from.DNS.Interval}
		}
		if p := b.Check; p != nil {
			check := healthCheck(config.Check{HTTP: p.HTTP, TCP: p.TCP, Interval: p.Interval, Timeout: p.Timeout, Rise: p.Rise, Fall: p.Fall})
			one.Check = &check
		}
		out = append(out, one)
	}
	return out
}

// listeners are where b listens, VIPs by all of their addresses.
func listeners(c *config.Config, b config.Balancer) []netip.AddrPort {
	var out []netip.AddrPort
	for _, l := range b.Listen {
		if l.VIP == "" {
			out = append(out, l.Address)
			continue
		}
		for _, v := range c.VIPs {
			if v.Name == l.VIP {
				for _, addr := range v.Addresses {
					out = append(out, netip.AddrPortFrom(addr, l.Port))
				}
			}
		}
	}
	return out
}

// backendMembers are members as balancers know them. One that took its leave, for an
// upgrade perhaps, is left by new connections, not by those that it has.
func backendMembers(offered []election.Offered) []balancer.Member {
	var out []balancer.Member
	for _, o := range offered {
		out = append(out, balancer.Member{
			Name: o.Member, Addr: o.Address.Addr(), Checks: o.Offer.Checks,
			Draining: o.Offer.Draining || o.Left, Silent: o.Silent,
		})
	}
	return out
}

// status is that of the balancers of c.
func (b *balancers) status(c *config.Config) []admin.Balancer {
	var out []admin.Balancer
	for _, st := range b.set.Status() {
		i := slices.IndexFunc(c.Balancers, func(one config.Balancer) bool { return one.Name == st.Name })
		if i < 0 {
			continue // of another configuration, this very moment
		}
		one := admin.Balancer{
			Name: st.Name, Type: string(c.LoadBalancer.Type), Listen: listeners(c, c.Balancers[i]),
			Mode: st.Mode.String(), Method: st.Method.String(), Checks: ownChecks(c, c.Balancers[i]),
			Backends: []admin.Backend{}, Error: st.Error,
		}
		if len(st.Backends) == 0 {
			one.Unknown = unknown(c.Balancers[i].Backends)
		}
		for _, k := range st.Backends {
			one.Backends = append(one.Backends, admin.Backend{
				Name: k.Name, Address: k.Addr, State: k.State.String(), Reason: k.Reason, Since: k.Since,
				Connections: k.Connections, Open: k.Open,
			})
		}
		out = append(out, one)
	}
	return out
}

// unknown is what is missing for one of the backends to be known.
func unknown(of config.Backends) string {
	switch {
	case of.Members != nil:
		return "no member is heard that offers " + strings.Join(of.Members.Checks, " or ")
	case of.DNS != nil:
		return of.DNS.Name + " has no address yet"
	}
	return ""
}

// health is what decides on the health of the balancer of c that has this name, if there is one.
func (b *balancers) health(c *config.Config, name string) []admin.Balancer {
	i := slices.IndexFunc(c.Balancers, func(one config.Balancer) bool { return one.Name == name })
	if i < 0 {
		return nil
	}
	one := admin.Balancer{Name: name, Checks: ownChecks(c, c.Balancers[i])}
	for _, k := range b.set.Backends(name) {
		one.Backends = append(one.Backends, admin.Backend{State: k.State.String()})
	}
	return []admin.Balancer{one}
}

// ownChecks are the checks by which b tells backends, if this node has any of them, and so
// is one itself.
func ownChecks(c *config.Config, b config.Balancer) []string {
	m := b.Backends.Members
	if m == nil || !slices.ContainsFunc(c.Checks, func(k config.Check) bool { return slices.Contains(m.Checks, k.Name) }) {
		return nil
	}
	return m.Checks
}

// adminOffers are what members of the election say they serve, for the admin socket.
func adminOffers(offered []election.Offered) []admin.Offer {
	var out []admin.Offer
	for _, o := range offered {
		out = append(out, admin.Offer{
			Member: o.Member, Self: o.Self, Draining: o.Offer.Draining, Silent: o.Silent, Left: o.Left,
			Heard: o.Heard, Checks: o.Offer.Checks,
		})
	}
	return out
}

// observe acts on a verdict before it returns: this node's own VIPs come first.
func (d *Daemon) observe(v health.Verdict) {
	d.speaker.Observe(v)
	d.offering.tell()
}

// offered acts on what members offer before it returns.
func (d *Daemon) offered(all []election.Offered) {
	d.balancers.know(all)
	d.bridge.know(all)
}
