package health

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// letters write a history of outcomes in one word.
var letters = map[rune]kind{'p': passed, 'o': overloaded, 'f': failed, 'c': cut, 'r': refused}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name       string
		rise, fall int
		outcomes   string
		states     string // after each outcome: u(nknown), H(ealthy), x (unhealthy)
		causes     string // the index of each change's first evidence
	}{
		{"rise", 2, 2, "pp", "uH", "0"},
		{"rise of one", 1, 2, "p", "H", "0"},
		{"rise counts passes in a row", 3, 3, "ppfppp", "uuuuuH", "3"},
		{"fall", 2, 2, "ppff", "uHHx", "02"},
		{"fall counts failures in a row", 1, 3, "pffpfff", "HHHHHHx", "04"},
		{"fall of one", 1, 1, "pf", "Hx", "01"},
		{"unknown falls too", 2, 2, "ff", "ux", "0"},
		{"timeouts and cuts count alike", 1, 3, "pfcf", "HHHx", "01"},
		{"refused is proof", 2, 5, "ppr", "uHx", "02"},
		{"refused is proof of the unknown", 2, 5, "r", "x", "0"},
		{"refused ends a run: its evidence began before", 1, 3, "pfr", "HHx", "01"},
		{"return needs the whole rise", 3, 1, "pppfpprppp", "uuHxxxxxxH", "037"},
		{"overload keeps the healthy", 1, 2, "poooo", "HHHHH", "0"},
		{"overload ends a run of failures", 1, 2, "pfofof", "HHHHHH", "0"},
		{"overload never makes healthy", 2, 2, "ooooo", "uuuuu", ""},
		{"overload does not heal", 1, 1, "pfooo", "Hxxxx", "01"},
		{"overload is neutral to a rise", 2, 2, "pop", "uuH", "0"},
		{"no second change", 1, 1, "rrrf", "xxxx", "0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			epoch := time.Unix(0, 0)
			j := judge{rise: tt.rise, fall: tt.fall}
			var states, causes strings.Builder
			for i, l := range tt.outcomes {
				var changed bool
				j, changed = j.observe(letters[l], epoch.Add(time.Duration(i)))
				states.WriteByte("uHx"[j.state])
				if changed {
					fmt.Fprint(&causes, j.began.Sub(epoch).Nanoseconds())
				}
			}
			if diff := cmp.Diff(tt.states, states.String()); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.causes, causes.String()); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}

// A check becomes healthy only by rise passes without a failure among them. It is never healthy
// after a refusal, or after fall failures without a sign of life among them.
func TestJudgeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := judge{rise: rapid.IntRange(1, 4).Draw(t, "rise"), fall: rapid.IntRange(1, 4).Draw(t, "fall")}
		passes, failures := 0, 0
		for i, k := range rapid.SliceOf(rapid.SampledFrom([]kind{passed, overloaded, failed, cut, refused})).Draw(t, "outcomes") {
			before := j.state
			var changed bool
			j, changed = j.observe(k, time.Unix(int64(i), 0))
			switch k {
			case passed:
				passes, failures = passes+1, 0
			case overloaded:
				failures = 0
			default:
				passes, failures = 0, failures+1
			}
			switch {
			case changed != (before != j.state):
				t.Fatalf("changed is %v from %v to %v", changed, before, j.state)
			case changed && j.state == Healthy && (k != passed || passes < j.rise):
				t.Fatalf("healthy after %d passes of %d", passes, j.rise)
			case j.state == Healthy && (k == refused || failures >= j.fall):
				t.Fatalf("still healthy after %d failures of %d, refused: %v", failures, j.fall, k == refused)
			case changed && j.state == Unknown:
				t.Fatal("back to unknown")
			}
		}
	})
}

func TestJudgeReason(t *testing.T) {
	for _, tt := range []struct {
		name     string
		state    State
		outcomes string
		want     string
	}{
		{"rising", Unknown, "p", "passed 1 of 2: p"},
		{"healthy", Unknown, "pp", "p"},
		{"healthy but failing", Healthy, "f", "failed 1 of 2: f"},
		{"fallen", Healthy, "fc", "c"},
		{"recovering", Healthy, "ffp", "f"},
		{"recovered", Healthy, "ffpp", "p"},
		{"unknown and failing", Unknown, "f", "failed 1 of 2: f"},
		{"overloaded", Healthy, "o", "o"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j, reason := judge{rise: 2, fall: 2, state: tt.state}, ""
			for _, l := range tt.outcomes {
				out := outcome{kind: letters[l], reason: string(l)}
				j, _ = j.observe(out.kind, time.Time{})
				reason = j.reason(out, reason)
			}
			if reason != tt.want {
				t.Errorf("reason is %q, want %q", reason, tt.want)
			}
		})
	}
}

func TestFastReprobe(t *testing.T) {
	var (
		h     fastReprobe
		total time.Duration
		n     int
	)
	for pause, ok := h.step(); ok; pause, ok = h.step() {
		if n == 0 && pause != 0 {
			t.Errorf("the first fast probe waits %v", pause)
		}
		total += pause
		n++
	}
	if n != maxReprobes || total != 31*time.Millisecond {
		t.Errorf("%d probes within %v, want %d within 31ms", n, total, maxReprobes)
	}
}

// Slow ends at a refusal, and after fall failures in a row that are neither slow nor refused.
func TestSlowScatters(t *testing.T) {
	const fall = 3
	for _, tt := range []struct {
		probes string // s slow, w a wrong answer, r refused, p passed
		want   bool
	}{
		{"sss", true}, {"wws", true}, {"ssw", false}, {"sssw", true}, {"sssww", true}, {"ssswww", false}, {"sssr", false}, {"ssswwsww", true},
		{"sssp", true}, {"ssswpww", true}, {"www", false}, {"ssswwws", true},
	} {
		r := &runner{log: slog.New(slog.DiscardHandler), judge: judge{rise: 3, fall: fall, state: Healthy}, notify: func(Verdict) {}}
		for _, c := range tt.probes {
			out := map[rune]outcome{'s': tooSlow("no answer"), 'w': wrongAnswer("404"), 'r': {kind: refused}, 'p': {kind: passed}}[c]
			r.observe(out, time.Now(), time.Now())
		}
		if got := r.verdict.Slow; got != tt.want {
			t.Errorf("after %s slow is %t, want %t", tt.probes, got, tt.want)
		}
	}
}

func TestPauses(t *testing.T) {
	s := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for _, tt := range []struct {
		name  string
		late  time.Duration // by the monotonic clock
		slept time.Duration // by the other
		want  string
	}{
		{"early", -s(0.1), 0, ""},
		{"on time", 0, 0, ""},
		{"late as under load", s(1.9), 0, ""},
		{"stood still", s(2), 0, "2s"},
		{"for long", s(3600), 0, "1h0m0s"},
		{"the machine slept and woke before its time", -s(0.1), s(60), "59.9s"},
		{"both", s(1), s(1), "2s"},
		{"the clocks were read apart", 0, -s(12), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				total := time.Hour // since boot, before this check began
				p := newPauses(func() time.Duration { return total })
				before := p.look()
				time.Sleep(pauseInterval + tt.late)
				total += tt.slept
				after := p.look()
				if got := before.Err() != nil; got != (tt.want != "") || got && context.Cause(before).Error() != "this process did not run for "+tt.want+": checking again" {
					t.Errorf("got %v, want %q", context.Cause(before), tt.want)
				}
				if p.look() != after || after.Err() != nil {
					t.Errorf("the same pause counts again: %v", context.Cause(after))
				}
			})
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
