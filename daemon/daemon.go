// Package daemon runs one speaker process. It connects the packages, loads and reloads the configuration, and serves
// signals, systemd and the admin socket. Package speaker decides about VIPs.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer/nft"
	"github.com/herald-vip/herald/balancer/proxy"
	"github.com/herald-vip/herald/balancer/secondchance"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/config/watch"
	"github.com/herald-vip/herald/daemon/advertise"
	"github.com/herald-vip/herald/daemon/balance"
	"github.com/herald-vip/herald/daemon/priority"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/newconns"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/speaker/flat"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/eventlog"
	"github.com/herald-vip/herald/status/metrics"
	"github.com/herald-vip/herald/status/page"
)

const (
	// closeTimeout bounds the orderly end of BGP sessions.
	closeTimeout = 2 * time.Second
	// drainSlack is how long the end of the process waits for a drain beyond the longest linger.
	drainSlack = 10 * time.Second
	// spareProcessors is how many goroutines more than CPUs may be busy in real time before a woken one has to wait.
	spareProcessors = 4
	// heapGrowth makes the garbage collector run when the heap has grown by half of the live objects, not by all. That
	// trades processor time, which Herald barely uses, for memory.
	heapGrowth = 50
	// proxyLinger is how long connections through this process may continue at its end. Connections through the kernel
	// do not need it.
	proxyLinger = 2 * time.Second
	// rememberedEvents is the number of events in the status.
	rememberedEvents = 200
)

// Daemon is one speaker process.
type Daemon struct {
	log     *slog.Logger
	version string
	started time.Time
	watcher *watch.Watcher
	links   *rtnetlink.Watcher
	events  *eventlog.Log

	addresses  *address.Binder
	bgp        *bgp.Server
	routes     *route.Keeper
	speaker    *speaker.Speaker
	monitor    *health.Monitor
	flat       *flat.Flat
	advertiser *advertise.Advertiser
	newConns   *newconns.Counter
	balancers  *balance.Node
	kernel     *nft.DataPlane // the data plane of balancers in the kernel
	services   *services      // nil without a services section

	draining sync.Mutex // one Drain or Undrain begins at a time
	drained  drained    // guarded by draining once requests are served

	fence    string // as in [admin.Election]
	realtime string // as in [admin.Status]

	reloading sync.Mutex // held while a file is read and put in force

	mu      sync.Mutex
	config  *config.Config
	state   admin.Config
	peering *peering.Peering
}

// ConfigError is returned when a speaker does not start because its configuration cannot be read or is not valid.
type ConfigError struct{ Err error }

// Error implements error.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *ConfigError) Unwrap() error { return e.Err }

// Run runs the speaker configured by file until ctx is done or the process receives SIGTERM or SIGINT. Either drains it
// first; a second signal ends the drain at once. SIGHUP or a change of the file reloads it, with opts. The error is a
// [ConfigError] if the first load fails.
func Run(ctx context.Context, log *slog.Logger, version, file string, opts ...config.Option) error {
	events := eventlog.New(rememberedEvents)
	log = slog.New(events.Handler(log.Handler()))
	d := &Daemon{
		log: log, version: version, started: time.Now(),
		watcher: watch.New(file, opts...), events: events,
		state: admin.Config{File: file},
	}
	c, err := d.watcher.Load()
	if err != nil {
		return &ConfigError{err}
	}
	// Before this point there is nothing to withdraw, and a signal ends the process at once.
	in := signals{stop: make(chan os.Signal, 2), reload: make(chan os.Signal, 1)}
	signal.Notify(in.stop, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(in.stop)
	signal.Notify(in.reload, syscall.SIGHUP)
	defer signal.Stop(in.reload)

	d.prioritise(c.Realtime)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}

	// The lock comes first: without it, addresses that look left over may belong to another running herald.
	unlock, err := lock(log)
	if err != nil {
		return err
	}
	defer unlock()
	control, err := admin.Listen(c.Admin.Socket, log, d)
	if err != nil {
		return err
	}
	defer control.Close()
	servers := []server{control}
	if c.Metrics.Listen != "" {
		web, err := metrics.Listen(c.Metrics.Listen, log, d.Status, d.Healthy, func() *page.Nodes { return d.services.nodes() })
		if err != nil {
			return err
		}
		defer web.Close()
		servers = append(servers, web)
	}
	d.links = &rtnetlink.Watcher{Mark: address.DefaultMark}
	if d.addresses, err = address.New(log, address.Options{Watcher: d.links}); err != nil {
		return err
	}
	if err := d.addresses.Sweep(bindingsOf(c)); err != nil {
		return fmt.Errorf("remove what an earlier herald left: %w", err)
	}
	d.newConns = newconns.New(log, 0)
	d.bgp = bgp.New(log, bgp.Options{NextHop6: link.GlobalAddr6})
	d.routes = route.New()
	defer d.routes.Close()
	d.peering = peering.New(log, d.bgp, peering.Options{
		Realtime: d.realtime == admin.RealtimeOn, RouterID: link.RouterID,
		Gateways: func(f v1alpha1.Family) ([]netip.Addr, error) { return link.Gateways(f == v1alpha1.IPv6) },
	})
	balance.Clear(log, c)
	d.kernel = nft.New(log, nft.Options{Node: c.NodeName})
	d.services = newServices(log, c, d.bgp, func() { d.flat.Look() })
	if err := d.newSpeaker(c); err != nil {
		return err
	}
	defer d.monitor.Close()
	if reason := d.drained.resume(); reason != "" {
		log.Warn("drained until undrain, as before the start", "reason", reason)
		if err := d.Drain(ctx, reason, false, 0); err != nil { // withdraws nothing yet
			return err
		}
	}
	defer d.balancers.End() // last: its rules serve until a successor runs
	if err := d.apply(ctx, c); err != nil {
		d.closeBGP("failed to start")
		d.flat.Close(true)
		return err
	}
	return d.serve(ctx, c, servers, in)
}

