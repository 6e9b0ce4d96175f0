package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
)

const (
	// checksTimeout is how long slow servers are waited for; checks may take up to a minute.
	checksTimeout = 8 * time.Second
	// inspectTimeout bounds a TLS handshake, resolveTimeout the questions to DNS after it.
	inspectTimeout = 3 * time.Second
	resolveTimeout = 2 * time.Second
	// maxNames is how many names of a certificate are asked for.
	maxNames = 16
)

// probeChecks probes each check once.
func probeChecks(ctx context.Context, checks []health.Check) []health.Verdict {
	ctx, cancel := context.WithTimeout(ctx, checksTimeout)
	defer cancel()
	for i := range checks {
		checks[i].Rise, checks[i].Fall, checks[i].Interval = 1, 1, 2*checksTimeout
	}
	told := make(chan struct{}, 1)
	m := health.NewMonitor(nil, func(health.Verdict) {
		select {
		case told <- struct{}{}:
		default: // somebody looks already
		}
	})
	defer m.Close()
	if err := m.Apply(checks); err != nil {
		return nil // a valid configuration has valid checks
	}
	for {
		verdicts, open := m.Verdicts(), 0
		for _, v := range verdicts {
			if v.State == health.Unknown && v.Warning == "" {
				open++
			}
		}
		if open == 0 {
			return verdicts
		}
		select {
		case <-told:
		case <-ctx.Done():
			return m.Verdicts()
		}
	}
}

// inspect takes the certificates of https checks: of their servers, and those that
// they show to them.
func inspect(ctx context.Context, c *config.Config) (map[string]Endpoint, map[string]*x509.Certificate) {
	endpoints, clients := make(map[string]Endpoint), make(map[string]*x509.Certificate)
	found := make([]Endpoint, len(c.Checks))
	var all sync.WaitGroup
	for i, k := range c.Checks {
		if k.HTTP == nil {
			continue
		}
		if cert := readCertificate(k.HTTP.ClientCertFile); cert != nil {
			clients[k.Name] = cert
		}
		if u, err := url.Parse(k.HTTP.URL); err == nil && u.Scheme == "https" {
			all.Go(func() { found[i] = inspectServer(ctx, c, k, u) })
		}
	}
	all.Wait()
	for i, k := range c.Checks {
		if len(found[i].Chain) > 0 {
			endpoints[k.Name] = found[i]
		}
	}
	return endpoints, clients
}

// inspectServer takes a server's certificate, whether or not it can be trusted.
func inspectServer(ctx context.Context, c *config.Config, k config.Check, u *url.URL) Endpoint {
	e := Endpoint{
		Address:    net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")),
		ServerName: cmp.Or(k.HTTP.ServerName, u.Hostname()),
		Roots:      readRoots(k.HTTP.CAFile),
	}
	handshake, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName:         e.ServerName,
		InsecureSkipVerify: true, // it is judged afterwards, piece by piece
		VerifyConnection: func(s tls.ConnectionState) error {
			e.Chain = s.PeerCertificates
			return nil
		},
	}}
	// A server that wants a client certificate may break off, but not before it has shown its own.
	if conn, err := dialer.DialContext(handshake, "tcp", e.Address); err == nil {
		conn.Close()
	}
	if len(e.Chain) > 0 {
		e.Resolved = resolve(ctx, e.Chain[0].DNSNames, missing(c, k, e))
	}
	return e
}

// missing says whether a certificate lacks an address of the VIPs that depend on the check.
func missing(c *config.Config, k config.Check, e Endpoint) bool {
	for _, f := range examineNames(c, k, "", e) {
		if f.Severity != OK {
			return true
		}
	}
	return false
}

// resolve looks up the names of a certificate that clients of a VIP may use, if need be.
func resolve(ctx context.Context, names []string, needed bool) map[string][]netip.Addr {
	if !needed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	names = names[:min(len(names), maxNames)]
	found := make([][]netip.Addr, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		if !strings.Contains(name, ".") || strings.Contains(name, "*") || strings.HasPrefix(name, "kubernetes.") {
			continue // of use inside the cluster only, or no name at all
		}
		all.Go(func() {
			addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
			if err != nil {
				return
			}
			for _, addr := range addrs {
				found[i] = append(found[i], addr.Unmap())
			}
		})
	}
	all.Wait()
	out := make(map[string][]netip.Addr)
	for i, name := range names {
		out[name] = found[i]
	}
	return out
}

// readRoots are the authorities of a file: none if it cannot be read, which the check
// says, and nil, for the system's, without a file.
func readRoots(file string) *x509.CertPool {
	if file == "" {
		return nil
	}
	pool := x509.NewCertPool()
	if data, err := os.ReadFile(file); err == nil {
		pool.AppendCertsFromPEM(data)
	}
	return pool
}

// readCertificate is the first certificate of a file; nil if there is none, which the
// check says.
func readCertificate(file string) *x509.Certificate {
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return parseCertificate(data)
}

// parseCertificate is the first certificate of a PEM file; nil if there is none.
func parseCertificate(data []byte) *x509.Certificate {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil
			}
			return cert
		}
	}
	return nil
}
