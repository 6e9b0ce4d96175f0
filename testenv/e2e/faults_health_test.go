//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/stub"
)

// TestServerCertificate has the apiserver come back with certificates that are
// no good: the VIP is withdrawn and status says what is wrong with them.
func TestServerCertificate(t *testing.T) {
	good, stranger := newPKI(t), newPKI(t)
	server := func(p *pki, name string, until time.Duration) *tls.Config {
		file := strings.ReplaceAll(t.Name(), "/", "-") + name
		p.issue(t, file, &x509.Certificate{DNSNames: []string{name}, NotAfter: time.Now().Add(until)})
		pair, err := tls.LoadX509KeyPair(filepath.Join(p.dir, file+".crt"), filepath.Join(p.dir, file+".key"))
		must(t, err)
		return &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	right := server(good, "kubernetes", 24*time.Hour)
	ca, err := os.ReadFile(filepath.Join(good.dir, "ca.crt"))
	must(t, err)
	const check = `https://127.0.0.1:6444/readyz", caFile: /etc/herald/ca.crt, serverName: "kubernetes`

	for name, test := range map[string]struct {
		config *tls.Config
		reason string
	}{
		"expired":           {server(good, "kubernetes", -time.Hour), "certificate expired on "},
		"of another CA":     {server(stranger, "kubernetes", 24*time.Hour), "certificate signed by an unknown authority (caFile /etc/herald/ca.crt)"},
		"of another server": {server(good, "elsewhere", 24*time.Hour), "certificate is for elsewhere, not for kubernetes"},
		"none at all":       {nil, "the server does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, files{
				"herald/ca.crt":      string(ca),
				"herald/herald.yaml": strings.Replace(bothPeers, "http://127.0.0.1:6443/readyz", check, 1),
			})
			const address = "127.0.0.1:6444"
			stop := serveTLS(t, s.Node("s"), address, s.readyz, right)
			boot(t, s.Lab, "r1", "r2", "s")
			s.announced(t)

			stop()
			stop = serveTLS(t, s.Node("s"), address, s.readyz, test.config)
			s.withdrawn(t)
			s.because(t, "GET https://"+address+"/readyz: "+test.reason)

			stop()
			serveTLS(t, s.Node("s"), address, s.readyz, right)
			s.announced(t)
		})
	}
}

// because waits until status has the check unhealthy for a reason that begins
// like this, and the VIP withdrawn.
func (s *site) because(t *testing.T, reason string) {
	t.Helper()
	eventually(t, soon, func() error {
		status, err := s.status(t)
		if err != nil {
			return err
		}
		vip, check := status.VIPs[0], status.Checks[0]
		if vip.Stage != "withdrawn" || check.State != "unhealthy" || !strings.HasPrefix(check.Reason, reason) {
			return fmt.Errorf("the VIP is %s, the check %s because %q, want withdrawn, unhealthy and %q", vip.Stage, check.State, check.Reason, reason)
		}
		return nil
	})
}

// TestSlowAPIServer has the apiserver answer late, not at all, and in halves:
// the deadline covers the whole answer. An answer that is slow but in time,
// and one that says that the server is busy, withdraw nothing.
func TestSlowAPIServer(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	routes := record(t, s.Node("r1"))
	answer := func(a stub.Answer) time.Time {
		routes.mark()
		s.readyz.Set("/readyz", a)
		return time.Now()
	}
	const url = "GET http://127.0.0.1:6443/readyz: "

	answer(stub.Answer{Delay: 100 * time.Millisecond})
	s.probed(t, 10)
	s.readyz.Set("/readyz", stub.Answer{Status: http.StatusTooManyRequests})
	eventually(t, soon, func() error {
		status, err := s.status(t)
		if err == nil && status.Checks[0].Warning == "" {
			err = errors.New("status does not warn of the overload")
		}
		return err
	})
	s.readyz.Set("/readyz", stub.Answer{})
	s.probed(t, 3)
	if changes := routes.since(); len(changes) > 0 {
		t.Errorf("the routes changed: %v", changes)
	}
	for _, fault := range []struct {
		answer stub.Answer
		reason string
	}{
		{stub.Answer{Delay: 2 * time.Second}, url + "no answer within 300ms"},
		{stub.Answer{Hang: stub.HangHeaders}, url + "no answer within 300ms"},
		{stub.Answer{Hang: stub.HangBody}, url + "headers "},
	} {
		made := answer(fault.answer)
		s.withdrawn(t)
		s.because(t, fault.reason)
		t.Logf("%+v: route gone after %v", fault.answer, routes.goneAfter(made))
		answer(stub.Answer{})
		s.announced(t)
	}
}

// probed waits until the check has passed or failed this many times more.
func (s *site) probed(t *testing.T, times uint64) {
	t.Helper()
	var began, now uint64
	eventually(t, soon, func() error {
		status, err := s.status(t)
		if err != nil {
			return err
		}
		now = status.Checks[0].Passes + status.Checks[0].Failures
		if began == 0 {
			began = now
		}
		if now < began+times {
			return fmt.Errorf("%d probes, want %d", now-began, times)
		}
		return nil
	})
}

// fastChecks has a check every 50 ms.
var fastChecks = strings.Replace(bothPeers, "{name: apiserver, http", "{name: apiserver, interval: 50ms, http", 1)

// TestFlappingAPIServer has the apiserver come and go all the time. The first
// time it goes, the VIP is withdrawn at once; then its return is damped, so
// that the routers do not have to follow each time.
func TestFlappingAPIServer(t *testing.T) {
	t.Parallel()
	const (
		flaps = 25
		// With a hold-down of a minute: 8 at first, and one more a minute.
		most = 8
	)
	s := newAnnouncingSite(t, files{"herald/herald.yaml": fastChecks})
	routes := record(t, s.Node("r1"))
	check := func(want string) {
		t.Helper()
		eventually(t, soon, func() error {
			status, err := s.status(t)
			if err == nil && status.Checks[0].State != want {
				err = fmt.Errorf("the check is %s, want %s", status.Checks[0].State, want)
			}
			return err
		})
	}
	began := time.Now()
	for range flaps {
		s.readyz.Set("/readyz", stub.Answer{Status: http.StatusInternalServerError})
		check("unhealthy")
		s.readyz.Set("/readyz", stub.Answer{})
		check("healthy")
	}
	took := time.Since(began)
	withdrawals := 0
	for _, c := range routes.since() {
		if c.removed {
			withdrawals++
		}
	}
	t.Logf("%d failures in %v: %d withdrawals", flaps, took.Round(poll), withdrawals)
	if limit := most + int(took/time.Minute); withdrawals == 0 || withdrawals > limit {
		t.Errorf("%d withdrawals for %d failures in %v, want 1 to %d", withdrawals, flaps, took, limit)
	}
	s.announced(t)
}
