package speaker

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/health"
)

func TestDecide(t *testing.T) {
	start := time.Unix(1000, 0)
	const linger = 2 * time.Second
	later := func(d time.Duration) time.Time { return start.Add(d) }
	tests := []struct {
		name     string
		at       Stage
		after    time.Duration // since at was reached
		health   health.State
		leave    bool
		held     time.Time
		flat     bool
		unleased bool
		unbound  bool
		want     Stage
		again    time.Time
	}{
		{name: "withdrawn before the first verdict", at: Withdrawn, health: health.Unknown, want: Withdrawn},
		{name: "announced once healthy", at: Withdrawn, health: health.Healthy, want: Announced},
		{name: "withheld while unhealthy", at: Withdrawn, health: health.Unhealthy, want: Withdrawn},
		{name: "withdrawn at once", at: Announced, health: health.Unhealthy, want: Withdrawn},
		{name: "failure cuts a drain short", at: Draining, health: health.Unhealthy, leave: true, want: Withdrawn},
		{name: "failure cuts linger short", at: Lingering, health: health.Unhealthy, leave: true, want: Withdrawn},
		{name: "a new check without a verdict does not withdraw", at: Announced, health: health.Unknown, want: Announced},
		{name: "drain marks the route first", at: Announced, health: health.Healthy, leave: true, want: Draining, again: later(gracefulshutdown.Notice)},
		{name: "then waits for the routers", at: Draining, after: gracefulshutdown.Notice - 1, health: health.Healthy, leave: true, want: Draining, again: later(gracefulshutdown.Notice)},
		{name: "then withdraws", at: Draining, after: gracefulshutdown.Notice, health: health.Healthy, leave: true, want: Lingering, again: later(gracefulshutdown.Notice + linger)},
		{name: "then lingers", at: Lingering, after: linger - 1, health: health.Healthy, leave: true, want: Lingering, again: later(linger)},
		{name: "then is withdrawn", at: Lingering, after: linger, health: health.Healthy, leave: true, want: Withdrawn},
		{name: "drained stays withdrawn", at: Withdrawn, health: health.Healthy, leave: true, want: Withdrawn},
		{name: "never bound, so no drain", at: Announced, health: health.Healthy, leave: true, unbound: true, want: Withdrawn},
		{name: "never bound on a flat layer 2, so no drain", at: Announced, health: health.Healthy, leave: true, flat: true, unbound: true, want: Withdrawn},
		{name: "undrain while draining", at: Draining, health: health.Healthy, want: Announced},
		{name: "undrain while lingering", at: Lingering, health: health.Healthy, want: Announced},
		{name: "healthy but held down", at: Withdrawn, health: health.Healthy, held: later(1), want: Withdrawn, again: later(1)},
		{name: "hold-down has ended", at: Withdrawn, health: health.Healthy, held: later(0), want: Announced},
		{name: "held down and unhealthy", at: Withdrawn, health: health.Unhealthy, held: later(1), want: Withdrawn},
		{name: "held down and undecided", at: Withdrawn, health: health.Unknown, held: later(1), want: Withdrawn},
		{name: "held down and drained", at: Withdrawn, health: health.Healthy, leave: true, held: later(1), want: Withdrawn},
		{name: "hold-down does not withdraw", at: Announced, health: health.Healthy, held: later(1), want: Announced},
		{name: "hold-down does not delay a withdrawal", at: Announced, health: health.Unhealthy, held: later(1), want: Withdrawn},
		{name: "hold-down does not delay an undrain", at: Draining, health: health.Healthy, held: later(1), want: Announced},
		{name: "announced once elected", at: Withdrawn, health: health.Healthy, flat: true, want: Announced},
		{name: "withheld without the lease", at: Withdrawn, health: health.Healthy, flat: true, unleased: true, want: Withdrawn},
		{name: "withheld and held down without the lease", at: Withdrawn, health: health.Healthy, held: later(1), flat: true, unleased: true, want: Withdrawn, again: later(1)},
		{name: "withheld although elected", at: Withdrawn, health: health.Unhealthy, flat: true, want: Withdrawn},
		{name: "withdrawn with the lease", at: Announced, health: health.Healthy, flat: true, unleased: true, want: Withdrawn},
		{name: "withdrawn with the lease while it leaves", at: Announced, health: health.Healthy, leave: true, flat: true, unleased: true, want: Withdrawn},
		{name: "lease transferred without notice", at: Announced, health: health.Healthy, leave: true, flat: true, want: Lingering, again: later(linger)},
		{name: "lingers without the lease", at: Lingering, after: linger - 1, health: health.Healthy, leave: true, flat: true, unleased: true, want: Lingering, again: later(linger)},
		{name: "linger ends without the lease", at: Lingering, after: linger, health: health.Healthy, leave: true, flat: true, unleased: true, want: Withdrawn},
		{name: "undrain while another holds it", at: Lingering, after: 1, health: health.Healthy, flat: true, unleased: true, want: Lingering, again: later(linger)},
		{name: "elected again while lingering", at: Lingering, health: health.Healthy, flat: true, want: Announced},
		{name: "failure cuts linger short without the lease", at: Lingering, health: health.Unhealthy, leave: true, flat: true, unleased: true, want: Withdrawn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := position{stage: tt.at, since: start}
			now := start.Add(tt.after)
			got, again := decide(now, at, input{
				health: tt.health, leave: tt.leave, linger: linger, held: tt.held, flat: tt.flat, unleased: tt.unleased, unbound: tt.unbound,
			})
			if got.stage != tt.want || !again.Equal(tt.again) {
				t.Errorf("got %s, again at %v; want %s, %v", got.stage, again, tt.want, tt.again)
			}
			if moved := got.stage != tt.at; moved && !got.since.Equal(now) || !moved && !got.since.Equal(start) {
				t.Errorf("since %v, moved: %t", got.since, moved)
			}
		})
	}
}

