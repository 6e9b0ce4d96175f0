package nft

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/conntrack"
	"github.com/herald-vip/herald/netutil/ruleset"
)

const (
	// again is when a refresh that failed is tried again, and how often the table is read if the kernel
	// does not tell of changes.
	again = time.Second

	// settingsEvery is how often the host's settings are read, of whose changes the kernel does not
	// tell: sysctl --system resets them, and a link that is made anew has none.
	settingsEvery = time.Second

	// pause is the least time between two reads of the table, so that a program that changes
	// nftables over and over does not keep the node busy.
	pause = 100 * time.Millisecond
)

// Run refreshes what is listened at, puts back what somebody else removes of the table, and
// opens the Bridge, until ctx ends. It is to run once.
func (p *Plane) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-p.opened:
	}
	var bridge sync.WaitGroup
	bridge.Go(func() { p.bridge.run(ctx) })
	defer bridge.Wait()

	p.mu.Lock()
	every := p.want.outlive / 3
	p.mu.Unlock()
	changed := make(chan struct{}, 1)
	stop, err := p.kernel.watch(changed)
	if err != nil {
		every = min(every, again)
		p.log.Warn("what somebody else changes of nftables is found only by reading it", "every", every, "err", err)
	} else {
		defer stop()
	}
	due, repair := time.NewTimer(every), time.NewTimer(every)
	defer due.Stop()
	defer repair.Stop()
	repair.Stop()
	repairing := false
	settings := time.NewTicker(settingsEvery)
	defer settings.Stop()
	var fault ruleset.Fault
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
			err = p.refresh()
			if due.Reset(every); err != nil {
				due.Reset(min(every, again))
			}
		case <-settings.C:
			if fault != "" {
				continue // a refresh is about to try it all
			}
			err = p.restoreSettings()
		case <-changed:
			if !repairing {
				repairing = true
				repair.Reset(p.repairDelay())
			}
			continue
		case <-repair.C:
			repairing = false
			err = p.repair()
		}
		fault.Log(p.log, err, "balancing in the kernel not refreshed", "balancing in the kernel refreshed again")
		wake.Pause(ctx, pause)
	}
}

// repairDelay is for how long not to read the table after a change of the table: what has just been written here is
// changed of, too, and to read it all takes its time.
func (p *Plane) repairDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, again-time.Since(p.wrote))
}

// repair puts the table back if somebody else has removed a part of it.
func (p *Plane) repair() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 2 { // twice, as what is read while others change theirs may be incomplete
		found, _, err := p.read()
		if err != nil {
			return err
		}
		if change(found, p.wanted(found)).empty() {
			p.want.recount(found.chains)
			p.have = &found
			return nil
		}
		p.have = &found
	}
	if err := p.sync(); err != nil {
		return err
	}
	p.mended++
	p.log.Warn("put back the balancer's nftables, which were not as they should be")
	return nil
}

// refresh is what keeps the table in order and alive: what is listened at, the host's
// settings, and what is to be forgotten.
func (p *Plane) refresh() error {
	p.applying.Lock()
	defer p.applying.Unlock()
	// A table that takes too long to be read is still to be kept alive.
	if err := errors.Join(p.repair(), p.renew()); err != nil {
		return err
	}
	return errors.Join(p.prepareHost(p.services()), p.forgetStale())
}

// restoreSettings puts back what somebody else has changed of the host's settings.
func (p *Plane) restoreSettings() error {
	p.applying.Lock()
	defer p.applying.Unlock()
	return p.prepareHost(p.services())
}

func (p *Plane) services() []balancer.Service {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want.services
}

// renew starts the time of what is listened at anew. What a predecessor listened at is left
// to end until Apply says that it is to stay.
func (p *Plane) renew() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var todo plan
	for place, service := range balancer.Places(p.want.services) {
		f := familyOf(place.Addr())
		todo.renew(edit{listen + f.version, placeKey(place), element{chain: serviceName(f, service), lasts: p.want.outlive}})
	}
	return p.write(todo, base())
}

// write carries out a plan that leads to what is wanted already, besides times and counters.
// The table part tells of what the plan is about.
func (p *Plane) write(todo plan, part table) error {
	if todo.empty() {
		return nil
	}
	slices.SortFunc(todo.remove, edit.compare) // those of a set together
	slices.SortFunc(todo.put, edit.compare)
	if p.have != nil {
		err := p.calls.Do(func() error { return p.kernel.apply(todo, part) })
		if err == nil {
			p.wrote = time.Now()
			for _, e := range todo.put {
				p.have.sets[e.set].elements[e.key] = e.element
			}
			return nil
		}
		p.have = nil
		if errors.Is(err, ruleset.ErrStuck) {
			return err
		}
	}
	return p.sync()
}

// forgetStale forgets what was listened at once, when its last connection has ended, and takes back
// what was set for it. With the last of all the table goes.
func (p *Plane) forgetStale() error {
	var gone []netip.AddrPort
	for _, place := range p.stale() {
		open, err := p.connected(p.host.ends, []netip.AddrPort{place})
		if err != nil {
			return err
		}
		if len(open) == 0 {
			gone = append(gone, place)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.applied {
		return nil
	}
	for _, place := range gone {
		delete(p.want.taken, place)
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(p.want.taken)), isLoopback) {
		for link := range p.want.localnet {
			if err := p.host.setLocalnet(link, false); err != nil {
				return err
			}
			delete(p.want.localnet, link)
		}
	}
	return p.sync()
}

// stale are the places where nothing is listened at any more. Before Apply nobody knows.
func (p *Plane) stale() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.applied {
		return nil
	}
	listening := balancer.Places(p.want.services)
	var out []netip.AddrPort
	for place := range p.want.taken {
		_, listened := listening[place]
		_, bridged := p.want.masters[place.Addr()]
		if !listened && (place.Port() != 0 || !bridged) {
			out = append(out, place)
		}
	}
	return out
}

func isLoopback(place netip.AddrPort) bool { return place.Addr().IsLoopback() }

// connected counts connections to places that have not ended, by backend.
func (p *Plane) connected(calls ruleset.Calls, places []netip.AddrPort) (map[netip.AddrPort]int, error) {
	return in(p.host, calls, func() (map[netip.AddrPort]int, error) {
		out := make(map[netip.AddrPort]int)
		all, err := translated(places, func(c conntrack.Connection) bool { return c.Phase != conntrack.Ended })
		for _, c := range all {
			out[c.Server]++
		}
		return out, err
	})
}

// end ends the connections to backends, by service, that are in a phase.
func (p *Plane) end(why string, of map[string][]netip.AddrPort, phase func(conntrack.Phase) bool) {
	for service, backends := range sorted(of) {
		p.mu.Lock()
		at := placesOf(p.want.taken, service)
		p.mu.Unlock()
		ended, err := in(p.host, p.host.ends, func() (int, error) {
			all, err := translated(at, func(c conntrack.Connection) bool { return slices.Contains(backends, c.Server) && phase(c.Phase) })
			return len(all), cmp.Or(err, conntrack.End(all))
		})
		switch {
		case err != nil:
			p.log.Warn("connections to "+why+" backends not ended, clients may wait for an answer", "balancer", service, "backends", backends, "err", err)
		case ended > 0:
			p.log.Info("ended connections to "+why+" backends", "balancer", service, "backends", backends, "connections", ended)
		}
	}
}

// translated are the connections to places that are wanted.
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
