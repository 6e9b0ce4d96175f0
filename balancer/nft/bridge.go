package nft

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// Bridge sends new TCP connections to a VIP, at any port, on to healthy masters. They go to a
// master's own address, never to a VIP, so that no second bridge can take them: there is one hop.
// What goes on by it is masqueraded. Its methods may be called from any goroutine.
type Bridge struct {
	plane *Plane
	wake  chan struct{} // holds one while something is asked for

	mu    sync.Mutex
	asked map[netip.Addr]time.Time // to be opened until then

	until map[netip.Addr]time.Time // what is open, until then; by plane.mu
}

func newBridge(p *Plane) *Bridge {
	return &Bridge{plane: p, wake: make(chan struct{}, 1), asked: make(map[netip.Addr]time.Time), until: make(map[netip.Addr]time.Time)}
}

// Prepare says to which addresses new connections would be sent on, by VIP: the own ones, of
// the same family, of masters that are healthy now. It forwards nothing that is not open;
// what is open is spread over the new ones at once. A VIP that is not named is closed, and so is one
// of a family that this host cannot forward. After an error Prepare is to be called again.
//
// Masters belong to the Bridge from then on.
func (b *Bridge) Prepare(masters map[netip.Addr][]netip.Addr) error {
	p := b.plane
	p.applying.Lock()
	defer p.applying.Unlock()
	if len(masters) == 0 && !p.isOpen() {
		return nil
	}
	if err := p.open(); err != nil {
		return err
	}
	var unforwarded error
	for _, vip := range slices.SortedFunc(maps.Keys(masters), netip.Addr.Compare) {
		if err := p.forward(vip.Is4()); err != nil {
			delete(masters, vip) // a connection is refused sooner than it is found lost
			unforwarded = cmp.Or(unforwarded, err)
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(b.until, func(vip netip.Addr, _ time.Time) bool { return len(masters[vip]) == 0 })
	p.want.masters = masters
	if err := p.sync(); err != nil {
		return fmt.Errorf("prepare bridge: %w", err)
	}
	return unforwarded
}

// Open sends new connections to vips on from now on, for at most so long: the kernel ends
// that by itself. Opening again sets the time anew. It never blocks: Plane.Run opens, and logs why it
// could not. A VIP for which no masters are prepared stays closed.
func (b *Bridge) Open(limit time.Duration, vips ...netip.Addr) {
	until := time.Now().Add(limit)
	b.mu.Lock()
	for _, vip := range vips {
		b.asked[vip] = until
	}
	b.mu.Unlock()
	wake.Up(b.wake)
}

// Close ends sending on new connections to vips. Those that were sent on go on. It is to be
// called before a VIP is bound or announced here again.
func (b *Bridge) Close(vips ...netip.Addr) error {
	b.mu.Lock()
	for _, vip := range vips {
		delete(b.asked, vip)
	}
	b.mu.Unlock()
	if !b.plane.isOpen() {
		return nil
	}
	b.plane.mu.Lock() // an opening that is under way ends before
	defer b.plane.mu.Unlock()
	for _, vip := range vips {
		delete(b.until, vip)
	}
	if err := b.plane.sync(); err != nil {
		return fmt.Errorf("close bridge: %w", err)
	}
	return nil
}

// Received is how many new connections to vip were sent on since it was opened last from closed.
func (b *Bridge) Received(vip netip.Addr) (uint64, error) {
	if !b.plane.isOpen() {
		return 0, nil
	}
	b.plane.mu.Lock()
	defer b.plane.mu.Unlock()
	counted, err := b.plane.counted()
	if err != nil {
		return 0, fmt.Errorf("count what is bridged: %w", err)
	}
	return counted[bridgeChain+dashed(vip)].packets(), nil
}

// run opens what is asked for, until ctx ends.
func (b *Bridge) run(ctx context.Context) {
	wake.Loop(ctx, b.wake, func() (never time.Time) {
		if err := b.open(); err != nil {
			b.plane.log.Error("bridge not opened", "err", err)
		}
		return never
	})
}

// open opens what is asked for.
func (b *Bridge) open() error {
	p := b.plane
	p.mu.Lock()
	defer p.mu.Unlock()
	b.mu.Lock()
	asked := b.asked
	b.asked = make(map[netip.Addr]time.Time)
	b.mu.Unlock()
	if len(asked) == 0 {
		return nil
	}
	p.want.taken = maps.Clone(p.want.taken)
	var todo plan
	now := time.Now()
	for vip, until := range asked {
		f := familyOf(vip)
		lasts := until.Sub(now).Truncate(time.Millisecond)
		if len(p.want.masters[vip]) == 0 || lasts <= 0 {
			continue
		}
		if !b.until[vip].After(now) {
			todo.fill = append(todo.fill, bridgeChain+dashed(vip)) // counts anew
		}
		b.until[vip] = until
		todo.renew(edit{bridge + f.version, addrKey(vip), element{chain: bridgeChain + dashed(vip), lasts: lasts}})
		place := netip.AddrPortFrom(vip, 0)
		if _, ok := p.want.taken[place]; !ok {
			p.want.taken[place] = ""
			todo.put = append(todo.put, edit{taken + f.version, placeKey(place), element{}})
		}
	}
	return p.write(todo, wanted{masters: p.want.masters, brief: p.want.brief}.table())
}

// slack is by how much the kernel's idea of when an element ends and Herald's may differ.
const slack = 100 * time.Millisecond

// left is how long what is open stays so. Whether something is open still that has just about
// ended, the found table tells.
func (b *Bridge) left(found table) map[netip.Addr]time.Duration {
	out := make(map[netip.Addr]time.Duration)
	for vip, until := range b.until {
		left := time.Until(until)
		_, there := found.sets[bridge+familyOf(vip).version].elements[addrKey(vip)]
		switch {
		case left > slack, there && left > -slack:
			out[vip] = max(left, slack)
		case left < -slack:
			delete(b.until, vip)
		}
	}
	return out
}
