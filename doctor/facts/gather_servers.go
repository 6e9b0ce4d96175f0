package facts

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service/kube"
)

const (
	// checksTimeout is how long slow servers are waited for; checks may take up to a minute.
	checksTimeout = 8 * time.Second
	// inspectTimeout bounds a TLS handshake, and a question to the API server; resolveTimeout those to DNS.
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
	m := health.NewMonitor(nil, func(health.Verdict) { wake.Up(told) })
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

// absentFiles are the checks of which a file is not there.
func absentFiles(c *config.Config) map[string]bool {
	out := make(map[string]bool)
	for _, k := range c.Checks {
		for _, file := range k.Files() {
			if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
				out[k.Name] = true
			}
		}
	}
	return out
}

// inspect takes the certificates of https checks: of their servers, and those that
// they show to them.
func inspect(ctx context.Context, c *config.Config) map[string]Endpoint {
	asking := slices.DeleteFunc(slices.Clone(c.Checks), func(k health.Check) bool { return k.HTTP == nil })
	return together(asking, func(k health.Check) string { return k.Name }, func(k health.Check) Endpoint { return inspectServer(ctx, c, k) })
}

// inspectServer takes the certificate of a server by https, whether or not it can be trusted.
func inspectServer(ctx context.Context, c *config.Config, k health.Check) Endpoint {
	u, err := url.Parse(k.HTTP.URL)
	if err != nil || u.Scheme != "https" {
		return Endpoint{}
	}
	shown, _ := os.ReadFile(k.HTTP.ClientCertFile) // the check says if it cannot
	e := Endpoint{
		Address:    net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")),
		ServerName: cmp.Or(k.HTTP.ServerName, u.Hostname()),
		Client:     parseCertificate(shown),
		Roots:      readRoots(k.HTTP.CAFile),
	}
	handshake, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName:         e.ServerName,
		InsecureSkipVerify: true, // it is examined afterwards, piece by piece
		VerifyConnection: func(s tls.ConnectionState) error {
			e.Chain = s.PeerCertificates
			return nil
		},
	}}
	// A server that wants a client certificate may break off, but not before it has shown its own.
	if conn, err := dialer.DialContext(handshake, "tcp", e.Address); err == nil {
		conn.Close()
	}
	if len(e.Chain) > 0 && missing(c, k, e) {
		e.Resolved = resolve(ctx, e.Chain[0].DNSNames)
	}
	return e
}

// missing says whether a certificate lacks an address of the VIPs that depend on the check.
func missing(c *config.Config, k health.Check, e Endpoint) bool {
	return slices.ContainsFunc(Fronts(c, k), func(front Front) bool {
		return slices.ContainsFunc(front.Addresses, func(addr netip.Addr) bool { return e.NameOf(addr) == "" })
	})
}

// resolve looks up the names of a certificate that clients of a VIP may use.
func resolve(ctx context.Context, names []string) map[string][]netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	return together(names[:min(len(names), maxNames)], itself, func(name string) (found []netip.Addr) {
		if !strings.Contains(name, ".") || strings.Contains(name, "*") || strings.HasPrefix(name, "kubernetes.") {
			return nil // of use inside the cluster only, or no name at all
		}
		addrs, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		for _, addr := range addrs {
			found = append(found, addr.Unmap())
		}
		return found
	})
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

// parseCertificate is the first certificate of a PEM file; nil if there is none.
func parseCertificate(data []byte) *x509.Certificate {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert, _ := x509.ParseCertificate(block.Bytes) // nil in case of an error
			return cert
		}
	}
	return nil
}

// askTenants lists the Tenants of the cluster whose Services this node announces. Outside of the pod whose account may ask
// there are none.
func askTenants(ctx context.Context, c *config.Config) ([]v1alpha1.Tenant, error) {
	if c.Services == nil {
		return nil, nil
	}
	cluster, err := kube.Connect(c.Services.Kubeconfig, "herald-doctor/"+c.NodeName)
	switch {
	case err != nil && c.Services.Kubeconfig == "":
		return nil, nil
	case err != nil:
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	return cluster.Tenants(ctx)
}