// newSpeaker makes the speaker and the parts that depend on each other: flat, monitor, advertiser and balancers.
func (d *Daemon) newSpeaker(c *config.Config) error {
	guard, unfenced, err := newFence(d.log, c)
	if err != nil {
		return err
	}
	d.fence = unfenced
	o := flat.Options{Log: d.log, Watcher: d.links, Node: c.NodeName, Refresh: c.ARP.Refresh, Fence: guard}
	o.Moved = func() { // a VIP has moved to another link
		d.mu.Lock()
		defer d.mu.Unlock()
		d.applyVIPs()
	}
	o.MemberStates = func(states []election.MemberState) {
		d.balancers.SetMemberStates(states)
		d.speaker.MembersChanged()
	}
	if d.services != nil {
		o.Services = d.services.flat
	}
	d.flat, d.speaker = flat.New(o, func(parts speaker.FlatParts, e *election.Election) *speaker.Speaker {
		d.monitor = health.NewMonitor(d.log, d.observe)
		d.advertiser = advertise.New(e, d.monitor.Verdicts)
		streams := proxy.New(proxy.Options{Log: d.log, Seed: c.NodeName, Linger: proxyLinger})
		d.balancers = balance.New(d.log, d.kernel, streams, d.kernel.Bridge(), secondchance.New(d.log, d.advertiser.SetPassing))
		return speaker.New(d.log, d.bgp, d.routes, d.addresses, parts, d.balancers, d.advertiser)
	})
	return nil
}

// observe acts on a verdict before it returns, on this node's own VIPs first.
func (d *Daemon) observe(v health.Verdict) {
	d.speaker.Observe(v)
	d.advertiser.Publish()
}

// prioritise gives the process precedence over others, as far as the host permits.
func (d *Daemon) prioritise(realtime bool) {
	if err := priority.Protect(); err != nil {
		d.log.Info("the kernel may end herald when the node runs out of memory", "err", err)
	}
	if !realtime {
		return
	}
	// A goroutine that the kernel schedules at once still waits for a processor of the Go runtime. Keep some of them
	// free.
	runtime.GOMAXPROCS(runtime.NumCPU() + spareProcessors)
	d.realtime = admin.RealtimeOn
	if err := priority.Realtime(); err != nil {
		d.realtime = fmt.Sprintf("%v; BFD intervals are %v at least", err, config.CalmInterval)
		d.log.Warn("herald does not run in real time: a busy node may delay checks and BFD", "err", err)
	}
}

// signals has two channels, so that a storm of SIGHUPs does not swallow a SIGTERM, and a SIGHUP does not pass for the
// second signal that cuts a drain short.
type signals struct{ stop, reload chan os.Signal }

// server is the admin socket or the metrics listener.
type server interface {
	Serve() error
	Close() error
}

