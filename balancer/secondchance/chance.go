package secondchance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// Tunnel is the link that packets are passed on by, [link.Tunnel].
type Tunnel interface {
	// Ensure has the link be there, for a node of that number and address, and returns its index. A new one takes in nothing
	// before Reach.
	Ensure(number uint16, local netip.Addr) (index int, err error)
	// Reach has packets taken in by the link, and others be reached, by their numbers and addresses.
	Reach(self uint16, others map[uint16]netip.Addr, v6 bool) error
	// Greet answers nodes that ask whether this one is there, until stop, and calls heard with the number of each that
	// has answered ask.
	Greet(self uint16, heard func(number uint16)) (ask func(number uint16) error, stop func(), err error)
	Remove() error
}

// kernel are the rules.
type kernel interface {
	// write makes the rules what is wanted now, and renews what ends by itself.
	write(w Wanted, tunnel uint32) error
	counts() (Counts, error)
	// listener is a server that listens at one of the VIPs itself; not valid if there is none.
	listener(vips map[netip.Addr]bool) (netip.AddrPort, error)
	remove() error
	// watch sends to gone, without waiting, when the rules have been removed.
	watch(gone chan<- struct{}) (stop func(), err error)
}

// Chance passes packets on.
type Chance struct {
	log     *slog.Logger
	tunnel  Tunnel
	every   time.Duration // what ends by itself is renewed
	lasts   time.Duration // and lasts if it is not
	able    func(bool)
	changed chan struct{}

	mu     sync.Mutex
	wanted *Wanted // nil: nobody has said
	state  Status
	heard  map[Number]time.Time // when members last answered by the tunnel

	calling sync.Mutex // for what follows, which is Run's, and that of tests
	kernel  kernel
	greeter greeter
	written time.Time // when the kernel was last told
	removed bool      // all that there was
}

// greeter greets by a link, as a node.
type greeter struct {
	tunnel int // its index; 0 if there is none
	self   Number
	ask    func(number uint16) error
	stop   func()
}

// New returns a Chance by a tunnel. It touches nothing until it is told what is wanted. Run calls able when
// this node has become able to pass packets on, or no longer is.
func New(log *slog.Logger, tunnel Tunnel, able func(bool)) *Chance {
	return newChance(log, tunnel, &tables{limits: usual(), lasts: lasts}, lasts, able)
}

func newChance(log *slog.Logger, tunnel Tunnel, k kernel, lasts time.Duration, able func(bool)) *Chance {
	return &Chance{
		log: log, tunnel: tunnel, kernel: k, every: lasts / 3, lasts: lasts, able: able,
		changed: make(chan struct{}, 1), heard: make(map[Number]time.Time),
	}
}

// Status is how passing on goes.
type Status struct {
	// Able says that what others pass on is taken in here, and passed on again.
	Able bool
	// To are the members that packets are passed on to, one after the other, by their names.
	To []string
	// Lacks is what stands in the way of passing on to all others, for people; empty if nothing does.
	Lacks string
	// Err is why nothing is passed on, though it is wanted.
	Err error
	Counts
}

// Counts are packets: passed on to the next member; that nobody was left for, so that this node has answered; and
// that were answered here as there were too many. They begin anew when the tables do.
type Counts struct{ Passed, Answered, Refused uint64 }

// Status is that as it was last brought about.
func (c *Chance) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Set says what is wanted from now on. It does not wait.
func (c *Chance) Set(w Wanted) {
	c.mu.Lock()
	c.wanted = &w
	c.mu.Unlock()
	wake.Up(c.changed)
}

// Run does what is wanted, and goes on renewing it, until ctx ends. Then it removes all.
func (c *Chance) Run(ctx context.Context) {
	c.run(ctx)
	c.Set(Wanted{})
	if err := c.apply(); err != nil {
		c.log.Warn("what has passed packets of others' connections on is left", "err", err)
	}
}

func (c *Chance) run(ctx context.Context) {
	stop, err := c.kernel.watch(c.changed)
	if err != nil {
		c.log.Warn("what somebody else removes of nftables is found only by renewing it", "every", c.every, "err", err)
	} else {
		defer stop()
	}
	var fault ruleset.Fault
	wake.Loop(ctx, c.changed, func() (next time.Time) {
		was := c.Status().Able
		err := c.apply()
		if is := c.Status().Able; is != was {
			c.able(is)
		}
		fault.Log(c.log, err, "packets of others' connections are not passed on", "packets of others' connections are passed on again")
		if err != nil {
			return time.Now().Add(min(c.every, time.Second))
		}
		return time.Now().Add(c.every)
	})
}

