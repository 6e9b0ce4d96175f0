// Package daemon is one running speaker process: it puts the packages
// together, loads and reloads the configuration, and answers signals, systemd
// and the admin socket. It decides nothing about VIPs; that is package
// speaker's.
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

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/eventlog"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/metrics"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/priority"
	"github.com/herald-vip/herald/speaker"
)

const (
	// closeTimeout bounds the polite end of BGP sessions.
	closeTimeout = 2 * time.Second
	// drainSlack is what a drain may take beyond the longest linger before the
	// end of the process no longer waits for it.
	drainSlack = 10 * time.Second
	// spareProcessors is how many goroutines more than there are CPUs may be
	// busy before one that is woken has to wait, in real time.
	spareProcessors = 4
	// rememberedEvents is how many events the status tells of.
	rememberedEvents = 50
)

// Daemon is one speaker process.
type Daemon struct {
	log     *slog.Logger
	version string
	started time.Time
	watcher *config.Watcher
	events  *eventlog.Log

	addresses *netutil.Addresses
	bgp       *bgp.Server
	speaker   *speaker.Speaker
	monitor   *health.Monitor
	segment   *segment
	bridge    *bridge
	offering  *offering
	balancers *balancers
	services  *services // nil without a services section

	reloading sync.Mutex // held while a file is read and put in force

	mu       sync.Mutex
	config   *config.Config
	routerID netip.Addr
	state    admin.Config
	realtime string        // as in [admin.Status]
	vips     []speaker.VIP // as configured, links of flat ones yet to be found
	peers    peerSet
	unpeered error // why the peers in the API are not in force
}

// ConfigError says that a speaker did not start because its configuration
// cannot be read or is not valid.
type ConfigError struct{ Err error }

// Error implements error.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap gives the reason to [errors.As].
func (e *ConfigError) Unwrap() error { return e.Err }

