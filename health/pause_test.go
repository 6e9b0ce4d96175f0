package health

import (
	"testing"
	"time"
)

func TestPauses(t *testing.T) {
	s := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for _, tt := range []struct {
		name  string
		late  time.Duration // by the monotonic clock
		slept time.Duration // by the other
		want  time.Duration
	}{
		{"early", -s(1), 0, 0},
		{"on time", 0, 0, 0},
		{"late as under load", s(1.9), 0, 0},
		{"stood still", s(2), 0, s(2)},
		{"for long", s(3600), 0, s(3600)},
		{"the machine slept and woke before its time", -s(0.1), s(60), s(59.9)},
		{"both", s(1), s(1), s(2)},
		{"the clocks were read apart", 0, -s(12), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			total := time.Hour // since boot, before this check began
			p := pauses{asleep: func() time.Duration { return total }, before: total}
			due := time.Unix(1000, 0)
			total += tt.slept
			if got := p.since(due, due.Add(tt.late)); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if got := p.since(due, due); got != 0 {
				t.Errorf("the same sleep counts again: %v", got)
			}
		})
	}
}

func TestDoubt(t *testing.T) {
	for state, want := range map[State]State{Unknown: Unknown, Healthy: Unhealthy, Unhealthy: Unhealthy} {
		j := judge{rise: 2, fall: 2, state: state, passes: 1, failures: 1}.invalidate()
		if j.state != want {
			t.Errorf("%v becomes %v, want %v", state, j.state, want)
		}
		j, _ = j.observe(passed, time.Time{})
		if j.state != want {
			t.Errorf("%v: %v after one pass of two", state, j.state)
		}
		if j, _ = j.observe(passed, time.Time{}); j.state != Healthy {
			t.Errorf("%v: %v after two passes", state, j.state)
		}
	}
}
