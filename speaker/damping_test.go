package speaker

import (
	"math"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"pgregory.net/rapid"
)

func TestDamping(t *testing.T) {
	const minute, day = time.Minute, 24 * time.Hour
	s := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for _, tt := range []struct {
		name     string
		holdDown time.Duration
		gaps     []time.Duration // before each failure
		held     []time.Duration // hold-down after each failure; 0: none
	}{
		{"no hold after the first failure", minute, []time.Duration{0}, []time.Duration{0}},
		{"each further failure doubles the hold, up to the maximum", minute,
			[]time.Duration{0, s(1), s(2), s(3), s(5), s(9), s(17), s(33), s(61), s(61)},
			[]time.Duration{0, s(1), s(2), s(4), s(8), s(16), s(32), minute, minute, minute}},
		{"no hold for one failure a day", minute, []time.Duration{0, day, day, day}, []time.Duration{0, 0, 0, 0}},
		{"just before the quiet period ends", minute, []time.Duration{0, 16*minute - 1}, []time.Duration{0, s(1)}},
		{"a quiet period clears the history", minute, []time.Duration{0, s(1), s(2), 16 * minute, s(1)}, []time.Duration{0, s(1), s(2), 0, s(1)}},
		{"maximum not a power of two", s(3), []time.Duration{0, s(1), s(2), s(3)}, []time.Duration{0, s(1), s(2), s(3)}},
		{"maximum below the first hold", s(1) / 2, []time.Duration{0, s(1), s(1)}, []time.Duration{0, s(1) / 2, s(1) / 2}},
		{"off", 0, []time.Duration{0, s(1), s(1), s(1)}, []time.Duration{0, 0, 0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d damping
			now := time.Unix(1000, 0)
			for i, gap := range tt.gaps {
				now = now.Add(gap)
				d = d.failed(now, tt.holdDown)
				want := time.Time{}
				if tt.held[i] > 0 {
					want = now.Add(tt.held[i])
				}
				if got := d.until(tt.holdDown); !got.Equal(want) {
					t.Errorf("after failure %d held until %v, want %v", i+1, got, want)
				}
			}
		})
	}
}

func TestDampingReason(t *testing.T) {
	var d damping
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for range 3 {
		d = d.failed(at, time.Minute)
		at = at.Add(20 * time.Second)
	}
	const want = "healthy again, held down until 15:04:47 after 3 failures in 40s"
	if got := d.reason(d.until(time.Minute)); got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

// For any flapping, no period has more withdrawals than the doc comment of damping says, and no withdrawal is
// late.
func TestDampingBoundsWithdrawals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holdDown := time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "hold-down"))
		quiet := quietHolds * holdDown
		pause := rapid.OneOf(
			rapid.Just(time.Duration(0)),
			rapid.Just(quiet),
			rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64Range(0, int64(quiet)).Draw(t, "ns")) }),
		)
		var (
			now  = time.Unix(1000, 0)
			at   = position{stage: Withdrawn, since: now}
			damp damping
			gone []time.Time
		)
		for range rapid.IntRange(1, 100).Draw(t, "flaps") {
			in := input{health: health.Healthy, held: damp.until(holdDown)}
			next, again := decide(now, at, in)
			if !again.IsZero() { // held down: return at the earliest time
				now = again
				next, _ = decide(now, at, in)
			}
			if next.stage != Announced {
				t.Fatalf("%s at the end of the hold", next.stage)
			}
			now = now.Add(pause.Draw(t, "up for"))
			in.health = health.Unhealthy
			if at, _ = decide(now, next, in); at.stage != Withdrawn {
				t.Fatalf("%s although unhealthy", at.stage)
			}
			damp = damp.failed(now, holdDown)
			gone = append(gone, now)
		}
		burst := 2 + int(math.Ceil(math.Log2(holdDown.Seconds())))
		for i := range gone {
			for j := i; j < len(gone); j++ {
				window := gone[j].Sub(gone[i])
				if n, most := j-i+1, burst+int(window/holdDown); n > most {
					t.Fatalf("%d withdrawals within %v, want at most %d", n, window, most)
				}
			}
		}
	})
}
