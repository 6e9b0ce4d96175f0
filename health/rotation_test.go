package health_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

// The server moves to a new authority, and so does the check's file.
func TestAuthorityRotation(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		old, next := newAuthority(t, "old", year), newAuthority(t, "next", year)
		var cert atomic.Pointer[tls.Certificate]
		use := func(i *identity) { c := i.issue(t).tls(); cert.Store(&c) }
		use(old)
		b.serveTLS(ok, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.Load(), nil }})
		c := check(overTLS(t, old))
		path := c.HTTP.CAFile
		must.Do(t, os.Remove(path))

		b.apply(c)
		pass(5 * time.Second)
		b.want(health.Unhealthy, "check's own: caFile "+path+": no such file")

		put(t, path, old.certPEM())
		pass(time.Second)
		b.want(health.Healthy, "200")

		put(t, path, append(old.certPEM(), next.certPEM()...))
		pass(5 * time.Second)
		use(next)
		pass(5 * time.Second)
		b.wantHistory("unhealthy healthy")

		put(t, path, []byte("half-written"))
		pass(5 * time.Second)
		b.want(health.Healthy, "200")
		if w := b.verdict().Warning; !strings.HasPrefix(w, "caFile ") || !strings.HasSuffix(w, "no PEM certificate in it: still using the previous content") {
			t.Errorf("warning %q", w)
		}
		b.wantHistory("unhealthy healthy healthy")

		put(t, path, next.certPEM())
		pass(5 * time.Second)
		if w := b.verdict().Warning; w != "" {
			t.Errorf("still warns: %q", w)
		}
		b.wantHistory("unhealthy healthy healthy healthy")

		use(old)
		pass(5 * time.Second)
		b.want(health.Unhealthy, "unknown authority")
	})(t)
}

// Certificate and key are two files, which do not match between their writes.
func TestClientCertificateRotation(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		ca := newAuthority(t, "ca", year)
		first, second := ca.issue(t), ca.issue(t)
		var presented atomic.Pointer[x509.Certificate]
		b.serveTLS(func(w http.ResponseWriter, r *http.Request) {
			presented.Store(r.TLS.PeerCertificates[0])
			ok(w, r)
		}, &tls.Config{Certificates: []tls.Certificate{ca.issue(t).tls()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()})
		c := check(overTLS(t, ca), as(t, first), fall(1))
		b.healthy(c)

		put(t, c.HTTP.ClientCertFile, second.certPEM())
		pass(time.Minute)
		b.want(health.Healthy, "200")
		if w := b.verdict().Warning; !strings.Contains(w, "does not match") || !presented.Load().Equal(first.cert) {
			t.Errorf("half-rotated: warning %q", w)
		}
		put(t, c.HTTP.ClientKeyFile, second.keyPEM(t))
		pass(2 * time.Second)
		b.wantHistory("healthy healthy healthy") // once for the warning, once for its end
		if w := b.verdict().Warning; w != "" || !presented.Load().Equal(second.cert) {
			t.Errorf("rotated: warning %q", w)
		}
	})(t)
}

func TestTokenRotation(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		var seen atomic.Value
		b.serve(func(w http.ResponseWriter, r *http.Request) {
			seen.Store(r.Header.Get("Authorization"))
			ok(w, r)
		})
		c := check()
		c.HTTP.TokenFile = file(t, []byte("one\n"))
		b.healthy(c)
		if got := seen.Load(); got != "Bearer one" {
			t.Errorf("sent %q", got)
		}
		put(t, c.HTTP.TokenFile, []byte("two"))
		pass(200 * time.Millisecond)
		if got := seen.Load(); got != "Bearer two" {
			t.Errorf("sent %q after the token changed", got)
		}
		must.Do(t, os.Remove(c.HTTP.TokenFile))
		pass(time.Minute)
		b.want(health.Healthy, "200")
		if w := b.verdict().Warning; !strings.Contains(w, "no such file") {
			t.Errorf("warning %q", w)
		}
	})(t)
}

// A certificate expires while the check runs: first a warning for a week, then a failure at the next fresh connection.
func TestCertificateExpiresMeanwhile(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		ca := newAuthority(t, "ca", year)
		b.serveTLS(ok, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, lives(-year, 9*day)).tls()}})
		c := check(overTLS(t, ca))
		c.Interval = time.Hour
		b.apply(c)
		pass(day)
		b.wantHistory("healthy")
		pass(2 * day)
		if w := b.verdict().Warning; w != "server certificate expires in 6 days (2000-01-10)" && w != "server certificate expires in 5 days (2000-01-10)" {
			t.Errorf("warning %q", w)
		}
		pass(7 * day)
		b.want(health.Unhealthy, "certificate expired on 2000-01-10")
	})(t)
}