// All stages with all states of health, staying and leaving, under both policies.
func TestDecideEverywhere(t *testing.T) {
	letters := map[byte]Stage{'w': Withdrawn, 'a': Announced, 'd': Draining, 'l': Lingering, 'm': Demoted}
	for _, tt := range []struct {
		at               Stage
		withdraw, demote string // staying: unknown, healthy, held down, unhealthy; then the same leaving
	}{
		{Withdrawn, "waww wwww", "waww wwww"},
		{Announced, "aaaw dddw", "aaam dddw"},
		{Draining, "aaaw dddw", "aaam dddw"},
		{Lingering, "aaaw lllw", "aaaw lllw"},
		{Demoted, "waww dddw", "mamm dddw"},
	} {
		start := time.Unix(1000, 0)
		at, now := position{stage: tt.at, since: start}, start.Add(gracefulshutdown.Notice/2)
		for demote, row := range map[bool]string{false: tt.withdraw, true: tt.demote} {
			for i, want := range []byte(strings.ReplaceAll(row, " ", "")) {
				in := input{health: []health.State{health.Unknown, health.Healthy, health.Healthy, health.Unhealthy}[i%4], leave: i >= 4, linger: time.Second, demote: demote}
				if i%4 == 2 {
					in.held = now.Add(time.Second)
				}
				next, again := decide(now, at, in)
				if next.stage != letters[want] {
					t.Errorf("%s with %+v: %s, want %s", tt.at, in, next.stage, letters[want])
				}
				waits := next.stage == Draining || next.stage == Lingering || i == 2 && (next.stage == Withdrawn || next.stage == Demoted)
				if !again.IsZero() != waits || waits && !again.After(now) {
					t.Errorf("%s with %+v: again at %v", tt.at, in, again)
				}
			}
		}
	}
}

// For any sequence of inputs:
//   - an address is neither bound nor advertised while a check fails, unless it is demoted;
//   - an address is not announced before its checks have passed once, or while it is held down;
//   - a drain ends;
//   - a planned change withdraws a route only after notice and linger.
func TestDecideInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		at := position{stage: Withdrawn, since: now}
		in := input{flat: rapid.Bool().Draw(t, "flat")}
		var passed bool
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			in.linger = time.Duration(rapid.IntRange(0, 3000).Draw(t, "linger")) * time.Millisecond
			in.leave = rapid.Bool().Draw(t, "leave")
			in.demote = !in.flat && rapid.Bool().Draw(t, "demote")
			in.unleased = in.flat && rapid.Bool().Draw(t, "unleased")
			in.health = rapid.SampledFrom([]health.State{health.Unknown, health.Healthy, health.Unhealthy}).Draw(t, "health")
			in.held = now.Add(time.Duration(rapid.IntRange(-3000, 3000).Draw(t, "held")) * time.Millisecond)
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "wait")) * time.Millisecond)

			dst, again := decide(now, at, in)
			switch {
			case in.health == health.Unhealthy && dst.stage.Bound() && !(dst.stage == Demoted && in.demote && !in.leave && at.stage.Advertised()):
				t.Fatalf("from %s to %s while unhealthy", at.stage, dst.stage)
			case in.unleased && dst.stage.Bound() && dst.stage != Lingering:
				t.Fatalf("from %s to %s without the lease", at.stage, dst.stage)
			case dst.stage.Advertised() && !dst.stage.Bound():
				t.Fatalf("%s is advertised but not bound", dst.stage)
			case at.stage != Draining && dst.stage == Demoted && in.health == health.Healthy && !now.Before(in.held):
				t.Fatal("demoted although healthy")
			case (at.stage == Withdrawn || at.stage == Demoted) && dst.stage == Announced && now.Before(in.held):
				t.Fatalf("%s %v before the end of the hold", dst.stage, in.held.Sub(now))
			case again.Before(now) && !again.IsZero():
				t.Fatalf("again at %v, which is before %v", again, now)
			}
			if in.health == health.Healthy {
				passed = true
			}
			if dst.stage != Withdrawn && !passed {
				t.Fatalf("%s before any check passed", dst.stage)
			}
			if in.health != health.Unhealthy && !in.flat && at.stage == Announced && dst.stage != Announced && dst.stage != Draining {
				t.Fatalf("planned change went from %s to %s", at.stage, dst.stage)
			}
			if in.health != health.Unhealthy && at.stage == Draining && dst.stage == Lingering && now.Sub(at.since) < gracefulshutdown.Notice {
				t.Fatalf("withdrawn %v after notice", now.Sub(at.since))
			}
			if dst.stage == Withdrawn {
				passed = false // the checks must pass again
			}
			at = dst
		}
		in.leave, in.health = true, health.Healthy
		for range 4 {
			var again time.Time
			at, again = decide(now, at, in)
			if !again.IsZero() {
				now = again
			}
		}
		if at.stage != Withdrawn {
			t.Fatalf("drain ended in %s", at.stage)
		}
	})
}

