package failover

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/routes"
	"github.com/herald-vip/herald/testenv/step"
)

// vip is the address of all BGP speakers.
const vip = "10.99.0.10"

// vipPrefix is the VIP's route.
func vipPrefix() netip.Prefix { return netip.MustParsePrefix(vip + "/32") }

// routed is the network of bench-bgp.clab.yml, where two routers see every fault at once.
type routed struct {
	site    *site
	routers []*router
}

// router is an upstream router of the topology, with the client behind it.
type router struct {
	number int
	name   string   // its name in the results
	show   []string // the command that shows its BFD sessions
	node   *lab.Node
	client *lab.Node
	routes *routes.Watch
	wire   *observe.Wire
}

// routerFiles returns the files of the routers and of the guard's peer.
func routerFiles() []file {
	return []file{
		{"frr-router.conf.tmpl", "r1/frr.conf", 0o644}, {"daemons", "r1/daemons", 0o644},
		{"bird.conf.tmpl", "r2/bird.conf", 0o644}, {"peer.conf", "c1/bird.conf", 0o644},
	}
}

// route begins to follow the routers of a site, which closes it, after an error too.
func route(s *site) {
	n := &routed{site: s, routers: []*router{
		{number: 1, name: "FRR", show: []string{"vtysh", "-c", "show bfd peers json"}},
		{number: 2, name: "BIRD", show: []string{"birdc", "show bfd sessions"}},
	}}
	s.network = n
	for _, r := range n.routers {
		r.node, r.client = s.Node(fmt.Sprintf("r%d", r.number)), s.Node(fmt.Sprintf("c%d", r.number))
		r.routes = step.Get(routes.Follow(r.node, netip.MustParsePrefix("10.99.0.0/24"), nil))
		r.wire = step.Get(observe.Listen(r.node))
	}
}

func (n *routed) close() (err error) {
	for _, r := range n.routers {
		if r.routes != nil {
			err = errors.Join(err, r.routes.Close())
		}
		if r.wire != nil {
			err = errors.Join(err, r.wire.Close())
		}
	}
	return err
}

func (n *routed) neighbours() []string { return []string{"r1", "r2"} }

// hop returns the address of a master on the link to the router.
func (r *router) hop(master string) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(r.number), master[1] - '0', 1})
}

// mark discards the router's earlier messages and changes.
func (r *router) mark() {
	r.routes.Mark()
	r.wire.Mark()
}

// over and notOver match next hops with and without one.
func over(hop netip.Addr) func([]netip.Addr) bool {
	return func(hops []netip.Addr) bool { return slices.Contains(hops, hop) }
}

func notOver(hop netip.Addr) func([]netip.Addr) bool {
	return func(hops []netip.Addr) bool { return !slices.Contains(hops, hop) }
}

// await waits until the next hops of the VIP's route match.
func (r *router) await(ctx context.Context, match func([]netip.Addr) bool) error {
	return r.routes.Await(ctx, func(v routes.View) bool { return match(v.Hops(vipPrefix())) })
}

// fast reports whether a BFD interval, in milliseconds, needs real-time scheduling.
func fast(bfd int) bool { return bfd > 0 && bfd < 50 }

// realtime gives every BFD daemon a low priority of SCHED_FIFO where BFD is fast:
// intervals of 10 ms fail otherwise on a busy machine, with any speaker. Herald asks
// for it by its own configuration.
func (s *site) realtime() {
	if !fast(s.bfd) {
		return
	}
	for _, n := range s.Nodes() {
		for _, p := range n.Daemons() {
			if !p.Running() || p.Name() != "bfdd" && p.Name() != "bird" {
				continue
			}
			step.Named(fmt.Sprintf("real-time scheduling of %s on %s", p.Name(), n.Name()), func() {
				for _, t := range step.Get(procfs.AllThreads(p.Pid())) {
					step.Do(unix.SchedSetAttr(t.PID, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, 0))
				}
			})
		}
	}
}

// steadyWithin bounds each recovery.
const steadyWithin = time.Minute

