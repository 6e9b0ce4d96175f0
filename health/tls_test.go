package health_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

// overTLS makes the check an https check that trusts ca.
func overTLS(t *testing.T, ca *identity) func(*health.Check) {
	return func(c *health.Check) {
		c.HTTP.URL = "https://127.0.0.1:6443/readyz"
		c.HTTP.CAFile = file(t, ca.certPEM())
	}
}

// as makes the check present a client certificate.
func as(t *testing.T, client *identity) func(*health.Check) {
	return func(c *health.Check) {
		c.HTTP.ClientCertFile = file(t, client.certPEM())
		c.HTTP.ClientKeyFile = file(t, client.keyPEM(t))
	}
}

// In a synctest bubble it is the year 2000.
func TestTLS(t *testing.T) {
	type world struct {
		ca, other *identity
		server    *tls.Config // certificate of ca by default
		handler   http.HandlerFunc
		check     *health.Check // overTLS(ca) by default
	}
	demand := func(w *world) { w.server.ClientAuth, w.server.ClientCAs = tls.RequireAndVerifyClientCert, w.ca.pool() }
	serve := func(w *world, i *identity) { w.server.Certificates = []tls.Certificate{i.tls()} }
	for _, tt := range []struct {
		name    string
		arrange func(*testing.T, *world)
		state   health.State
		reason  string
		warning string
	}{
		{name: "good", arrange: func(*testing.T, *world) {}, state: health.Healthy, reason: "200 in "},
		{
			name: "a choice of HTTP versions",
			arrange: func(t *testing.T, w *world) {
				w.server.NextProtos = []string{"h2", "http/1.1"}
				w.handler = func(rw http.ResponseWriter, r *http.Request) {
					if r.TLS.NegotiatedProtocol != "http/1.1" {
						t.Errorf("negotiated %q", r.TLS.NegotiatedProtocol)
					}
					ok(rw, r)
				}
			},
			state: health.Healthy,
		},
		{
			name:    "expired",
			arrange: func(t *testing.T, w *world) { serve(w, w.ca.issue(t, lives(-year, -10*day))) },
			reason:  "GET https://127.0.0.1:6443/readyz: certificate expired on 1999-12-22",
		}, {
			name:    "not valid yet",
			arrange: func(t *testing.T, w *world) { serve(w, w.ca.issue(t, lives(day, year))) },
			reason:  "certificate is valid only from 2000-01-02: compare the clocks",
		}, {
			name:    "unknown authority",
			arrange: func(t *testing.T, w *world) { serve(w, w.other.issue(t)) },
			reason:  "certificate signed by an unknown authority (caFile /",
		}, {
			name:    "no caFile",
			arrange: func(_ *testing.T, w *world) { w.check.HTTP.CAFile = "" },
			reason:  "certificate signed by an unknown authority: set caFile",
		}, {
			name: "wrong name",
			arrange: func(t *testing.T, w *world) {
				serve(w, w.ca.issue(t, func(c *x509.Certificate) {
					c.DNSNames, c.IPAddresses = []string{"kubernetes"}, []net.IP{net.IPv4(10, 0, 0, 1)}
				}))
			},
			reason: "certificate is for kubernetes, 10.0.0.1, not for 127.0.0.1: set serverName",
		}, {
			name: "serverName",
			arrange: func(t *testing.T, w *world) {
				serve(w, w.ca.issue(t, func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"kubernetes"}, nil }))
				w.check.HTTP.ServerName = "kubernetes"
			},
			state: health.Healthy,
		}, {
			name: "insecureSkipVerify",
			arrange: func(t *testing.T, w *world) {
				serve(w, w.other.issue(t, lives(-year, -day)))
				w.check.HTTP.InsecureSkipVerify = true
			},
			state: health.Healthy, warning: "server certificate expired on 1999-12-31",
		}, {
			name: "authority expired",
			arrange: func(t *testing.T, w *world) {
				old := newAuthority(t, "old", -day)
				serve(w, old.issue(t))
				w.check.HTTP.CAFile = file(t, old.certPEM())
			},
			reason: "check's own: caFile /", warning: "caFile expired on 1999-12-31",
		}, {
			name: "two authorities, one expired",
			arrange: func(t *testing.T, w *world) {
				w.check.HTTP.CAFile = file(t, append(newAuthority(t, "old", -day).certPEM(), w.ca.certPEM()...))
			},
			state: health.Healthy,
		}, {
			name:    "server certificate expires soon",
			arrange: func(t *testing.T, w *world) { serve(w, w.ca.issue(t, lives(-year, 5*day+time.Hour))) },
			state:   health.Healthy, warning: "server certificate expires in 5 days (2000-01-06)",
		}, {
			name:    "client certificate missing",
			arrange: func(_ *testing.T, w *world) { demand(w) },
			reason:  "the server wants a client certificate, set clientCertFile: tls: certificate required",
		}, {
			name: "client certificate missing, TLS 1.2",
			arrange: func(_ *testing.T, w *world) {
				demand(w)
				w.server.MaxVersion = tls.VersionTLS12
			},
			reason: "the server wants a client certificate, set clientCertFile: tls: ",
		}, {
			name: "client certificate",
			arrange: func(t *testing.T, w *world) {
				demand(w)
				as(t, w.ca.issue(t))(w.check)
			},
			state: health.Healthy,
		}, {
			name: "client certificate of a stranger",
			arrange: func(t *testing.T, w *world) {
				demand(w)
				as(t, w.other.issue(t))(w.check)
			},
			reason: "check's own: the server rejects the client certificate: tls: ",
		}, {
			name: "client certificate expired",
			arrange: func(t *testing.T, w *world) {
				demand(w)
				as(t, w.ca.issue(t, lives(-year, -day)))(w.check)
			},
			reason: "check's own: client certificate expired on 1999-12-31", warning: "client certificate expired on 1999-12-31",
		}, {
			name: "client certificate expired, 401",
			arrange: func(t *testing.T, w *world) {
				as(t, w.ca.issue(t, lives(-year, -day)))(w.check)
				w.handler = status(401, "")
			},
			reason: "check's own: client certificate expired on 1999-12-31 (401)", warning: "client certificate expired on 1999-12-31",
		}, {
			name:    "client certificate expired but not needed",
			arrange: func(t *testing.T, w *world) { as(t, w.ca.issue(t, lives(-year, -day)))(w.check) },
			state:   health.Healthy, warning: "client certificate expired on 1999-12-31",
		}, {
			name:    "401 for everyone",
			arrange: func(_ *testing.T, w *world) { w.handler = status(401, "") },
			reason:  "401: anonymous access is off, set clientCertFile or tokenFile",
		}, {
			name: "token rejected",
			arrange: func(t *testing.T, w *world) {
				w.check.HTTP.TokenFile = file(t, []byte("old\n"))
				w.handler = status(401, "")
			},
			reason: "check's own: 401: the server does not accept the client certificate or token",
		}, {
			name: "token not permitted",
			arrange: func(t *testing.T, w *world) {
				w.check.HTTP.TokenFile = file(t, []byte("weak\n"))
				w.handler = status(403, "")
			},
			reason: "check's own: 403: the client certificate or token does not permit GET /readyz",
		}, {
			name:    "no caFile there",
			arrange: func(_ *testing.T, w *world) { w.check.HTTP.CAFile = "/nowhere/ca.crt" },
			reason:  "check's own: caFile /nowhere/ca.crt: no such file or directory",
		}, {
			name:    "caFile without a certificate",
			arrange: func(t *testing.T, w *world) { w.check.HTTP.CAFile = file(t, []byte("hello")) },
			reason:  ": no PEM certificate in it",
		}, {
			name: "caFile is a pipe",
			arrange: func(t *testing.T, w *world) {
				w.check.HTTP.CAFile = filepath.Join(t.TempDir(), "fifo")
				must.Do(t, syscall.Mkfifo(w.check.HTTP.CAFile, 0o600))
			},
			reason: ": not a regular file",
		}, {
			name: "key of another certificate",
			arrange: func(t *testing.T, w *world) {
				as(t, w.ca.issue(t))(w.check)
				w.check.HTTP.ClientKeyFile = file(t, w.other.keyPEM(t))
			},
			reason: "tls: private key does not match public key",
		}, {
			name:    "no token in its file",
			arrange: func(t *testing.T, w *world) { w.check.HTTP.TokenFile = file(t, []byte("\n")) },
			reason:  "check's own: tokenFile /",
		}, {
			name:    "token that would forge a header",
			arrange: func(t *testing.T, w *world) { w.check.HTTP.TokenFile = file(t, []byte("a\r\nX: y")) },
			reason:  ": it is not one word of printable ASCII",
		}, {
			name:    "http to https",
			arrange: func(_ *testing.T, w *world) { w.check.HTTP.URL = "http://127.0.0.1:6443/readyz" },
			reason:  "400: Client sent an HTTP request to an HTTPS server.",
		}, {
			name:    "https to http",
			arrange: func(_ *testing.T, w *world) { w.server = nil },
			reason:  "the server does not speak TLS",
		},
	} {
		t.Run(tt.name, onRig(func(t *testing.T, b *rig) {
			w := &world{ca: newAuthority(t, "ca", 10*year), other: newAuthority(t, "other", 10*year), handler: ok}
			c := check(once, overTLS(t, w.ca))
			w.server, w.check = &tls.Config{Certificates: []tls.Certificate{w.ca.issue(t).tls()}}, &c
			tt.arrange(t, w)
			if w.server != nil {
				b.serveTLS(w.handler, w.server)
			} else {
				b.serve(w.handler)
			}
			b.apply(c)
			pass(time.Second)
			want := tt.state
			if want == health.Unknown {
				want = health.Unhealthy
			}
			b.want(want, tt.reason)
			if got := b.verdict().Warning; got != tt.warning {
				t.Errorf("warning %q, want %q", got, tt.warning)
			}
		}))
	}
}

// Over TLS, the monitor watches the TLS connection.
func TestTLSConnectionMonitor(t *testing.T) {
	onRig(func(t *testing.T, b *rig) {
		ca := newAuthority(t, "ca", year)
		b.serveTLS(ok, &tls.Config{Certificates: []tls.Certificate{ca.issue(t).tls()}})
		b.healthy(check(overTLS(t, ca), fall(10)))
		pass(70 * time.Millisecond)
		b.kill(false)
		synctest.Wait()
		b.wantHistory("healthy unhealthy")
	})(t)
}
