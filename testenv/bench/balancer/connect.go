package balancer

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/step"
)

// Load opens connections, asks each for the server's name, and waits for its end.
type Load struct {
	// Targets are addresses, host:port, used in turn.
	Targets []string
	// Workers is the number of concurrent connections, each worker making one after the
	// other: a closed loop. A Rate overrides it.
	Workers int
	// Rate is the number of connections begun per second, evenly and regardless of their
	// progress: an open loop. 0 means as many as the workers can make.
	Rate int
	// Count ends the load after that many connections; with 0 only ctx does.
	Count int
	// Timeout bounds a whole connection. Default: 1 s, which is before the first SYN retransmission.
	Timeout time.Duration
	// Keep makes the result contain every connection.
	Keep bool
	// Turns makes a load with a Rate alternate with others.
	Turns *Turns
}

// LoadResult is the result of a load.
type LoadResult struct {
	// Took is the duration, CPU the CPU time of this process.
	Took, CPU time.Duration
	// Good and Failed count connections, By the good ones by server.
	Good, Failed int
	By           map[string]int
	// Median and P99 are the time from dial to the end of the answer of good connections.
	Median, P99 time.Duration
	// Late counts the connections that this process began more than 5 ms too late.
	Late int
	// Failures holds the failed connections in the order of their starts, Kept all
	// connections if Load.Keep is set.
	Failures, Kept []Connection
}

// Connection is one connection of a load.
type Connection struct {
	At      time.Time
	Took    time.Duration
	Server  string // the server that answered
	Failure string // the reason if it failed
}

// tooLate is the largest delay of a connection's start that does not count as late.
const tooLate = 5 * time.Millisecond

// Run opens connections until ctx ends or Count is reached, and waits for the open
// ones. The end of ctx is no error.
func (l Load) Run(ctx context.Context) (any, error) {
	if len(l.Targets) == 0 || l.Rate == 0 && l.Workers < 1 {
		return nil, errors.New("a load needs targets, and workers or a rate")
	}
	if l.Timeout == 0 {
		l.Timeout = 900 * time.Millisecond
	}
	cpu, err := observe.CPUOf(0)
	if err != nil {
		return nil, err
	}
	r, began := new(LoadResult), time.Now()
	var all []Connection
	if l.Rate > 0 {
		all, r.Late = l.open(ctx, began)
	} else {
		all = l.closed(ctx)
	}
	r.Took = time.Since(began)
	now, err := observe.CPUOf(0)
	if err != nil {
		return nil, err
	}
	r.CPU = now - cpu
	r.sum(all, l.Keep)
	return r, nil
}

// closed makes each worker open one connection after the other.
func (l Load) closed(ctx context.Context) (all []Connection) {
	lists := make([][]Connection, l.Workers)
	var workers sync.WaitGroup
	for w := range lists {
		mine := l.Count / l.Workers
		if w < l.Count%l.Workers {
			mine++
		}
		workers.Go(func() {
			for i := w; ctx.Err() == nil && (l.Count == 0 || len(lists[w]) < mine); i++ {
				lists[w] = append(lists[w], l.connect(l.Targets[i%len(l.Targets)]))
			}
		})
	}
	workers.Wait()
	return slices.Concat(lists...)
}

// open begins connections by the clock. If this process stalls, the connections due
// meanwhile begin late, as soon as it runs.
func (l Load) open(ctx context.Context, began time.Time) (all []Connection, late int) {
	var under sync.WaitGroup
	var mu sync.Mutex
	for i := 0; l.Count == 0 || i < l.Count; i++ {
		due := l.due(i, began)
		if ctx.Err() != nil || time.Until(due) > 0 && step.Sleep(ctx, time.Until(due)) != nil {
			break
		}
		if time.Since(due) > tooLate {
			late++
		}
		under.Go(func() {
			c := l.connect(l.Targets[i%len(l.Targets)])
			mu.Lock()
			defer mu.Unlock()
			all = append(all, c)
		})
	}
	under.Wait()
	return all, late
}

// due returns the start time of connection i.
func (l Load) due(i int, began time.Time) time.Time {
	every := time.Second / time.Duration(l.Rate)
	if l.Turns == nil {
		return began.Add(time.Duration(i) * every)
	}
	inTurn := max(1, int(l.Turns.Last/every))
	return l.Turns.begin(i / inTurn).Add(time.Duration(i%inTurn) * every)
}

// connect makes one connection and judges it.
func (l Load) connect(target string) Connection {
	d := net.Dialer{Timeout: l.Timeout, KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1}
	made := Connection{At: time.Now()}
	c, err := d.Dial("tcp", target)
	if err == nil {
		made.Server, err = ask(c, "/", l.Timeout-time.Since(made.At))
		c.Close()
	}
	if err != nil {
		made.Failure = err.Error()
	}
	made.Took = time.Since(made.At)
	return made
}

// sum fills in the totals of the connections.
func (r *LoadResult) sum(all []Connection, keep bool) {
	slices.SortFunc(all, func(a, b Connection) int { return a.At.Compare(b.At) })
	r.By = make(map[string]int)
	var took []time.Duration
	for _, c := range all {
		if c.Failure != "" {
			r.Failures = append(r.Failures, c)
			continue
		}
		r.By[c.Server]++
		took = append(took, c.Took)
	}
	r.Good, r.Failed = len(took), len(r.Failures)
	slices.Sort(took)
	if n := len(took); n > 0 {
		r.Median, r.P99 = took[n/2], took[min(n-1, n*99/100)]
	}
	if keep {
		r.Kept = all
	}
}