// apply brings about what is wanted. Who wants nothing has all removed that there is, once.
func (c *Chance) apply() error {
	c.calling.Lock()
	defer c.calling.Unlock()
	c.mu.Lock()
	wanted := c.wanted
	c.mu.Unlock()
	if wanted == nil {
		return nil
	}
	var is Status
	w := *wanted
	switch none := len(w.VIPs) == 0; {
	case none && !c.removed:
		had := !c.written.IsZero()
		if err := c.remove(); had {
			is.Err = err // else it may never have been possible here
		}
		c.removed = is.Err == nil
	case !none && w.Self.Addr.IsValid(): // else what an earlier Herald has left goes on
		if w.Others, is.Err = c.pass(w); is.Err == nil {
			c.written = time.Now()
			is.Counts, _ = c.kernel.counts() // next time perhaps
		}
		c.removed = false
		// What has failed once goes on in the kernel, for a while.
		is.Able = time.Since(c.written) < c.lasts
		is.To, is.Lacks = names(way(w.Self, w.Others)), w.lacks()
	}
	c.mu.Lock()
	c.state = is
	c.mu.Unlock()
	return is.Err
}

// pass has packets passed on. The kernel knows what to do before any come by the tunnel, and they go to a member that has answered by it.
// It returns the others as they are.
func (c *Chance) pass(w Wanted) ([]Member, error) {
	at, err := c.kernel.listener(w.VIPs)
	if err == nil && at.IsValid() {
		err = fmt.Errorf("a server listens at %s itself, so that the kernel cannot tell its connections from others': have it listen at all addresses, or set bridge: false", at)
	}
	if err != nil {
		return w.Others, err
	}
	index, err := c.tunnel.Ensure(uint16(w.Self.Number), w.Self.Addr)
	if err != nil {
		return w.Others, err
	}
	c.mu.Lock()
	w.Others = slices.Clone(w.Others)
	for i := range w.Others {
		w.Others[i].Silent = !c.hears(w.Others[i].Number)
	}
	c.mu.Unlock()
	if err := c.kernel.write(w, uint32(index)); err != nil {
		if c.written.IsZero() { // nobody guards it
			err = errors.Join(err, c.tunnel.Remove())
		}
		return w.Others, fmt.Errorf("write nftables: %w", err)
	}
	if err := c.tunnel.Reach(uint16(w.Self.Number), w.reachable(), w.ipv6()); err != nil {
		return w.Others, err
	}
	return w.Others, c.greet(index, w)
}

// greet asks all others whether they are there. A filter between members, or a wrong address, would have packets vanish where
// a reset is due.
func (c *Chance) greet(index int, w Wanted) error {
	if c.greeter.tunnel != index || c.greeter.self != w.Self.Number {
		c.silence()
		ask, stop, err := c.tunnel.Greet(uint16(w.Self.Number), c.hear)
		if err != nil {
			return err
		}
		c.greeter = greeter{index, w.Self.Number, ask, stop}
	}
	for number := range w.reachable() {
		if err := c.greeter.ask(number); err != nil {
			c.silence() // and begin anew
			return err
		}
	}
	return nil
}

// hear notes that a member has answered.
func (c *Chance) hear(number uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hears(Number(number)) {
		wake.Up(c.changed)
	}
	c.heard[Number(number)] = time.Now()
}

// hears reports whether a member has answered one of the last questions.
func (c *Chance) hears(n Number) bool {
	at, ok := c.heard[n]
	return ok && time.Since(at) < 3*c.every+c.every/2
}

// silence ends greeting.
func (c *Chance) silence() {
	if c.greeter.tunnel != 0 {
		c.greeter.stop()
	}
	c.greeter = greeter{}
}

// remove removes all that this or another Herald has left.
func (c *Chance) remove() error {
	c.written = time.Time{}
	c.silence()
	return errors.Join(c.tunnel.Remove(), c.kernel.remove())
}
