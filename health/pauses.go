package health

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// pauseInterval is how often a Monitor looks for a suspension of this process.
const pauseInterval = 200 * time.Millisecond

// pauseSlack is how late a look must be before it concludes that this process was suspended. A signal may have stopped
// it, or its cgroup frozen it, or its machine was paused or asleep. pauseSlack is well above the delays of a busy
// scheduler, so that load withdraws no healthy endpoint. It is below the shortest BGP hold time (3 s), so that a pause
// is detected before a peer that dropped the session has a new one. A shorter pause only makes the verdict that much
// older than usual.
const pauseSlack = 2 * time.Second

// pauses detects that this process was suspended, which makes its verdicts stale.
//
// A goroutine of its own looks at the clocks, so that no phase of a check hides a pause, and no slow probe, notify or
// log resembles one. A check also looks before it trusts a result, as after a pause it may run before that goroutine.
type pauses struct {
	asleep func() time.Duration // how long the machine has been asleep since it booted

	mu      sync.Mutex
	seen    time.Time     // the last look
	before  time.Duration // asleep at the last look
	running context.Context
	end     context.CancelCauseFunc // of running
}

// newPauses returns pauses that have looked once.
func newPauses(asleep func() time.Duration) *pauses {
	p := &pauses{asleep: asleep, seen: time.Now(), before: asleep()}
	p.running, p.end = context.WithCancelCause(context.Background())
	return p
}

// watch looks at the clocks until stop is called.
func (p *pauses) watch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for wake.Pause(ctx, pauseInterval) {
			p.look()
		}
	})
	return func() { cancel(); watching.Wait() }
}

// look returns a context that ends when this process is found to have been suspended after this call; its cause says
// for how long. Less than pauseSlack does not count. The monotonic clock does not count a machine's sleep, so look adds
// it. A pause is undetectable if the hypervisor also stops the clocks of its guest.
func (p *pauses) look() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, total := time.Now(), p.asleep()
	late := now.Sub(p.seen) - pauseInterval + total - p.before
	p.seen, p.before = now, total
	if late >= pauseSlack {
		p.end(fmt.Errorf("this process did not run for %v: checking again", late.Round(100*time.Millisecond)))
		p.running, p.end = context.WithCancelCause(context.Background())
	}
	return p.running
}
