package election

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// offering tells this member's offer, takes those of the others, and tells the observer
// of them. Nothing of it waits for the leases.
type offering struct {
	node *node
	wake chan struct{}       // holds a token if there is something to be sent or found sooner than it was
	seek chan netip.AddrPort // where to ask who else is there
	some chan struct{}       // holds a token if there may be something that the observer does not know

	mu      sync.Mutex // held until memberlist is there
	catalog *catalog
}

func newOffering(n *node) *offering {
	return &offering{node: n, wake: make(chan struct{}, 1), seek: make(chan netip.AddrPort, 1), some: make(chan struct{}, 1)}
}

// open makes the catalog.
func (o *offering) open(c *Config, run uint64) {
	o.catalog = newCatalog(c.Self, run, c.Lease, rand.Uint64)
}

// run sends what is due, and finds who is silent.
func (o *offering) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-timer.C:
		}
		due := o.pass()
		if timer.Stop(); !due.IsZero() {
			timer.Reset(time.Until(due))
		}
	}
}

// pass sends and finds what is due now, and returns when something is next.
func (o *offering) pass() (due time.Time) {
	audience := o.node.roster.listeners()
	joined, left := o.node.roster.turnout()

	o.mu.Lock()
	now := time.Now()
	o.catalog.keep(func(name string) bool { return o.node.roster.address(name).IsValid() })
	for _, name := range left {
		o.catalog.gone(name)
	}
	o.catalog.expire(now)
	m, ok := o.catalog.round(now, len(audience))
	if !ok && len(joined) > 0 && o.catalog.own != nil {
		m, ok, audience = o.catalog.message(), true, joined
	}
	due = o.catalog.due()
	o.mu.Unlock()

	signal(o.some)
	if ok {
		o.send(m, audience...)
	}
	return due
}

// send sends a message to members.
func (o *offering) send(m offerMessage, to ...listener) {
	b, omitted := m.append(nil)
	if omitted > 0 {
		o.node.journal.warn(fmt.Sprintf(
			"the others are not told of all checks of this node: %d of %d have no room, or names of more than %d bytes: give them shorter names",
			omitted, len(m.Offer.Checks), maxCheckName))
	}
	for _, l := range to {
		if err := o.node.list.SendToAddress(memberlist.Address{Addr: l.at.String(), Name: l.name}, b); err != nil {
			o.node.gate.unsent.Add(1)
			o.node.journal.warn("cannot send offers: " + err.Error())
		}
	}
}

// offer makes this what the member offers.
func (o *offering) offer(own Offer) {
	o.mu.Lock()
	changed := o.catalog.offer(time.Now(), own)
	o.mu.Unlock()
	if changed {
		signal(o.wake)
		signal(o.some)
	}
}

// follow takes another length of leases.
func (o *offering) follow(lease time.Duration) {
	o.mu.Lock()
	o.catalog.follow(time.Now(), lease)
	o.mu.Unlock()
	signal(o.wake)
}

// receive takes a message about offers.
func (o *offering) receive(b []byte) {
	m, err := parseOffer(b)
	if err != nil {
		o.node.gate.malformed.Add(1)
		o.node.journal.warn(err.Error())
		return
	}
	at := o.node.roster.address(m.From)
	o.mu.Lock()
	if !at.IsValid() {
		o.catalog.ignored++
		o.mu.Unlock()
		return
	}
	is := o.catalog.receive(time.Now(), m)
	o.mu.Unlock()
	if is.changed {
		signal(o.some)
		signal(o.wake) // for the others to know, and for its silence, which may come sooner than anything else
	}
	if is.reply != nil {
		o.send(*is.reply, listener{m.From, at})
	}
	for _, name := range is.seek {
		there := at // who hears it knows where it is
		if known := o.node.roster.find(name); known.IsValid() {
			there = known
		}
		select {
		case o.seek <- there:
		default: // there is time
		}
	}
}

// search asks members by a connection who is there, which makes each known to the other,
// as gossip reaches nearly everybody soon and somebody late.
func (o *offering) search(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-o.seek:
			_, _ = o.node.list.Join([]string{at.String()}) // else once more
		}
	}
}

// ignored counts messages that are old, repeated or from no member.
func (o *offering) ignored() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.catalog.ignored
}

// farewell tells the others that no more is to come.
func (o *offering) farewell() {
	audience := o.node.roster.listeners()
	o.mu.Lock()
	m, ok := o.catalog.farewell()
	o.mu.Unlock()
	if ok {
		o.send(m, audience...)
	}
}

// list is what all members offer, this one included.
func (o *offering) list() []Offered {
	o.mu.Lock()
	all := o.catalog.list(time.Now())
	o.mu.Unlock()
	for i := range all {
		all[i].Address = o.node.roster.address(all[i].Member)
	}
	return slices.DeleteFunc(all, func(of Offered) bool { return of.Address == netip.AddrPort{} })
}

// tell tells the observer of each change, until ctx ends.
func (o *offering) tell(ctx context.Context) {
	var told []Offered
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.some:
		}
		if all := o.list(); !slices.EqualFunc(all, told, Offered.same) {
			told = all
			o.node.observe.Offered(slices.Clone(all))
		}
	}
}

// same reports whether two say the same, whenever each was heard.
func (o Offered) same(other Offered) bool {
	return o.Member == other.Member && o.Address == other.Address && o.Self == other.Self &&
		o.Silent == other.Silent && o.Left == other.Left && o.Offer.equal(other.Offer)
}

// signal leaves a token, if there is none yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
