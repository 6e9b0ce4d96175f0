package health_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

func not(c *health.Check) { c.Not = true }

// Proof is inverted, and nothing else.
func TestNot(t *testing.T) {
	for _, tt := range []struct {
		name  string
		state portState
		serve http.HandlerFunc
		want  health.State
		why   string
	}{
		{"wanted answer", listening, ok, health.Unhealthy, "not wanted: GET http://127.0.0.1:8080/readyz: 200 in"},
		{"other answer", listening, status(503, "gone"), health.Healthy, "as wanted: GET http://127.0.0.1:8080/readyz: 503: gone"},
		{"redirect", listening, status(302, ""), health.Healthy, "as wanted: GET http://127.0.0.1:8080/readyz: 302: redirects"},
		{"refused", refusing, ok, health.Healthy, "as wanted: GET http://127.0.0.1:8080/readyz: connection refused"},
		{"no handshake", silent, ok, health.Unhealthy, "no connection within 500ms"},
		{"frozen", frozen, ok, health.Unhealthy, "no answer within 500ms"},
		{"overload", listening, status(429, "busy"), health.Unknown, "429: busy"},
		{"cut", listening, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, health.Unhealthy, "connection"},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			b.become(tt.state)
			b.serve(tt.serve)
			b.apply(check(not))
			pass(5 * time.Second)
			b.want(tt.want, tt.why)
		}))
	}
}

// With not: true, fall probes in a row detect that the server starts, and rise probes that it stops; its
// closing connection triggers no probe.
func TestNotComesAndGoes(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		b.become(refusing)
		b.serve(ok)
		b.healthy(check(overTCP, not, fall(3)))
		b.become(listening)
		pass(270 * time.Millisecond)
		b.want(health.Healthy, "failed 1 of 3: not wanted: connected to 127.0.0.1:5001")
		b.dials()
		b.hangUp()
		synctest.Wait()
		if n := b.dials(); n > 0 {
			t.Errorf("the end of an unwanted server triggered %d probes", n)
		}
		pass(400 * time.Millisecond)
		b.want(health.Unhealthy, "not wanted: connected to 127.0.0.1:5001")
		b.become(refusing)
		pass(time.Second)
		b.wantHistory("healthy unhealthy healthy")
	})(t)
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	put(t, there, nil)
	dangling := filepath.Join(dir, "dangling")
	must.Do(t, os.Symlink(filepath.Join(dir, "nowhere"), dangling))
	for _, tt := range []struct {
		path        string
		passes, not bool
		reason      string
	}{
		{there, true, false, there + " is there"},
		{dir, true, false, dir + " is there"},
		{dir + "/nowhere", false, true, dir + "/nowhere is not there"},
		{dangling, false, true, dangling + " is not there"},
		{there + "/below", false, false, "check's own: " + there + "/below: not a directory"},
		{dir + "/" + strings.Repeat("x", 300), false, false, "file name too long"},
	} {
		for _, inverted := range []bool{false, true} {
			want := tt.passes
			if inverted {
				want = tt.not
			}
			passes, reason := probeOnce(t, health.Check{File: &health.File{Path: tt.path}, Not: inverted}, tt.reason)
			if passes != want || !strings.Contains(reason, tt.reason) {
				t.Errorf("%s, not %v: %v %q, want %v …%q…", tt.path, inverted, passes, reason, want, tt.reason)
			}
		}
	}
}

// A check detects that a flag file appears and that it disappears.
func TestFlag(t *testing.T) {
	flag := filepath.Join(t.TempDir(), "maintenance")
	told := realMonitor(t, health.Check{Name: "in-service", File: &health.File{Path: flag}, Not: true,
		Pace: health.Pace{Interval: 10 * time.Millisecond, Timeout: time.Second, Rise: 2, Fall: 2}})
	next(t, told, health.Healthy, "as wanted: "+flag+" is not there")
	put(t, flag, nil)
	next(t, told, health.Unhealthy, "not wanted: "+flag+" is there")
	must.Do(t, os.Remove(flag))
	next(t, told, health.Healthy, "as wanted")
}

// probeOnce makes a single probe over the real network. It has a second if the wanted reason says so, or else enough for a busy machine.
func probeOnce(t *testing.T, c health.Check, want string) (passes bool, reason string) {
	t.Helper()
	c.Timeout = patience
	if strings.HasSuffix(want, "within 1s") {
		c.Timeout = time.Second
	}
	probe, stop, err := health.Probe(c, new(net.Dialer).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), c.Timeout)
	defer cancel()
	return probe(ctx)
}
