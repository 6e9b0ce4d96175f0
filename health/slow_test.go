package health_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
)

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
