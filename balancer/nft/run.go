package nft

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/netutil/conntrack"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// settingsEvery is the interval of reads of the host's settings. The kernel does not notify of changes: sysctl --system
// resets them, and a recreated link lacks them.
const settingsEvery = time.Second

// Run renews listeners, restores what other programs change, and opens the Bridge, until ctx ends. Call it once.
func (p *DataPlane) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-p.opened:
	}
	var bridge sync.WaitGroup
	bridge.Go(func() { p.bridge.run(ctx) })
	defer bridge.Wait()

	every := p.outlive / 3
	refreshed, failed := time.Now(), false
	p.owner.Run(ctx, p.log, ruleset.Rounds{
		Every: min(every, settingsEvery),
		Watch: func(changed chan<- struct{}) (stop func(), err error) {
			return p.owner.kernel.Watch(changed, tableName)
		},
		Failed: "balancing in the kernel not refreshed", Recovered: "balancing in the kernel refreshed again",
		Round: func(changed bool) (err error) {
			switch {
			case failed || time.Since(refreshed) >= every:
				err = p.refresh()
				refreshed = time.Now()
			case changed:
				err = cmp.Or(p.owner.repair(), p.restoreSettings())
			default:
				err = p.restoreSettings()
			}
			failed = err != nil
			return err
		},
	})
}

// refresh repairs the table, renews listeners, restores the host's settings and forgets stale places.
func (p *DataPlane) refresh() error {
	p.changing.Lock()
	defer p.changing.Unlock()
	// Listeners are renewed even if reading the table takes too long.
	if err := errors.Join(p.owner.repair(), p.owner.renew()); err != nil {
		return err
	}
	return errors.Join(p.prepareHost(p.owner.services()), p.forgetStale())
}

// restoreSettings restores the host's settings if another program changed them.
func (p *DataPlane) restoreSettings() error {
	p.changing.Lock()
	defer p.changing.Unlock()
	return p.prepareHost(p.owner.services())
}

// forgetStale forgets places without a listener and without connections, and resets route_localnet after the last
// place at 127.0.0.1. p.changing is held.
func (p *DataPlane) forgetStale() error {
	var gone []netip.AddrPort
	for _, place := range p.owner.stale() {
		open, err := p.connected(p.host.ends, []netip.AddrPort{place})
		if err != nil {
			return err
		}
		if len(open) == 0 {
			gone = append(gone, place)
		}
	}
	links := p.owner.free(gone)
	for _, link := range links {
		if err := p.host.setLocalnet(link, false); err != nil {
			return err // the next refresh resets all links again
		}
	}
	return p.owner.forget(links)
}

func isLoopback(place netip.AddrPort) bool { return place.Addr().IsLoopback() }

// connected counts connections to places that have not ended, by backend.
func (p *DataPlane) connected(calls ruleset.Calls, places []netip.AddrPort) (map[netip.AddrPort]int, error) {
	return in(p.host, calls, func() (map[netip.AddrPort]int, error) {
		out := make(map[netip.AddrPort]int)
		all, err := translated(places, func(c conntrack.Connection) bool { return c.Phase != conntrack.Ended })
		for _, c := range all {
			out[c.Server]++
		}
		return out, err
	})
}

// end ends connections to backends, by service, that are in a phase. Logs call the backends by kind.
func (p *DataPlane) end(kind string, byService map[string][]netip.AddrPort, phase func(conntrack.Phase) bool) {
	for service, backends := range sorted(byService) {
		places := p.owner.places(service)
		ended, err := in(p.host, p.host.ends, func() (int, error) {
			all, err := translated(places, func(c conntrack.Connection) bool { return slices.Contains(backends, c.Server) && phase(c.Phase) })
			return len(all), cmp.Or(err, conntrack.End(all))
		})
		switch {
		case err != nil:
			p.log.Warn("connections to "+kind+" backends not ended: clients may wait for an answer", "balancer", service, "backends", backends, "err", err)
		case ended > 0:
			p.log.Info("ended connections to "+kind+" backends", "balancer", service, "backends", backends, "connections", ended)
		}
	}
}

// translated returns the connections to places that are wanted.
func translated(places []netip.AddrPort, wanted func(conntrack.Connection) bool) ([]conntrack.Connection, error) {
	var out []conntrack.Connection
	for _, place := range places {
		connections, err := conntrack.Translated(place)
		if err != nil {
			return out, err
		}
		out = append(out, slices.DeleteFunc(connections, func(c conntrack.Connection) bool { return !wanted(c) })...)
	}
	return out, nil
}
