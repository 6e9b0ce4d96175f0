package health_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

func named(name string) func(*health.Check) { return func(c *health.Check) { c.Name = name } }

// states lists the checks of the verdicts, in order, with their states.
func (b *rig) states() string {
	var words []string
	for _, v := range b.monitor.Verdicts() {
		words = append(words, v.Name+":"+v.State.String())
	}
	return strings.Join(words, " ")
}

func (b *rig) wantStates(want string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.states()); diff != "" {
		b.t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestApplyStartsAndStops(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		b.apply(check(named("b")), check(named("a"), overTCP))
		b.wantStates("b:unknown a:unknown")
		pass(time.Second)
		b.wantStates("b:healthy a:healthy")

		b.apply(check(named("a"), overTCP), check(named("c")))
		b.wantStates("a:healthy c:unknown")
		pass(time.Second)
		b.wantStates("a:healthy c:healthy")

		b.apply()
		b.wantStates("")
		b.dials()
		pass(time.Minute)
		if n := b.dials(); n != 0 {
			t.Errorf("%d connections by stopped checks", n)
		}
		b.apply(check(named("b")))
		b.wantStates("b:unknown") // a removed check keeps no state
	})(t)
}

func TestFirstVerdict(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.become(silent)
		b.apply(check())
		want := health.Verdict{Name: "apiserver", Reason: "not probed yet", Since: time.Now()}
		pass(100 * time.Millisecond)
		if diff := cmp.Diff(want, b.verdict()); diff != "" {
			t.Errorf("during the first probe (-want +got):\n%s", diff)
		}
	})(t)
}

func TestApplyLeavesTheUnchangedAlone(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		c := check()
		b.healthy(c)
		before := b.verdict()
		b.dials()
		for range 10 {
			b.apply(check())
		}
		synctest.Wait()
		if n := b.dials(); n != 0 {
			t.Errorf("%d new connections", n)
		}
		if diff := cmp.Diff(before, b.verdict()); diff != "" {
			t.Errorf("verdict changed (-before +after):\n%s", diff)
		}
		c.HTTP.URL = "http://127.0.0.1:1/" // changes only the caller's copy
		pass(time.Second)
		b.want(health.Healthy, "GET http://127.0.0.1:8080/readyz: 200")
		b.wantHistory("healthy")
	})(t)
}

// A reload alone neither withdraws nor announces.
func TestApplyKeepsTheVerdictOfTheChanged(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after int // status of the answers
		history       string
	}{
		{"stays healthy", 200, 200, "healthy"},
		{"the new check finds it unhealthy", 200, 500, "healthy unhealthy"},
		{"stays unhealthy, for another reason", 500, 500, "unhealthy unhealthy"},
		{"the new check finds it healthy", 500, 200, "unhealthy healthy"},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			looked := make(chan struct{})
			b.serve(func(w http.ResponseWriter, r *http.Request) {
				code := tt.before
				if r.URL.Path == "/livez" {
					<-looked
					code = tt.after
				}
				status(code, "")(w, r)
			})
			b.apply(check())
			pass(time.Second)
			before := b.verdict()
			b.apply(check(func(c *health.Check) { c.HTTP.URL = "http://127.0.0.1:8080/livez" }))
			after := b.verdict()
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("verdict changed at once (-before +after):\n%s", diff)
			}
			close(looked)
			synctest.Wait() // one probe, too few for rise or fall
			if s := b.verdict().State; s != before.State {
				t.Errorf("%v after the first probe", s)
			}
			pass(5 * time.Second)
			b.wantHistory(tt.history)
			if v := b.verdict(); !strings.Contains(v.Reason, "/livez") || v.Passes+v.Failures <= before.Passes+before.Failures {
				t.Errorf("not probed again: %+v", v)
			}
		}))
	}
}

func TestApplyRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		check health.Check
		want  string
	}{
		{"bad url", check(func(c *health.Check) { c.HTTP.URL = "http://[::1" }), `check "apiserver": http url: parse`},
		{"duplicate name", check(named("fine")), `check "fine": two checks have this name: rename one`},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			b.serve(ok)
			b.healthy(check(named("running")))
			err := b.monitor.Apply([]health.Check{check(named("fine")), tt.check})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %q, want %q…", err, tt.want)
			}
			b.wantStates("running:healthy")
		}))
	}
}

