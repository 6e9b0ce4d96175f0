//go:build e2e

package session

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/stub"
)

// because waits until status reports the check unhealthy with a reason that begins
// like this, and the VIP withdrawn.
func because(t *testing.T, s *site.Session, reason string) {
	t.Helper()
	s.Shows(t, func(status admin.Status) error {
		vip, check := status.VIPs[0], status.Checks[0]
		return site.ErrorIf(vip.Stage != "withdrawn" || check.State != health.Unhealthy || !strings.HasPrefix(check.Reason, reason),
			"the VIP is %s, the check %s because %q, want withdrawn, unhealthy and %q", vip.Stage, check.State, check.Reason, reason)
	})
}

// TestSlowAPIServer makes the apiserver answer late, not at all, and in halves: the
// deadline covers the whole answer. Slow answers in time, and answers that the server
// is busy, withdraw nothing.
func TestSlowAPIServer(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm, routes := watchBystander(t, s), site.WatchRoutes(t, s.Node("r1"))
	answer := func(a stub.Answer) time.Time {
		routes.Mark()
		s.Readyz.Set("/readyz", a)
		return time.Now()
	}
	const url = "GET http://127.0.0.1:6443/readyz: "

	answer(stub.Answer{Delay: 100 * time.Millisecond})
	probed(t, s, 10)
	s.Readyz.Set("/readyz", stub.Answer{Status: http.StatusTooManyRequests})
	s.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(status.Checks[0].Warning == "", "status does not warn of the overload")
	})
	s.Readyz.Set("/readyz", stub.Answer{})
	probed(t, s, 3)
	calm.untouched(t)
	for _, fault := range []struct {
		answer stub.Answer
		reason string
	}{
		{stub.Answer{Delay: 2 * time.Second}, url + "no answer within 300ms"},
		{stub.Answer{Hang: stub.HangHeaders}, url + "no answer within 300ms"},
		{stub.Answer{Hang: stub.HangBody}, url + "headers "},
	} {
		made := answer(fault.answer)
		withdrawn(t, s)
		because(t, s, fault.reason)
		t.Logf("%+v: route gone after %v", fault.answer, routes.GoneAfter(made))
		answer(stub.Answer{})
		announced(t, s)
	}
}

// probed waits until the check has passed or failed this many times more.
func probed(t *testing.T, s *site.Session, times uint64) {
	t.Helper()
	var began, now uint64
	s.Shows(t, func(status admin.Status) error {
		now = status.Checks[0].Passes + status.Checks[0].Failures
		if began == 0 {
			began = now
		}
		return site.ErrorIf(now < began+times, "%d probes, want %d", now-began, times)
	})
}

// TestFlappingAPIServer makes the apiserver come and go all the time. The first time
// it goes, the VIP is withdrawn immediately; then its return is damped, so that the
// routers do not have to follow each time.
func TestFlappingAPIServer(t *testing.T) {
	t.Parallel()
	const (
		flaps = 25
		// With a hold-down of a minute: 8 at first, and one more a minute.
		most = 8
	)
	fast := strings.Replace(site.BothPeers, "{name: apiserver, http", "{name: apiserver, interval: 50ms, http", 1)
	s := newAnnouncingSite(t, site.Files{"herald/herald.yaml": fast})
	routes := site.WatchRoutes(t, s.Node("r1"))
	check := func(want health.State) {
		t.Helper()
		s.Shows(t, func(status admin.Status) error {
			return site.ErrorIf(status.Checks[0].State != want, "the check is %s, want %s", status.Checks[0].State, want)
		})
	}
	began := time.Now()
	for range flaps {
		s.Readyz.Set("/readyz", stub.Answer{Status: http.StatusInternalServerError})
		check(health.Unhealthy)
		s.Readyz.Set("/readyz", stub.Answer{})
		check(health.Healthy)
	}
	took := time.Since(began)
	withdrawals := 0
	for _, c := range routes.Since() {
		if len(c.Now) == 0 {
			withdrawals++
		}
	}
	t.Logf("%d failures in %v: %d withdrawals", flaps, took.Round(site.Poll), withdrawals)
	if limit := most + int(took/time.Minute); withdrawals == 0 || withdrawals > limit {
		t.Errorf("%d withdrawals for %d failures in %v, want 1 to %d", withdrawals, flaps, took, limit)
	}
	announced(t, s)
}