// Run runs the speaker configured by file until ctx is done or the process is
// told to stop by SIGTERM or SIGINT; either drains it first, and a second
// signal ends the drain at once. SIGHUP, or a change of the file, reloads it;
// opts are what it is loaded with. The error is a [ConfigError] if file is no good to begin with.
func Run(ctx context.Context, log *slog.Logger, version, file string, opts ...config.Option) error {
	events := eventlog.New(rememberedEvents)
	log = slog.New(events.Handler(log.Handler()))
	d := &Daemon{
		log: log, version: version, started: time.Now(),
		watcher: config.NewWatcher(file, opts...), events: events,
		state: admin.Config{File: file},
	}
	c, err := d.watcher.Load()
	if err != nil {
		return &ConfigError{err}
	}
	// Signals are taken from here on: before there is anything to withdraw,
	// ending at once is right.
	in := signals{stop: make(chan os.Signal, 2), reload: make(chan os.Signal, 1)}
	signal.Notify(in.stop, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(in.stop)
	signal.Notify(in.reload, syscall.SIGHUP)
	defer signal.Stop(in.reload)

	d.prioritise(c.Realtime)
	frugal()

	// The socket comes first of what others can see: it tells whether another herald runs here, whose
	// addresses are not left-overs.
	control, err := admin.Listen(c.Admin.Socket, log, d)
	if err != nil {
		return err
	}
	defer control.Close()
	servers := []server{control}
	if c.Metrics.Listen != "" {
		web, err := metrics.Listen(c.Metrics.Listen, log, d.Status, d.Healthy)
		if err != nil {
			return err
		}
		defer web.Close()
		servers = append(servers, web)
	}
	if d.addresses, err = netutil.NewAddresses(log, netutil.Options{}); err != nil {
		return err
	}
	if err := d.addresses.Sweep(bindings(c)); err != nil {
		return fmt.Errorf("remove what an earlier herald left: %w", err)
	}
	d.bgp = bgp.New(log, bgp.Options{NextHop6: netutil.GlobalAddr6})
	clearKernel(log, c)
	if d.segment, err = newSegment(log, c); err != nil {
		return err
	}
	plane := newLazyPlane(log, c.NodeName)
	d.balancers = newBalancers(log, c.NodeName, plane)
	d.bridge = newBridge(log, crossover{plane})
	d.speaker = speaker.New(log, d.bgp, d.addresses, d.segment.parts(), d.bridge)
	d.segment.told, d.segment.changed, d.segment.restored = d.speaker.Observe, d.speaker.LeasesChanged, d.speaker.FenceClosed
	d.segment.moved, d.segment.offered = d.replace, d.offered
	d.services = newServices(log, c, d.bgp, d.segment.reconsider)
	d.segment.offers = d.services.flat
	d.monitor = health.NewMonitor(log, d.observe)
	defer d.monitor.Close()
	d.offering = &offering{offer: d.segment.election.Offer, verdicts: d.monitor.Verdicts}
	defer d.balancers.close() // last, as what it leaves serves until a successor is there
	if err := d.apply(ctx, c); err != nil {
		d.closeBGP("failed to start")
		d.segment.close(true)
		return err
	}
	return d.serve(ctx, c, servers, in)
}

// prioritise puts the process before others, as far as the host permits.
func (d *Daemon) prioritise(realtime bool) {
	if err := priority.Protect(); err != nil {
		d.log.Info("may be ended when the node runs out of memory", "err", err)
	}
	if !realtime {
		return
	}
	// A goroutine that the kernel lets run at once still waits for a processor
	// of Go's, of which some are always to be free.
	runtime.GOMAXPROCS(runtime.NumCPU() + spareProcessors)
	d.realtime = admin.RealtimeOn
	if err := priority.Realtime(); err != nil {
		d.realtime = fmt.Sprintf("%v; BFD intervals are %v at least", err, config.CalmInterval)
		d.log.Warn("not in real time: a busy node may delay checks and BFD", "err", err)
	}
}

// calm raises the BFD intervals that need real time to those that do not, lest a
// busy node look like a dead one.
func calm(peers []bgp.Peer) {
	for _, p := range peers {
		if p.BFD != nil {
			p.BFD.Interval = max(p.BFD.Interval, config.CalmInterval)
		}
	}
}

// frugal trades processor time, of which next to none is used, for memory: the
// heap may grow by half of what lives, not by all of it, before it is collected.
// Whoever set GOGC knows better.
func frugal() {
	const percent = 50
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// signals come in two channels, lest a storm of SIGHUPs swallow a SIGTERM, or a
// SIGHUP pass for the second signal that cuts a drain short.
type signals struct{ stop, reload chan os.Signal }

// server is the admin socket or the metrics listener.
type server interface {
	Serve() error
	Close() error
}

// serve runs everything that runs beside the checks, until it is told to stop.
func (d *Daemon) serve(ctx context.Context, c *config.Config, servers []server, in signals) error {
	// Background work outlives the drain, which needs it, even when a part of
	// it has failed.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(background)
	group.Go(func() error { return d.addresses.Run(background) })
	group.Go(func() error { d.speaker.Run(background); return nil })
	group.Go(func() error { return d.segment.run(background) })
	group.Go(func() error { d.bridge.run(background); return nil })
	group.Go(func() error { return d.balancers.run(background) })
	group.Go(func() error { d.runServices(background); return nil })
	group.Go(func() error {
		d.watcher.Run(background, func() { d.reload(background, "the file changed") })
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

// await returns when the process is told to stop, or background work has failed.
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
			d.reload(ctx, "SIGHUP")
		}
	}
}

// stop drains, so that the end of the process drops nothing, unless a signal
// says that it has to be quick.
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
	if err := d.Drain(ctx, "herald is stopping"); err != nil {
		if err := errors.Join(d.speaker.Stop(), d.services.stop()); err != nil {
			d.log.Error("withdraw", "err", err)
			clean = false
		}
	}
	cancel()
	watching.Wait()
	d.segment.close(clean)
	d.closeBGP(node + ": herald is stopping")
}

func (d *Daemon) closeBGP(message string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := d.bgp.Close(ctx, message); err != nil {
		d.log.Warn("close sessions", "err", err)
	}
}