// Another member counts once it has advertised the VIP for sureAfter.
func TestMustKeep(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name               string
		since, heard, from time.Time
		left               bool
	}{
		{name: "no other member"},
		{name: "no other member any more", since: ago(time.Hour)},
		{name: "first advertisement", heard: now, from: now},
		{name: "advertised for too short a time", since: ago(sureAfter - 1), heard: now, from: ago(sureAfter - 1)},
		{name: "known for long, last advertisement old", since: ago(time.Hour), heard: ago(time.Hour), from: ago(time.Hour)},
		{name: "known for long, last advertisement possibly delayed", since: ago(time.Hour), heard: ago(time.Hour - sureAfter + 1), from: ago(time.Hour)},
		{name: "advertised for long enough", since: ago(sureAfter), heard: now, from: ago(sureAfter), left: true},
	} {
		if from, ok := mustKeep(now, tt.since, tt.heard); !from.Equal(tt.from) || ok == tt.left {
			t.Errorf("%s: since %v, %t; want %v, %t", tt.name, from, ok, tt.from, !tt.left)
		}
	}
}

func TestBridge(t *testing.T) {
	now := time.Unix(1000, 0)
	lease := now.Add(400 * time.Millisecond)
	tests := []struct {
		name string
		step step
		want time.Time
	}{
		{name: "a check fails", step: step{from: Announced, dst: Withdrawn, bound: true}, want: now.Add(time.Minute)},
		{name: "becomes the last resort", step: step{from: Announced, dst: Demoted, bound: true}, want: now.Add(time.Minute)},
		{name: "the last resort drains", step: step{from: Demoted, dst: Draining, bound: true}, want: now.Add(time.Minute)},
		{name: "a drain", step: step{from: Announced, dst: Draining, bound: true}, want: now.Add(time.Minute)},
		{name: "route withdrawn in a drain", step: step{from: Draining, dst: Lingering, bound: true}, want: now.Add(time.Minute)},
		{name: "fails in a drain", step: step{from: Draining, dst: Withdrawn, bound: true}, want: now.Add(time.Minute)},
		{name: "linger ended", step: step{from: Lingering, dst: Withdrawn, bound: true}},
		{name: "undrained", step: step{from: Draining, dst: Announced, bound: true}},
		{name: "healthy again", step: step{from: Withdrawn, dst: Announced}},
		{name: "no change", step: step{from: Announced, dst: Announced, bound: true}},
		{name: "no change in a drain", step: step{from: Draining, dst: Draining, bound: true}},
		{name: "never bound", step: step{from: Announced, dst: Withdrawn}},
		{name: "process paused", step: step{from: Announced, dst: Withdrawn, bound: true, paused: true}},

		{name: "flat: a check fails", step: step{from: Announced, dst: Withdrawn, bound: true, flat: true, lease: lease}, want: lease},
		{name: "flat: a drain", step: step{from: Announced, dst: Lingering, bound: true, flat: true, lease: lease}, want: lease},
		{name: "flat: lease lost", step: step{from: Announced, dst: Withdrawn, bound: true, flat: true}},
		{name: "flat: lease ended", step: step{from: Announced, dst: Withdrawn, bound: true, flat: true, lease: now}},
		{name: "flat: linger ended", step: step{from: Lingering, dst: Withdrawn, bound: true, flat: true, lease: lease}},
		{name: "flat: process paused", step: step{from: Announced, dst: Withdrawn, bound: true, paused: true, flat: true, lease: lease}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.step.bridgeUntil(now); !got.Equal(tt.want) {
				t.Errorf("open until %v, want %v", got, tt.want)
			}
		})
	}
}
