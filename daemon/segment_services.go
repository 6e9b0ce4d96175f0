package daemon

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/speaker"
)

const (
	// passOver is how long another node may stand for nothing before it is taken for
	// unable to hold addresses, such as for being drained, and the next is asked.
	passOver = 3 * time.Second
	// aftermath is how long beyond its linger an address stays a Service's for the fence.
	aftermath = 2 * time.Second
)

// tenancy is what a segment knows of the addresses of Services.
type tenancy struct {
	on     bool // there may be some
	linger time.Duration

	// Guarded by the segment's mutex:

	lifetime time.Duration
	standing []flatVIP // of those offered, the ones that this node stands for

	// Of [segment.contend] alone:

	offered  []announce.Address       // that this node may hold by what the API says, in order
	leaving  map[netip.Addr]time.Time // offered no more, and until when they may still be bound
	idle     map[string]time.Time     // since when others that are alive have stood for nothing
	served   map[netip.Addr]bool      // that the fence knows of
	unfenced error                    // why it does not know of all
}

func (t *tenancy) init(c *config.Config) {
	t.leaving, t.idle = make(map[netip.Addr]time.Time), make(map[string]time.Time)
	if c.Services != nil {
		t.on, t.linger = true, c.Services.Linger
	}
}

// reconsider has the addresses of Services looked at soon.
func (g *segment) reconsider() {
	select {
	case g.look <- struct{}{}:
	default:
	}
}

// contend decides for which addresses of Services this node stands, and has that brought
// about. met says that it has had the time to hear of the other nodes.
func (g *segment) contend(met bool) {
	if !g.services.on {
		return
	}
	st := g.election.Status()
	holds := make(map[string]bool)
	for _, l := range st.Lease.Leases {
		holds[l.Lease] = l.Holder == g.node
	}
	offered := g.offers()
	now := time.Now()
	g.services.offer(now, offered)
	g.serve() // the kernel may be slow: nobody waits for the mutex meanwhile
	g.mu.Lock()
	changed := g.settle(now, st.Members, holds, met)
	g.mu.Unlock()
	if changed {
		g.moved()
	}
}

// settle decides for which of the addresses that are offered this node stands. The mutex
// is held.
func (g *segment) settle(now time.Time, members []election.Member, holds map[string]bool, met bool) (changed bool) {
	t := &g.services
	fit := t.fit(now, g.node, members)
	var standing []flatVIP
	if g.links != nil {
		subnets := maps.Clone(g.links) // a node has far more links than subnets
		maps.DeleteFunc(subnets, func(_ string, l netutil.Link) bool { return len(l.Prefixes) == 0 })
		for _, a := range t.offered {
			c := service.Contest{Addr: a.Addr, Self: g.node, Qualified: a.Nodes, Fit: fit, Holds: holds[a.Addr.String()], Met: met}
			if !c.Stands() {
				continue
			}
			among := subnets
			if len(a.Interfaces) > 0 {
				among = g.links
			}
			v := flatVIP{addr: a.Addr, policy: arp.Defend}
			v.link, v.lost = netutil.LinkAmong(among, a.Interfaces, a.Addr)
			standing = append(standing, v)
		}
	}
	if slices.EqualFunc(standing, t.standing, func(a, b flatVIP) bool { return a.addr == b.addr && a.link == b.link }) {
		return false
	}
	t.standing = standing
	g.oversee()
	return true
}

// offer makes these the addresses that this node may hold.
func (t *tenancy) offer(now time.Time, offered []announce.Address) {
	maps.DeleteFunc(t.leaving, func(_ netip.Addr, until time.Time) bool { return !now.Before(until) })
	for _, old := range t.offered {
		t.leaving[old.Addr] = now.Add(t.linger + aftermath)
	}
	for _, a := range offered {
		delete(t.leaving, a.Addr)
	}
	t.offered = offered
}

// fit are the other nodes that are alive and seem able to hold addresses.
func (t *tenancy) fit(now time.Time, self string, members []election.Member) map[string]bool {
	fit := make(map[string]bool, len(members))
	idle := make(map[string]time.Time)
	for _, m := range members {
		if m.Name == self || !m.Alive {
			continue
		}
		if m.Standing == 0 {
			since, ok := t.idle[m.Name]
			if !ok {
				since = now
			}
			idle[m.Name] = since
			if now.Sub(since) >= passOver {
				continue
			}
		}
		fit[m.Name] = true
	}
	t.idle = idle
	return fit
}

// serve tells the fence which addresses are of Services: also those that this node does not
// stand for, lest the kernel answer for what kube-proxy has put on another link.
func (g *segment) serve() {
	t := &g.services
	if g.fence == nil {
		return
	}
	addrs := make(map[netip.Addr]bool, len(t.offered)+len(t.leaving))
	for addr := range t.leaving {
		addrs[addr] = true
	}
	for _, a := range t.offered {
		addrs[a.Addr] = true
	}
	if t.unfenced == nil && maps.Equal(addrs, t.served) {
		return
	}
	err := g.fence.Serve(slices.Collect(maps.Keys(addrs))...)
	if err != nil && (t.unfenced == nil || t.unfenced.Error() != err.Error()) {
		g.log.Error("the fence does not know the addresses of Services", "err", err)
	}
	t.served, t.unfenced = addrs, err
}

// serviceVIPs are the addresses of Services that this node stands for, as the speaker's.
func (g *segment) serviceVIPs() []speaker.VIP {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &g.services
	out := make([]speaker.VIP, 0, len(t.standing))
	for _, v := range t.standing {
		out = append(out, speaker.VIP{
			Name: v.addr.String(), Addresses: []netip.Addr{v.addr}, Service: true, Interface: v.link, Checks: []string{linkCheck(v)}, Linger: t.linger,
			Flat: &speaker.Flat{Priority: service.Weight(v.addr, g.node), Lifetime: t.lifetime},
		})
	}
	return out
}