// rest waits until the routes of all routers lead to every master, and all BFD sessions are up.
func (n *routed) rest(ctx context.Context, _ *watch) {
	ctx, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	for _, r := range n.routers {
		var hops []netip.Addr
		for _, m := range masters() {
			hops = append(hops, r.hop(m))
		}
		step.Get(r.routes.AwaitHops(ctx, netip.MustParseAddr(vip), hops...))
		n.awaitBFD(ctx, r)
	}
}

// sessionUp matches a BFD session that is up, in the output of FRR and BIRD.
var sessionUp = regexp.MustCompile(`(?m)"status": ?"up"|^\S+ +\S+ +Up\b`)

// awaitBFD waits until the router has a BFD session with every master.
func (n *routed) awaitBFD(ctx context.Context, r *router) {
	for n.site.bfd > 0 {
		shown := step.Get(r.node.Run(ctx, r.show...))
		if len(sessionUp.FindAllString(shown, -1)) == len(masters()) {
			break
		}
		if err := step.Sleep(ctx, 20*time.Millisecond); err != nil {
			step.Do(fmt.Errorf("not all BFD sessions of %s are up: %w: %s", r.name, err, shown))
		}
	}
}

// watch starts a client behind each router, once the routes and sessions are complete.
func (n *routed) watch(ctx context.Context, identify bool) *watch {
	step.Named("before the fault", func() { n.rest(ctx, nil) })
	w := new(watch)
	for _, r := range n.routers {
		w.clients = append(w.clients, observe.Send(ctx, r.client, vip+":6443", identify))
	}
	return w
}

func (n *routed) victim(_ *watch, number int) string { return masterOf(1 + (number-1)%len(masters())) }

// effects waits until no router leads to the master any more, or until the deadline,
// and returns when each router was told and acted.
func (n *routed) effects(ctx context.Context, _ *watch, f fault, master string, deadline time.Time) (trials []trial) {
	for _, r := range n.routers {
		r.mark()
	}
	struck := time.Now()
	step.Do(f.strike(ctx, n.site, master))
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for _, r := range n.routers {
		t := trial{router: r.name}
		gone := notOver(r.hop(master))
		at, ok := r.routes.First(vipPrefix(), gone)
		if !ok {
			if err := r.await(waiting, gone); waiting.Err() == nil {
				step.Do(err)
			}
			at, ok = r.routes.First(vipPrefix(), gone)
		}
		if ok {
			t.gone = since(struck, at)
		}
		if h, ok := r.wire.First(r.hop(master)); ok && (t.gone == nil || h.At.Sub(struck) <= *t.gone) {
			t.told, t.word = since(struck, h.At), h.Word
		}
		trials = append(trials, t)
	}
	step.Do(context.Cause(ctx))
	return trials
}

func since(began, at time.Time) *time.Duration {
	d := at.Sub(began)
	return &d
}

// heal records how long each router takes to lead to the master again, with BFD up if
// enabled. It records nothing if the route never went, or was back already.
func (n *routed) heal(ctx context.Context, do func() error, master string, trials []trial) {
	for _, r := range n.routers {
		r.routes.Mark()
	}
	healed := time.Now()
	step.Do(do())
	n.site.realtime()
	within, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	g, within := errgroup.WithContext(within)
	back := func(r *router, t *trial) {
		step.Do(r.await(within, over(r.hop(master))))
		at, ok := r.routes.First(vipPrefix(), over(r.hop(master)))
		if !ok {
			return
		}
		if n.site.bfd > 0 {
			n.awaitBFD(within, r)
			at = time.Now()
		}
		t.back = since(healed, at)
	}
	for i, r := range n.routers {
		if trials[i].gone != nil { // otherwise it was never away
			g.Go(func() error { return step.Run(func() { back(r, &trials[i]) }) })
		}
	}
	step.Do(g.Wait())
}

// judge adds the results of the client behind each router.
func (n *routed) judge(w *watch, trials []trial) {
	for i := range trials {
		trials[i].AddClients(w.results[i:i+1], time.Time{})
	}
}

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
