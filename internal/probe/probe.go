// Package probe measures how long a TCP service is out of reach, as a client sees it: it opens a new connection to one
// address every few milliseconds and turns the failed attempts into outages.
//
// A prober that shares a machine with its target is itself starved at times. It must never report that as an outage of
// the target, so it watches its own schedule. It counts the ticks that it missed (Result.Late) and does not make up for
// them. Each attempt carries its scheduling delay. A timeout while the prober did not run is inconclusive (Stalled).
package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Defaults for zero fields of Prober.
const (
	DefaultInterval = 5 * time.Millisecond
	DefaultTimeout  = 100 * time.Millisecond
	DefaultKeep     = 1 << 16
)

// stallSlack is how late a tick may wake up before the time counts as a stall:
// ordinary scheduling on a busy machine stays below it.
const stallSlack = 5 * time.Millisecond

// Prober probes one TCP address. Set the fields, then call Run once; a Prober
// must not be copied after that. The tags are for the flags of herald probe.
type Prober struct {
	// Target is host:port. A host name is resolved once, when Run starts, so
	// that the name server is not measured along with the target.
	Target string `arg:"" placeholder:"HOST:PORT" help:"The address to connect to."`
	// Interval is the time between the starts of two attempts. Default: DefaultInterval.
	Interval time.Duration `default:"5ms" help:"Time between two attempts."`
	// Timeout bounds one attempt, the answer to Identify included. Default:
	// DefaultTimeout. Below one second it also rules out a retransmitted SYN.
	Timeout time.Duration `default:"100ms" help:"The timeout of an attempt."`
	// Duration limits Run; zero means until its context ends.
	Duration time.Duration `default:"0s" help:"How long to probe; 0 means until Ctrl-C."`
	// Source is the local address to connect from. Default: the kernel's choice.
	Source netip.Addr `help:"Local address to connect from."`
	// Identify asks each connection, by an HTTP GET of /, which server answered: the name in the X-Served-By header. An
	// attempt then succeeds only if an HTTP response comes back, of any status.
	Identify bool `help:"GET / on each connection and count the answers by their X-Served-By header."`
	// TLS, if set, makes every attempt complete a TLS handshake too.
	TLS *tls.Config `kong:"-"`
	// Keep is how many of the newest attempts Result.Attempts holds. Default:
	// DefaultKeep; negative: none. All other figures cover the whole run.
	Keep int `kong:"-"`
	// Dial opens a connection and returns no later than ctx ends. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `kong:"-"`
	// OnEvent, if set, hears of every attempt, in the order of their starts. It
	// is called by Run and holds up the next attempts while it runs.
	OnEvent func(Event) `kong:"-"`

	address string // of Target, a literal ip:port
	mu      sync.Mutex
	rec     *recorder
}

// Event is the end of an attempt.
type Event struct {
	Attempt Attempt
	// Outage is set if the attempt began an outage (then Ongoing is true) or ended one.
	Outage *Outage
}

// Run probes for Duration or until ctx ends, waits at most Timeout for the attempts under way, and returns the result. The end of ctx is
// not an error; an unusable target or source is.
func (p *Prober) Run(ctx context.Context) (*Result, error) {
	if p.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Duration)
		defer cancel()
	}
	r, err := p.start(ctx)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for stop, probing := ctx.Done(), true; probing || len(r.pending) > 0; {
		select {
		case <-stop:
			stop, probing = nil, false
		case a := <-r.ended:
			r.watch()
			r.finish(a)
		case <-timer.C:
			r.watch()
			r.tick(probing)
			timer.Reset(r.wake - time.Since(r.began))
		}
	}
	r.update(func(rec *recorder) { rec.Elapsed = time.Since(r.began) })
	return r.rec.result(true), nil
}

// Snapshot returns the result so far, without Attempts. It may be called at
// any time from any goroutine; before Run it returns an empty Result.
func (p *Prober) Snapshot() *Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rec == nil {
		return &Result{Target: p.Target}
	}
	return p.rec.result(false)
}

// run is one Run of a Prober. Only the goroutine of Run touches its fields.
type run struct {
	*Prober
	began   time.Time
	due     time.Duration // when the next tick is, since began
	wake    time.Duration // when Run means to wake up next: by then or earlier if it runs at all
	limit   int           // of attempts under way or waiting for an earlier one
	pending []*pending    // from the oldest attempt that has not ended
	ended   chan *pending
	lost    time.Duration // time the prober was not running, summed up
	watched time.Duration // up to here lost is known
}

// pending is an attempt that was launched and has not been recorded.
type pending struct {
	Attempt
	lost  time.Duration // run.lost when it was launched
	ended bool
}