// Close, and Apply when it removes a check, end probes that hang.
func TestCloseDoesNotHang(t *testing.T) {
	for _, s := range []portState{silent, frozen} {
		onRig(func(t *testing.T, b *rig) {
			b.become(s)
			slow := func(c *health.Check) { c.Timeout, c.Rise = time.Hour, 1000 }
			b.apply(check(slow, named("a")), check(slow, named("b"), overTCP), check(slow, named("c"), overTLS(t, newAuthority(t, "ca", year))))
			pass(time.Second)
			began := time.Now()
			b.apply(check(slow, named("c"), overTLS(t, newAuthority(t, "ca", year))))
			b.monitor.Close()
			b.monitor.Close()
			if took := time.Since(began); took != 0 {
				t.Errorf("took %v", took)
			}
			if n := len(b.monitor.Verdicts()); n != 0 {
				t.Errorf("%d verdicts after Close", n)
			}
			if err := b.monitor.Apply(nil); !errors.Is(err, health.ErrClosed) {
				t.Errorf("Apply after Close: %v", err)
			}
			b.wantHistory("") // an aborted probe is not judged
		})(t)
	}
}

// A caller that waits for a check sees its latest reason, not the first.
func TestTellsOfAnotherReason(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.become(refusing)
		b.apply(check())
		pass(time.Minute)
		b.wantHistory("unhealthy")
		b.serve(status(500, ""))
		b.become(listening)
		pass(time.Minute)
		b.wantHistory("unhealthy unhealthy")
		if reason := b.told[len(b.told)-1].Reason; !strings.Contains(reason, "500") {
			t.Errorf("last reason: %q", reason)
		}
	})(t)
}

// notify may call Verdicts, and sees the new verdict there.
func TestNotifyMayAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint()
		e.serve(ok)
		defer e.Close()
		var m *health.Monitor
		told := make(chan health.Verdict, 1)
		m = health.NewMonitorOver(e.dial, nil, func(v health.Verdict) {
			if diff := cmp.Diff([]health.Verdict{v}, m.Verdicts()); diff != "" {
				t.Errorf("notified, then read:\n%s", diff)
			}
			told <- v
		})
		defer m.Close()
		must.Do(t, m.Apply([]health.Check{check()}))
		v := <-told
		if v.State != health.Healthy || v.Passes != 2 || v.Failures != 0 || v.Since.Sub(v.Cause) != 200*time.Millisecond {
			t.Errorf("notified %+v", v)
		}
	})
}

// A state change is logged once; a steady state is not logged.
func TestLog(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		b.healthy(check())
		pass(time.Minute)
		b.kill(false)
		pass(time.Minute)
		b.monitor.Close()
		lines := strings.Split(strings.TrimSpace(b.log.String()), "\n")
		if len(lines) != 2 ||
			!strings.Contains(lines[0], `level=INFO msg="check is healthy" check=apiserver reason="GET http://127.0.0.1:8080/readyz: 200 in 0s" after=200ms`) ||
			!strings.Contains(lines[1], `level=WARN msg="check is unhealthy" check=apiserver reason="GET http://127.0.0.1:8080/readyz: connection refused" after=0s`) {
			t.Errorf("logged:\n%s", b.log.String())
		}
	})(t)
}

// A pause makes healthy verdicts stale: fault 28.
func TestPause(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, onRig(func(t *testing.T, b *rig) {
			b.serve(ok)
			b.healthy(check(v.adjust, func(c *health.Check) { c.Rise, c.Fall = 20, 1000 }, quick))
			b.monitor.Suspend(12 * time.Second)
			pass(10 * time.Millisecond)
			b.want(health.Unhealthy, "this process did not run for 11.8s: checking again") // 12 s less the interval of looks
			if v := b.verdict(); !v.Paused || v.Since != v.Cause {
				t.Errorf("verdict %+v", v)
			}
			pass(time.Second)
			b.want(health.Healthy, "")
			if b.verdict().Paused {
				t.Error("still paused")
			}
			b.wantHistory("healthy unhealthy healthy")
		}))
	}
}

// A pause is noticed at once, also while a probe hangs and between rare probes.
func TestPauseIsNoticedAtOnce(t *testing.T) {
	for _, interval := range []time.Duration{time.Hour, 100 * time.Millisecond} {
		t.Run(interval.String(), onRig(func(t *testing.T, b *rig) {
			answers := make(chan struct{})
			var asked atomic.Int64
			b.serve(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) > 1 {
					<-answers
				}
				ok(w, r)
			})
			b.healthy(check(once, func(c *health.Check) { c.Interval, c.Timeout = interval, time.Hour }))
			b.monitor.Suspend(12 * time.Second)
			pass(time.Second)
			b.wantHistory("healthy unhealthy")
			close(answers)
			pass(time.Second)
			b.wantHistory("healthy unhealthy healthy")
		}))
	}
}

