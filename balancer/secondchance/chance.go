package secondchance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// tunnel is the link that packets are passed on by; [vxlan] implements it.
type tunnel interface {
	// ensure creates the link for a member's number and address and returns its index. A new link receives nothing before reach.
	ensure(number uint16, local netip.Addr) (index int, err error)
	// reach sets the link up and makes others reachable, by number and address.
	reach(self uint16, others map[uint16]netip.Addr, v6 bool) error
	// probe answers probes until stop, and calls received with the number of each member that answers ask.
	probe(self uint16, received func(number uint16)) (ask func(number uint16) error, stop func(), err error)
	removeLink() error
}

// kernel writes the nftables rules; [tables] implements it.
type kernel interface {
	// write makes the rules match w, and renews the elements that expire.
	write(w Wanted, tunnel uint32) error
	counts() (Counts, error)
	// listener returns the address of a server that is bound to one of the VIPs itself; the zero value if there is none.
	listener(vips map[netip.Addr]bool) (netip.AddrPort, error)
	remove() error
	// watch sends to changed, without blocking, when another program changed the rules.
	watch(changed chan<- struct{}) (stop func(), err error)
}

// Chance passes misrouted packets on.
type Chance struct {
	log     *slog.Logger
	tunnel  tunnel
	every   time.Duration // between two renewals
	lasts   time.Duration // lifetime of rules without renewal
	able    func(bool)
	changed chan struct{}

	mu         sync.Mutex
	wanted     *Wanted // nil before the first Set
	state      Status
	lastAnswer map[Number]time.Time // of members, to probes

	keeper  *ruleset.Keeper // its mutex guards the fields below
	kernel  kernel
	prober  prober
	written time.Time // of the last successful write
	removed bool      // nothing is left in the kernel
}

// prober probes members by a link, as a member.
type prober struct {
	link int // its index; 0 if it does not run
	self Number
	ask  func(number uint16) error
	stop func()
}

// New returns a Chance that changes nothing before Set. Run calls able when this node becomes able to pass packets on, or unable.
func New(log *slog.Logger, able func(bool)) *Chance {
	return newChance(log, vxlan{}, &tables{limits: usual(), lasts: lasts}, lasts, able)
}

func newChance(log *slog.Logger, t tunnel, k kernel, lasts time.Duration, able func(bool)) *Chance {
	return &Chance{
		log: log, tunnel: t, kernel: k, every: lasts / 3, lasts: lasts, able: able,
		changed: make(chan struct{}, 1), lastAnswer: make(map[Number]time.Time), keeper: ruleset.NewKeeper(ruleset.AnswerTimeout),
	}
}

// Status is the state of passing on.
type Status struct {
	// Able reports whether this node receives packets from other members and passes them on.
	Able bool
	// To names the members that packets are passed on to, in the order of the ring.
	To []string
	// Lacks says why some members get no packets; empty if all do.
	Lacks string
	// Err is why no packets are passed on although they should be.
	Err error
	Counts
}

// Counts count packets since the tables were made: Passed on to the next member, Answered here because no member was left, and
// Refused, answered here because of the limits.
type Counts struct{ Passed, Answered, Refused uint64 }

// Status returns the state after the last attempt.
func (c *Chance) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Set sets the desired state. It does not block.
func (c *Chance) Set(w Wanted) {
	c.mu.Lock()
	c.wanted = &w
	c.mu.Unlock()
	wake.Up(c.changed)
}

// Run applies and renews the desired state until ctx ends. Then it removes the rules and the link.
func (c *Chance) Run(ctx context.Context) {
	c.run(ctx)
	c.Set(Wanted{})
	if err := c.apply(); err != nil {
		c.log.Warn("cannot remove the second-chance rules", "err", err)
	}
}

func (c *Chance) run(ctx context.Context) {
	c.keeper.Run(ctx, c.log, ruleset.Rounds{
		Every: c.every, Wake: c.changed, Watch: c.kernel.watch,
		Failed: "second chance failed: misrouted packets are not passed on", Recovered: "second chance works again: misrouted packets are passed on",
		Round: func(bool) error {
			before := c.Status().Able
			err := c.apply()
			if able := c.Status().Able; able != before {
				c.able(able)
			}
			return err
		},
	})
}

// apply makes the kernel match the desired state. Without VIPs it removes the rules and the link once.
func (c *Chance) apply() error {
	c.keeper.Lock()
	defer c.keeper.Unlock()
	c.mu.Lock()
	wanted := c.wanted
	c.mu.Unlock()
	if wanted == nil {
		return nil
	}
	var state Status
	w := *wanted
	switch none := len(w.VIPs) == 0; {
	case none && !c.removed:
		had := !c.written.IsZero()
		if err := c.remove(); had {
			state.Err = err // otherwise the kernel may not support the rules at all
		}
		c.removed = state.Err == nil
	case !none && w.Self.Addr.IsValid(): // until the address is known a predecessor's rules stay
		if w.Others, state.Err = c.pass(w); state.Err == nil {
			c.written = time.Now()
			state.Counts, _ = c.kernel.counts() // read again at the next renewal
		}
		c.removed = false
		// After a failure the kernel keeps the rules until they expire.
		state.Able = time.Since(c.written) < c.lasts
		state.To, state.Lacks = names(ring(w.Self, w.Others)), w.lacks()
	}
	c.mu.Lock()
	c.state = state
	c.mu.Unlock()
	return state.Err
}