// serve runs the background work until the process has to stop.
func (d *Daemon) serve(ctx context.Context, c *config.Config, servers []server, in signals) error {
	// Background work outlives the drain, which needs it, even if a part of it has failed.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(background)
	group.Go(func() error { return d.addresses.Run(background) })
	group.Go(func() error { d.speaker.Run(background); return nil })
	group.Go(func() error { return d.flat.Run(background) })
	group.Go(func() error { d.newConns.Run(background); return nil })
	group.Go(func() error { d.balancers.Run(background); return nil })
	group.Go(func() error { d.kernel.Run(background); return nil })
	group.Go(func() error { d.runServices(background); return nil })
	group.Go(func() error {
		return link.WatchGateways(background, d.links, peering.Linger, func() { d.renewGateways(background) })
	})
	group.Go(func() error {
		d.watcher.Run(background, func(rested bool) bool { return d.reload(background, "the file changed", rested) })
		return nil
	})
	for _, server := range servers {
		group.Go(server.Serve)
	}
	group.Go(func() error { return d.notifySystemd(background) })
	d.log.Info("herald runs", "version", d.version, "node", c.NodeName, "config", d.state.File)

	d.await(ctx, failed, in)

	notifyStopping(d.log)
	d.stop(ctx, in.stop)
	stop()
	for _, server := range servers {
		server.Close()
	}
	return group.Wait()
}

// await returns when a signal, ctx or a failure of background work ends the process.
func (d *Daemon) await(ctx, failed context.Context, in signals) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-failed.Done():
			d.log.Error("stopping", "err", context.Cause(failed))
			return
		case sig := <-in.stop:
			d.log.Info("stopping", "signal", sig)
			return
		case <-in.reload:
			d.reload(ctx, "SIGHUP", true)
		}
	}
}

// stop drains, so that the end of the process drops no connection, unless a second signal cuts that short.
func (d *Daemon) stop(ctx context.Context, signals <-chan os.Signal) {
	d.mu.Lock()
	node, linger := d.config.NodeName, time.Duration(0)
	for _, v := range d.config.VIPs {
		linger = max(linger, v.Linger)
	}
	if d.config.Services != nil {
		linger = max(linger, d.config.Services.Linger)
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), linger+drainSlack)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case sig := <-signals:
			d.log.Warn("drain cut short", "signal", sig)
			cancel()
		case <-ctx.Done():
		}
	})
	clean := true
	if err := d.Drain(ctx, "herald is stopping", false, 0); err != nil {
		if err := errors.Join(d.speaker.Stop(), d.services.stop()); err != nil {
			d.log.Error("cannot withdraw everything", "err", err)
			clean = false
		}
	}
	cancel()
	watching.Wait()
	d.flat.Close(clean)
	d.closeBGP(node + ": herald is stopping")
}

func (d *Daemon) closeBGP(message string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := d.bgp.Close(ctx, message); err != nil {
		d.log.Warn("cannot close the sessions in order", "err", err)
	}
}

// vipsOf returns the VIPs of c. On a flat layer 2 the link may still be empty.
func vipsOf(c *config.Config) []speaker.VIP {
	var base v1alpha1.Attributes
	if c.BGP != nil {
		base = c.BGP.Attributes
	}
	var out []speaker.VIP
	for _, v := range c.VIPs {
		vip := speaker.VIP{
			Name: v.Name, Addresses: v.Addresses, Interface: v.Interface, Checks: v.Checks, Peers: v.Peers,
			Linger: v.Linger, HoldDown: v.HoldDown, Bridge: *v.Bridge, Prefixes: v.Prefixes, All: v.PrefixWhile == config.WhileAll, Keep: v.WhenAllFail == config.Keep, Attributes: base.Merge(v.Attributes),
		}
		if v.OnFailure == config.Demote {
			vip.OnFailure = speaker.Demote
		}
		if v.Announce == config.AnnounceKernel {
			vip.Table, vip.Interface = &speaker.Table{Number: v.Kernel.Table, Metric: v.Kernel.Metric}, route.Device
		}
		if v.Announce == config.AnnounceARP {
			vip.Flat = &speaker.Flat{Priority: v.Priority, Preempt: v.Preempt, Lifetime: flat.Lifetime(c.Election.Lease), Leases: flat.LeasesOf(v.Name, v.Addresses...)}
		}
		out = append(out, vip)
	}
	return out
}

// bindingsOf returns the addresses that a predecessor may have left for this process to adopt. It excludes VIPs by ARP,
// as their leases ended with the predecessor, and VIPs by kernel routes, which need no address.
func bindingsOf(c *config.Config) []address.Binding {
	var out []address.Binding
	for _, v := range c.VIPs {
		if v.Announce == config.AnnounceARP || v.Announce == config.AnnounceKernel {
			continue
		}
		for _, a := range v.Addresses {
			out = append(out, address.Binding{Interface: v.Interface, Addr: a})
		}
	}
	return out
}