// start fills in the defaults and makes everything ready for the first tick.
func (p *Prober) start(ctx context.Context) (*run, error) {
	p.Interval, p.Timeout = cmp.Or(p.Interval, DefaultInterval), cmp.Or(p.Timeout, DefaultTimeout)
	if p.Interval < 0 || p.Timeout < 0 {
		return nil, fmt.Errorf("probe %s: interval %v and timeout %v must be positive", p.Target, p.Interval, p.Timeout)
	}
	host, port, err := net.SplitHostPort(p.Target)
	if err != nil {
		return nil, fmt.Errorf("probe: want host:port: %w", err)
	}
	if p.address, err = resolve(ctx, host, port, p.Source); err != nil {
		return nil, fmt.Errorf("probe %s: %w", p.Target, err)
	}
	if p.TLS != nil && p.TLS.ServerName == "" {
		p.TLS = p.TLS.Clone()
		p.TLS.ServerName = host
	}
	if p.Dial == nil {
		d := &net.Dialer{KeepAlive: -1}
		if p.Source.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Source, 0))
		}
		p.Dial = d.DialContext
	}
	// Attempts end within timeout, so a longer queue means that this process
	// does not get to run: more attempts would only make it worse.
	limit := 2*int(p.Timeout/p.Interval) + 16

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rec != nil {
		return nil, fmt.Errorf("probe %s: Run was called twice", p.Target)
	}
	began := time.Now()
	p.rec = &recorder{keep: max(cmp.Or(p.Keep, DefaultKeep), 0), Result: Result{
		Target: p.Target, Began: began, Interval: p.Interval, Timeout: p.Timeout,
		Outcomes: make(map[Outcome]int), Servers: make(map[string]int),
	}}
	return &run{Prober: p, began: began, limit: limit, ended: make(chan *pending, limit)}, nil
}

// resolve returns an address literal of the same family as source.
func resolve(ctx context.Context, host, port string, source netip.Addr) (string, error) {
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return "", err
	}
	if number == 0 {
		return "", errors.New("want a port other than 0")
	}
	network := "ip"
	switch {
	case source.Is4():
		network = "ip4"
	case source.Is6():
		network = "ip6"
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, network, host)
	if err != nil {
		return "", err
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(number)).String(), nil
}

// watch adds to lost the time since Run should have woken up, if that is more
// than ordinary scheduling explains: nothing of this process ran meanwhile.
func (r *run) watch() {
	now := time.Since(r.began)
	from := max(r.wake, r.watched)
	if now-from <= stallSlack {
		return
	}
	r.lost += now - from
	r.watched = now
}

// tick starts the attempt that is due, if one is and probing goes on, and plans the next. Ticks that passed unnoticed
// are counted and dropped: bunched attempts would measure nothing that the first of them does not.
func (r *run) tick(probing bool) {
	now := time.Since(r.began)
	if now >= r.due {
		due := r.due
		late := int((now - due) / r.Interval)
		r.due += time.Duration(late+1) * r.Interval
		if probing {
			if len(r.pending) < r.limit {
				r.launch(due)
			} else {
				late++
			}
			r.update(func(rec *recorder) { rec.Late += late; rec.Elapsed = now })
		}
	}
	// A stall is seen only as a missed wake-up, so have several in each timeout.
	r.wake = min(r.due, now+r.Timeout/10)
}

// launch starts one attempt in a goroutine that ends within Timeout; Run waits for its ending.
func (r *run) launch(due time.Duration) {
	a := &pending{lost: r.lost}
	r.pending = append(r.pending, a)
	go func() {
		begin := time.Now()
		a.Outcome, a.Server = r.attempt()
		a.Latency = time.Since(begin)
		a.Start = begin.Sub(r.began)
		a.Delay = a.Start - due
		r.ended <- a
	}()
}

// finish takes an attempt that has ended, and records and reports those up to the oldest that has not.
func (r *run) finish(a *pending) {
	// The kernel's answer (refused, reset) counts however late it is read. Silence
	// proves something only if the prober was running.
	unheard := max(r.lost-a.lost, a.Latency-r.Timeout)
	if a.Outcome == Timeout && unheard > r.Timeout/4 {
		a.Outcome = Stalled
	}
	a.ended = true
	for len(r.pending) > 0 && r.pending[0].ended {
		var e Event
		r.update(func(rec *recorder) { e = rec.account(r.pending[0].Attempt) })
		r.pending = r.pending[1:]
		if r.OnEvent != nil {
			r.OnEvent(e)
		}
	}
}

// update changes the recorder under the lock that Snapshot takes.
func (r *run) update(change func(*recorder)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.rec)
}