// pass writes the rules, and sets the link up after them. Packets go only to members that answered a probe by the link. It returns
// the other members with TimedOut set.
func (c *Chance) pass(w Wanted) ([]Member, error) {
	addr, err := c.kernel.listener(w.VIPs)
	if err == nil && addr.IsValid() {
		err = fmt.Errorf("a server listens at %s itself, so the kernel cannot recognise misrouted packets: have it listen at all addresses, or set bridge: false", addr)
	}
	if err != nil {
		return w.Others, err
	}
	index, err := c.tunnel.ensure(uint16(w.Self.Number), w.Self.Addr)
	if err != nil {
		return w.Others, err
	}
	c.mu.Lock()
	w.Others = slices.Clone(w.Others)
	for i := range w.Others {
		w.Others[i].TimedOut = !c.answers(w.Others[i].Number)
	}
	c.mu.Unlock()
	if err := c.kernel.write(w, uint32(index)); err != nil {
		if c.written.IsZero() { // no rules filter the link
			err = errors.Join(err, c.tunnel.removeLink())
		}
		return w.Others, fmt.Errorf("write nftables: %w", err)
	}
	v6 := slices.ContainsFunc(slices.Collect(maps.Keys(w.VIPs)), netip.Addr.Is6)
	if err := c.tunnel.reach(uint16(w.Self.Number), w.reachable(), v6); err != nil {
		return w.Others, err
	}
	return w.Others, c.probe(index, w)
}

// probe probes all other members. Behind a filter or at a wrong address packets would be lost, where the client should get a reset.
func (c *Chance) probe(index int, w Wanted) error {
	if c.prober.link != index || c.prober.self != w.Self.Number {
		c.stopProber()
		ask, stop, err := c.tunnel.probe(uint16(w.Self.Number), c.receive)
		if err != nil {
			return err
		}
		c.prober = prober{index, w.Self.Number, ask, stop}
	}
	for number := range w.reachable() {
		if err := c.prober.ask(number); err != nil {
			c.stopProber() // the next attempt starts a new one
			return err
		}
	}
	return nil
}

// receive notes an answer of a member.
func (c *Chance) receive(number uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answers(Number(number)) {
		wake.Up(c.changed)
	}
	c.lastAnswer[Number(number)] = time.Now()
}

// answers reports whether a member answered one of the last three probes. c.mu is held.
func (c *Chance) answers(n Number) bool {
	last, ok := c.lastAnswer[n]
	return ok && time.Since(last) < 3*c.every+c.every/2
}

func (c *Chance) stopProber() {
	if c.prober.link != 0 {
		c.prober.stop()
	}
	c.prober = prober{}
}

// remove removes the rules and the link, a predecessor's too.
func (c *Chance) remove() error {
	c.written = time.Time{}
	c.stopProber()
	return errors.Join(c.tunnel.removeLink(), c.kernel.remove())
}

// Wanted is the desired state of a node. Without VIPs nothing is passed on.
type Wanted struct {
	Self   Member
	Others []Member // members that are alive, serving or not
	// VIPs are the addresses to pass misrouted packets on for. If the value is true this node is leaving the VIP, and new
	// connections are passed on too. While a VIP is not bound here, all its packets are.
	VIPs map[netip.Addr]bool
	// Links are the links to routers. Packets that arrive by other links, from pods for instance, are not passed on:
	// another member could not answer them directly.
	Links []string
}

// reachable returns the addresses of the members that packets can be passed on to, by number.
func (w Wanted) reachable() map[uint16]netip.Addr {
	out := make(map[uint16]netip.Addr)
	for _, m := range w.Others {
		if m.reachableFrom(w.Self) {
			out[uint16(m.Number)] = m.Addr
		}
	}
	return out
}

// lacks says why packets cannot be passed on to some members; empty if they can.
func (w Wanted) lacks() string {
	if len(w.VIPs) == 0 {
		return ""
	}
	var out, timedOut []string
	if len(w.Links) == 0 {
		out = append(out, "no route leads to a router: its link tells which packets come from routers")
	}
	if len(w.Others) >= maxMembers {
		out = append(out, fmt.Sprintf("%d members exceed the limit of %d that may pass packets on: set bridge: false on some", len(w.Others)+1, maxMembers))
	}
	for _, m := range w.Others {
		switch {
		case m.Number == w.Self.Number:
			out = append(out, m.Name+" has the same number as this node: give one of them another nodeName")
		case !m.reachableFrom(w.Self):
			out = append(out, m.Name+" is at "+m.Addr.String()+", of another family than this node's address")
		case m.TimedOut:
			timedOut = append(timedOut, m.Name)
		}
	}
	if slices.Sort(timedOut); len(timedOut) > 0 {
		out = append(out, fmt.Sprintf("no answer by the tunnel from %s: let UDP port %d and fragments through between the members, and all by the link %s", strings.Join(timedOut, ", "), link.TunnelPort, link.TunnelName))
	}
	return strings.Join(out, "; ")
}
