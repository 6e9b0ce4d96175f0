package failover

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/step"
)

// flat is the network of bench-arp.clab.yml, where one master at a time has the VIP.
type flat struct{ site *site }

// lan is the segment.
const lan = "lan"

// flatVIPs returns the addresses of the VIP on the flat layer 2.
func flatVIPs() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.3.0.100"), netip.MustParseAddr("fd00:3::100")}
}

func (n *flat) neighbours() []string { return []string{lan} }

// watch starts the observer of the VIP's answers, and a client per address.
func (n *flat) watch(ctx context.Context, identify bool) *watch {
	target := holders.On(n.site.Lab, masters(), flatVIPs(), netip.MustParseAddr("10.3.0.128"), netip.MustParseAddr("fd00:3::80"))
	w := &watch{seen: step.Get(holders.Observe(n.site.Node("o1"), target))}
	for _, vip := range flatVIPs() {
		w.clients = append(w.clients, observe.Send(ctx, n.site.Node("c1"), netip.AddrPortFrom(vip, 6443).String(), identify))
	}
	return w
}

// victim returns the master that answers for all addresses, or "".
func (n *flat) victim(w *watch, _ int) string {
	first, _ := w.seen.Holder(flatVIPs()[0])
	if second, _ := w.seen.Holder(flatVIPs()[1]); second != first {
		return ""
	}
	return first
}

// effects waits until another master has claimed all addresses.
func (n *flat) effects(ctx context.Context, w *watch, f fault, master string, deadline time.Time) []trial {
	w.began = w.seen.Clock()
	strike := func() error { return f.strike(ctx, n.site, master) }
	if f.planned {
		step.Do(w.seen.Move(master, strike))
	} else {
		step.Do(strike())
	}
	taken := observe.AwaitTaken(ctx, w.seen, flatVIPs(), master, w.began, deadline)
	if f.planned {
		observe.AwaitQuiet(ctx, deadline, w.clients...)
	}
	return []trial{{router: layer2, Seen: observe.Seen{Taken: taken}}}
}

func (n *flat) heal(_ context.Context, do func() error, _ string, _ []trial) { step.Do(do()) }

// rest waits until one master has answered for the VIP for a while, each client has
// reached it throughout, and all other masters could take over.
func (n *flat) rest(ctx context.Context, w *watch) {
	vips := flatVIPs()
	observe.AtRest(ctx, w.seen, vips, w.clients, func(ctx context.Context, holders map[netip.Addr]string) error {
		if holder, home := holders[vips[0]], n.site.speaker.home; holders[vips[1]] != holder || home != "" && holder != home {
			return fmt.Errorf("the VIP is not on a single master, or not on its home %s", home)
		}
		if n.site.speaker.ready == nil {
			return nil
		}
		for _, m := range masters() {
			if err := n.site.speaker.ready(ctx, n.site.Node(speakerOf(m))); err != nil {
				return err
			}
		}
		return nil
	})
}

// judge adds the holders of the VIP, and the clients' joint results.
func (n *flat) judge(w *watch, trials []trial) {
	trials[0].AddHolders(w.seen.Trace(), w.began)
	trials[0].AddClients(w.results, w.healed)
}

func (n *flat) close() error { return nil }
