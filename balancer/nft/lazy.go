package nft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// lazily is the part of a Plane that Lazy needs.
type lazily interface {
	balancer.Plane
	Run(ctx context.Context)
	Bridge() *Bridge
}

// Lazy is a Plane that is made when something is to be carried: most nodes have neither balancers
// nor, before others are known, a bridge.
type Lazy struct {
	open func() (lazily, error)
	made chan struct{} // closed once there is a plane

	mu     sync.Mutex
	plane  lazily    // nil until then; never changed after
	failed error     // why it could not be made, and
	again  time.Time // when that is to be tried again
	closed bool
}

// openRetry is how long after a failure the plane is tried to be made again: a kernel that lacks
// something lacks it for long.
const openRetry = 5 * time.Second

var _ balancer.Plane = (*Lazy)(nil)

// NewLazy returns a plane that becomes that of [New] when it is needed.
func NewLazy(log *slog.Logger, o Options) *Lazy {
	return &Lazy{made: make(chan struct{}), open: func() (lazily, error) {
		plane, err := New(log, o)
		if err != nil {
			return nil, err // no plane, rather than one that is nil
		}
		return plane, nil
	}}
}

// require returns the plane and makes it if there is none.
func (l *Lazy) require() (lazily, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.plane != nil:
		return l.plane, nil
	case l.closed:
		return nil, errors.New("herald is stopping")
	case l.failed != nil && time.Now().Before(l.again):
		return nil, l.failed
	}
	plane, err := l.open()
	if err != nil {
		l.failed, l.again = err, time.Now().Add(openRetry)
		return nil, err
	}
	l.plane = plane
	close(l.made)
	return plane, nil
}

// current returns the plane, nil if there is none. It does not wait for one that is being made, as
// a withdrawal opens the bridge.
func (l *Lazy) current() lazily {
	select {
	case <-l.made:
		return l.plane
	default:
		return nil
	}
}

// Apply implements [balancer.Plane].
func (l *Lazy) Apply(services []balancer.Service) error {
	if len(services) == 0 && l.current() == nil {
		return nil
	}
	plane, err := l.require()
	if err != nil {
		return fmt.Errorf("%w; a balancer with mode: proxy does without", err)
	}
	return plane.Apply(services)
}

// Counts implements [balancer.Plane].
func (l *Lazy) Counts() ([]balancer.Count, error) {
	if plane := l.current(); plane != nil {
		return plane.Counts()
	}
	return nil, nil
}

// Run does the plane's background work, once there is one, until ctx is done.
func (l *Lazy) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-l.made:
		l.plane.Run(ctx)
	}
}

// Close implements [balancer.Plane].
func (l *Lazy) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	if plane := l.current(); plane != nil {
		return plane.Close()
	}
	return nil
}

// Bridge is the plane's.
func (l *Lazy) Bridge() LazyBridge { return LazyBridge{l} }

// LazyBridge is the [Bridge] of a plane that is made when a member is known to send connections on to.
type LazyBridge struct{ lazy *Lazy }

// Prepare is [Bridge.Prepare].
func (b LazyBridge) Prepare(targets map[netip.Addr][]netip.Addr) error {
	if len(targets) == 0 && b.lazy.current() == nil {
		return nil
	}
	plane, err := b.lazy.require()
	if err != nil {
		return err
	}
	return plane.Bridge().Prepare(targets)
}

// Open is [Bridge.Open].
func (b LazyBridge) Open(limit time.Duration, vips ...netip.Addr) {
	if plane := b.lazy.current(); plane != nil {
		plane.Bridge().Open(limit, vips...)
	}
}

// Close is [Bridge.Close].
func (b LazyBridge) Close(vips ...netip.Addr) error {
	if plane := b.lazy.current(); plane != nil {
		return plane.Bridge().Close(vips...)
	}
	return nil
}

// Received is [Bridge.Received].
func (b LazyBridge) Received(vip netip.Addr) (uint64, error) {
	if plane := b.lazy.current(); plane != nil {
		return plane.Bridge().Received(vip)
	}
	return 0, nil
}