// The callee of a check that is slow to return is not taken for a pause.
func TestSlowNotifyIsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEndpoint()
		defer e.Close()
		e.serve(ok)
		told := 0
		m := health.NewMonitorOver(e.dial, nil, func(health.Verdict) {
			told++
			time.Sleep(time.Minute) // in a synctest bubble
		})
		defer m.Close()
		must.Do(t, m.Apply([]health.Check{check()}))
		pass(10 * time.Minute)
		if v := m.Verdicts()[0]; v.State != health.Healthy || told != 1 {
			t.Errorf("notified %d times, now %+v", told, v)
		}
	})
}

// A delay that load may cause costs nothing.
func TestShortPauseIsForgiven(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		b.healthy(check())
		b.monitor.Suspend(1900 * time.Millisecond)
		pass(time.Minute)
		b.want(health.Healthy, "")
		b.wantHistory("healthy")
	})(t)
}

// An endpoint that was not healthy before a pause keeps its reason, and counts its passes anew.
func TestPauseOfTheUnhealthy(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(status(500, "broken"))
		b.apply(check(overTCP, named("tcp"), func(c *health.Check) { c.Rise = 3 }), check())
		pass(210 * time.Millisecond) // tcp has passed twice
		b.monitor.Suspend(12 * time.Second)
		pass(300 * time.Millisecond)
		b.wantStates("tcp:unknown apiserver:unhealthy")
		if v := b.monitor.Verdicts()[1]; v.Paused || !strings.Contains(v.Reason, "broken") {
			t.Errorf("verdict %+v", v)
		}
	})(t)
}

// A server that fails after a pause is no longer marked as paused.
func TestFailureAfterAPause(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(ok)
		b.healthy(check())
		b.monitor.Suspend(12 * time.Second)
		b.serve(status(500, "broken"))
		pass(20 * time.Second)
		b.want(health.Unhealthy, "broken")
		if b.verdict().Paused {
			t.Error("still marked as paused")
		}
	})(t)
}

func quick(c *health.Check) { c.Interval = 10 * time.Millisecond }

// A failure is slow if the last probe timed out or its answer reports overload.
func TestSlowFailures(t *testing.T) {
	for _, tt := range []struct {
		name   string
		state  portState
		serve  http.HandlerFunc
		adjust func(*health.Check)
		want   bool
	}{
		{name: "frozen", state: frozen, want: true},
		{name: "frozen, over TCP", state: silent, adjust: overTCP, want: true},
		{name: "no handshake", state: silent, want: true},
		{name: "frozen, and not: true", state: frozen, adjust: not},
		{name: "500", serve: status(500, "[-]etcd failed"), want: true},
		{name: "503", serve: status(503, "busy"), want: true},
		{name: "404", serve: status(404, "")},
		{name: "401", serve: status(401, "")},
		{name: "redirect", serve: status(302, "")},
		{name: "refused", state: refusing},
		{name: "cut", serve: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "wanted answer, and not: true", serve: ok, adjust: not},
		{name: "well", serve: ok},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			b.become(tt.state)
			if tt.serve == nil {
				tt.serve = ok
			}
			b.serve(tt.serve)
			if tt.adjust == nil {
				tt.adjust = func(*health.Check) {}
			}
			b.apply(check(tt.adjust))
			pass(5 * time.Second)
			if v := b.verdict(); v.Slow != tt.want || v.State == health.Unknown {
				t.Errorf("%v, slow %t, want %t: %s", v.State, v.Slow, tt.want, v.Reason)
			}
		}))
	}
}

// A change from slow to refused is notified at once; a single pass changes nothing.
func TestSlowTurns(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.serve(status(500, "busy"))
		b.apply(check())
		pass(5 * time.Second)
		slow := func(want bool) {
			t.Helper()
			b.mu.Lock()
			defer b.mu.Unlock()
			if last := b.told[len(b.told)-1]; last.State != health.Unhealthy || last.Slow != want {
				t.Errorf("notified %v, slow %t, want %t", last.State, last.Slow, want)
			}
		}
		slow(true)
		b.serve(status(429, "busy"))
		pass(time.Second)
		slow(true)
		b.become(refusing)
		b.kill(false)
		pass(time.Second)
		slow(false)
		b.become(frozen)
		pass(time.Second)
		slow(true)
	})(t)
}
