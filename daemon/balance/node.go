// Package node has the balancers and the bridge of one node: what its configuration asks for, and
// what members of the election offer, in the terms of packages balancer and bridge, and what
// becomes of it in those of the status.
package balance

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/bridge"
	"github.com/herald-vip/herald/balancer/nft"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/netutil/conntrack"
)

// Node is the balancers and the bridge of this node. Its methods may be called from any goroutine.
type Node struct {
	log     *slog.Logger
	set     *balancer.Set
	bridge  *bridge.Bridge
	passing passing
}

// New returns a Node without balancers, which is to be ended. The planes are closed with it; they run
// and are made elsewhere.
func New(log *slog.Logger, kernel, proxy balancer.DataPlane, forwarder bridge.Kernel, chance Chance) *Node {
	return &Node{
		log: log, set: balancer.New(log, kernel, proxy), bridge: bridge.New(log, forwarder),
		passing: passing{chance: chance, passed: passed{leaving: make(map[netip.Addr]departing)}},
	}
}

// Open sends new connections to addrs on to members that serve them, until a time at the latest: the bridge those that are not
// passed on unchanged, which the kernel looks at first.
func (n *Node) Open(until time.Time, addrs ...netip.Addr) {
	n.passing.leave(until, addrs)
	n.bridge.Open(until, addrs...)
}

// Close ends that. It is called before addrs are served here again.
func (n *Node) Close(addrs ...netip.Addr) {
	n.passing.serve(addrs)
	n.bridge.Close(addrs...)
}

// Held is how many connections clients elsewhere have with this node by each of addrs of which members pass packets on to it.
func (n *Node) Held(addrs ...netip.Addr) (map[netip.Addr]int, error) {
	if is := n.passing.chance.Status(); !is.Able || len(is.To) == 0 {
		return nil, nil // routers' silence ends them
	}
	n.passing.mu.Lock()
	addrs = slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !n.passing.has(a) })
	n.passing.mu.Unlock()
	if len(addrs) == 0 {
		return nil, nil
	}
	return conntrack.Held(addrs...)
}

// SetBalancers makes the balancers of c the ones that run.
func (n *Node) SetBalancers(c *config.Config) error { return n.set.Apply(balancers(c)) }

// SetVIPs has new connections to VIPs of c sent on when they leave this node.
func (n *Node) SetVIPs(c *config.Config) {
	var bridged []bridge.VIP
	var all []netip.Addr
	for _, v := range c.VIPs {
		all = append(all, v.Addresses...)
		if *v.Bridge {
			bridged = append(bridged, bridge.VIP{Addresses: v.Addresses, Checks: v.Checks})
		}
	}
	n.bridge.SetVIPs(bridged, all)
	n.passing.setVIPs(c)
}

// SetLinks says by which links routers bring packets.
func (n *Node) SetLinks(names []string) { n.passing.change(func(of *passed) { of.links = names }) }

// SetMemberStates sets the states that members advertise.
func (n *Node) SetMemberStates(offered []election.MemberState) {
	all, others := members(offered)
	n.set.SetMembers(all)
	n.bridge.SetMembers(others)
	n.passing.change(func(of *passed) { of.offered = offered })
}

// Run runs the bridge, and passes packets on, until ctx is done.
func (n *Node) Run(ctx context.Context) {
	var chance sync.WaitGroup
	chance.Go(func() { n.passing.chance.Run(ctx) })
	n.bridge.Run(ctx)
	chance.Wait()
}

// End ends balancing such that a successor loses no connection. Nothing runs any more.
func (n *Node) End() {
	if err := n.set.Close(); err != nil {
		n.log.Warn("cannot leave the balancers to a successor", "err", err)
	}
}

// Clear ends the listening that a predecessor has left in the kernel if nothing of c takes it over.
func Clear(log *slog.Logger, c *config.Config) {
	listens := slices.ContainsFunc(c.Balancers, func(b config.Balancer) bool { return b.Mode == config.Kernel })
	bridged := slices.ContainsFunc(c.VIPs, func(v config.VIP) bool { return *v.Bridge })
	if listens || bridged {
		return
	}
	if err := nft.Clear(); err != nil {
		log.Debug("balancers of an earlier herald may be left", "err", err)
	}
}

// balancers are those of c. While they are of type external they listen nowhere: what is
// established stays.
func balancers(c *config.Config) []balancer.Config {
	var out []balancer.Config
	for _, b := range c.Balancers {
		one := balancer.Config{Name: b.Name, Transparent: b.Transparent, Forget: b.Forget}
		if c.LoadBalancer.Type == config.Internal {
			one.Listen = listeners(c, b)
		}
		if b.Method == config.SourceHash {
			one.Method = balancer.SourceHash
		}
		if b.Mode == config.Proxy {
			one.Mode = balancer.Proxy
		}
		switch from := b.Backends; {
		case from.Members != nil:
			one.Members = (*balancer.Members)(from.Members)
		case from.Static != nil:
			one.Static = from.Static.Addresses
		case from.DNS != nil:
			one.DNS = (*balancer.DNS)(from.DNS)
		}
		one.Check = b.Check.HealthCheck()
		out = append(out, one)
	}
	return out
}

// listeners are where b listens, VIPs by all of their addresses.
func listeners(c *config.Config, b config.Balancer) []netip.AddrPort {
	var out []netip.AddrPort
	for _, p := range c.Places(b) {
		out = append(out, p.AddrPort)
	}
	return out
}

// members are all members, and those besides this node.
func members(offered []election.MemberState) (all, others []balancer.Member) {
	for _, o := range offered {
		m := member(o)
		all = append(all, m)
		if !o.Self {
			others = append(others, m)
		}
	}
	return all, others
}
