package doctor

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/testenv/must"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	var a authority
	a.cert = &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(t, a.cert)
	return a
}

// sign completes a certificate, valid for a year, and signs it with a; self-signed if a is empty.
func (a authority) sign(t testing.TB, c *x509.Certificate) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	c.SerialNumber = big.NewInt(1)
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = now.AddDate(-1, 0, 0), now.AddDate(1, 0, 0)
	}
	if a.key == nil {
		a.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	must.Do(t, err)
	signed, err := x509.ParseCertificate(der)
	must.Do(t, err)
	return signed, key
}

// endpoint is an apiserver with this certificate, signed by the authority of caFile.
func endpoint(t testing.TB, c *x509.Certificate) facts.Endpoint {
	t.Helper()
	ca := newAuthority(t)
	signed, _ := ca.sign(t, c)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	return facts.Endpoint{Address: "127.0.0.1:6443", ServerName: "kubernetes", Chain: []*x509.Certificate{signed}, Roots: roots}
}

func TestCertificates(t *testing.T) {
	lasts := func(from, until time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(from), now.Add(until) }
	}
	const day = 24 * time.Hour
	for _, test := range []struct {
		name     string
		issue    func(*x509.Certificate)
		serve    func(*config.Config, *facts.Endpoint)
		severity Severity
		want     string // part of the only finding that is not OK
	}{
		{name: "good", want: ""},
		{name: "expired", issue: lasts(-365*day, -day), severity: Blocker, want: "expired on 2026-11-20"},
		{name: "29 days left", issue: lasts(-336*day, 29*day), severity: Warning, want: "expires on 2026-12-20, in 29 days"},
		{name: "31 days left", issue: lasts(-334*day, 31*day)},
		{name: "short-lived and fresh", issue: lasts(-time.Hour, 23*time.Hour)},
		{name: "short-lived and late", issue: lasts(-20*time.Hour, 4*time.Hour), severity: Warning, want: "expires on 2026-11-21, in 4 h"},
		{name: "last hour", issue: lasts(-20*time.Hour, time.Minute), severity: Warning, want: "within the hour"},
		{name: "not yet valid", issue: lasts(time.Hour, 365*day), severity: Blocker, want: "valid only from 2026-11-21T13:00:00Z"},
		{name: "of another authority", serve: func(_ *config.Config, e *facts.Endpoint) { e.Roots = x509.NewCertPool() }, severity: Blocker, want: "not signed by caFile /etc/kubernetes/pki/ca.crt"},
		{name: "insecureSkipVerify", serve: func(c *config.Config, e *facts.Endpoint) {
			c.Checks[0].HTTP.InsecureSkipVerify, e.Roots = true, x509.NewCertPool()
		}},
		{name: "another name", serve: func(_ *config.Config, e *facts.Endpoint) { e.ServerName = "apiserver" }, severity: Blocker, want: "not for apiserver but for kubernetes, api.example.net, 127.0.0.1"},
		{name: "lacks a VIP", issue: func(c *x509.Certificate) { c.IPAddresses = c.IPAddresses[:2] }, severity: Blocker, want: "not for fd00:99::10, the VIP api"},
		{name: "has a name of the VIP", issue: func(c *x509.Certificate) { c.IPAddresses = c.IPAddresses[:2] }, serve: func(_ *config.Config, e *facts.Endpoint) {
			e.Resolved = map[string][]netip.Addr{"api.example.net": {netip.MustParseAddr("fd00:99::10")}}
		}},
		{name: "no apiserver", issue: func(c *x509.Certificate) { c.IPAddresses = c.IPAddresses[:2] },
			serve: func(c *config.Config, _ *facts.Endpoint) { c.Checks[0].HTTP.URL = "https://127.0.0.1:5001/v2/" }, severity: Warning, want: "not for fd00:99::10"},
		{name: "no VIP depends on it", issue: func(c *x509.Certificate) { c.IPAddresses = nil }, serve: func(c *config.Config, _ *facts.Endpoint) { c.VIPs[0].Checks = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, f := node(t, routedFile)
			cert := certificate()
			if test.issue != nil {
				test.issue(cert)
			}
			e := endpoint(t, cert)
			if test.serve != nil {
				test.serve(c, &e)
			}
			f.Endpoints = map[string]facts.Endpoint{"apiserver": e}
			switch wrong := faulty(examine(c, f)); {
			case test.want == "" && len(wrong) > 0:
				t.Errorf("got %+v", wrong)
			case test.want != "" && (len(wrong) != 1 || wrong[0].Topic != "certificate" || wrong[0].Severity != test.severity || !strings.Contains(wrong[0].Seen, test.want)):
				t.Errorf("got %+v, want a %s, %q", wrong, test.severity, test.want)
			}
		})
	}
}

// A client certificate of a check expires as any other.
func TestClientCertificate(t *testing.T) {
	c := parsed(t, routedFile)
	c.Checks[0].HTTP.ClientCertFile = "/etc/herald/client.crt"
	f := well(c)
	cert := certificate()
	cert.NotAfter = now.Add(-time.Hour)
	f.Endpoints = map[string]facts.Endpoint{"apiserver": {Client: cert}}
	if got := finding(t, examine(c, f), "certificate", "apiserver /etc/herald/client.crt"); got.Severity != Blocker {
		t.Errorf("%+v", got)
	}
}

// Any certificate that can be parsed can be reported.
func FuzzReport(f *testing.F) {
	f.Add(newAuthority(f).cert.Raw)
	c := parsed(f, routedFile)
	f.Fuzz(func(t *testing.T, b []byte) {
		cert, err := x509.ParseCertificate(b)
		if err != nil {
			return
		}
		seen := well(c)
		seen.Endpoints = map[string]facts.Endpoint{"apiserver": {ServerName: "kubernetes", Chain: []*x509.Certificate{cert}}}
		must.Do(t, newReport("v", "f", c, now, examine(c, seen)).WriteText(&strings.Builder{}))
	})
}
