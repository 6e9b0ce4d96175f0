// Package witness observes whether a machine starves its processes of processor time.
// So a test that depends on timing can distinguish a fault of Herald from one of the
// machine.
package witness

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// Limits beyond which processes are starved.
const (
	mostLate     = 150 * time.Millisecond // delay of a tick
	mostStolen   = 0.05                   // share of the processors' time taken by other machines on the host
	mostPressure = 0.8                    // share of the time that some process waited for a processor
)

// Witness polls the machine.
type Witness struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	looks []look
}

// look is one sample: counters, and the witness's own delay.
type look struct {
	at           time.Time
	late         time.Duration
	stolen, time float64 // of the processors, in ticks
	waited       time.Duration
}

// Start starts a witness, which the caller closes.
func Start() *Witness {
	const interval = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	w := &Witness{cancel: cancel, done: make(chan struct{})}
	w.add(0)
	go func() {
		defer close(w.done)
		last := time.Now()
		for wake.Pause(ctx, interval) {
			now := time.Now()
			w.add(now.Sub(last) - interval)
			last = now
		}
	}()
	return w
}

// Close ends the witness.
func (w *Witness) Close() {
	w.cancel()
	<-w.done
}

func (w *Witness) add(late time.Duration) {
	l := look{at: time.Now(), late: late}
	if stat, err := os.ReadFile("/proc/stat"); err == nil {
		l.stolen, l.time = processors(string(stat))
	}
	if text, err := os.ReadFile("/proc/pressure/cpu"); err == nil { // some kernels have none
		l.waited = pressure(string(text))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = append(w.looks, l)
}

// Starved describes how the machine has starved its processes since a moment; it is
// empty if it has not.
func (w *Witness) Starved(since time.Time) string {
	w.add(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if why := stolen(w.looks, since); why != "" {
		return why
	}
	return waited(w.looks, since)
}

// Stolen is Starved for a test that loads the processors itself: it reports only the
// time taken by other machines on the host.
func (w *Witness) Stolen(since time.Time) string {
	w.add(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	return stolen(w.looks, since)
}

// from returns the looks since a moment, and the last before it.
func from(looks []look, since time.Time) []look {
	for i := len(looks) - 1; i >= 0; i-- {
		if looks[i].at.Before(since) {
			return looks[i:]
		}
	}
	return looks
}

func stolen(looks []look, since time.Time) string {
	looks = from(looks, since)
	if len(looks) < 2 {
		return ""
	}
	first, last := looks[0], looks[len(looks)-1]
	if share := (last.stolen - first.stolen) / max(1, last.time-first.time); share > mostStolen {
		return fmt.Sprintf("%.0f %% of the processors' time was stolen", 100*share)
	}
	return ""
}

func waited(looks []look, since time.Time) string {
	looks = from(looks, since)
	for _, l := range looks[1:] {
		if l.late > mostLate {
			return fmt.Sprintf("a tick was %v late", l.late.Round(time.Millisecond))
		}
	}
	first, last := looks[0], looks[len(looks)-1]
	if share := float64(last.waited-first.waited) / max(1, float64(last.at.Sub(first.at))); share > mostPressure {
		return fmt.Sprintf("for %.0f %% of the time a process waited for a processor", 100*share)
	}
	return ""
}

// processors reads the first line of /proc/stat: user, nice, system, idle, iowait, irq,
// softirq and steal.
func processors(stat string) (stolen, total float64) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 8 { // cpu, or a column already contained in user and nice
			continue
		}
		if total += n; i == 8 {
			stolen = n
		}
	}
	return stolen, total
}

// pressure reads the total of the line "some" of /proc/pressure/cpu.
func pressure(text string) time.Duration {
	line, _, _ := strings.Cut(text, "\n")
	_, total, _ := strings.Cut(line, "total=")
	n, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}
