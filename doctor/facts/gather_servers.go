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
	// checksTimeout limits the wait for slow servers; a check may take up to a minute.
	checksTimeout = 8 * time.Second
	// inspectTimeout bounds a TLS handshake and a request to the API server; resolveTimeout bounds DNS.
	inspectTimeout = 3 * time.Second
	resolveTimeout = 2 * time.Second
	// maxNames limits the names of a certificate that are looked up.
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

// absentFiles returns the checks with a missing file.
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

// inspect reads the server and client certificates of https checks.
func inspect(ctx context.Context, c *config.Config) map[string]Endpoint {
	asking := slices.DeleteFunc(slices.Clone(c.Checks), func(k health.Check) bool { return k.HTTP == nil })
	return together(asking, func(k health.Check) string { return k.Name }, func(k health.Check) Endpoint { return inspectServer(ctx, c, k) })
}

// inspectServer reads the certificates of an https check, without verifying them.
func inspectServer(ctx context.Context, c *config.Config, k health.Check) Endpoint {
	u, err := url.Parse(k.HTTP.URL)
	if err != nil || u.Scheme != "https" {
		return Endpoint{}
	}
	shown, _ := os.ReadFile(k.HTTP.ClientCertFile) // the check reports the error
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
		InsecureSkipVerify: true, // examineCertificates verifies it
		VerifyConnection: func(s tls.ConnectionState) error {
			e.Chain = s.PeerCertificates
			return nil
		},
	}}
	// A server that wants a client certificate may end the handshake, but sends its own certificate first.
	if conn, err := dialer.DialContext(handshake, "tcp", e.Address); err == nil {
		conn.Close()
	}
	lacks := func(front Front) bool {
		return slices.ContainsFunc(front.Addresses, func(addr netip.Addr) bool { return e.NameOf(addr) == "" })
	}
	if len(e.Chain) > 0 && slices.ContainsFunc(Fronts(c, k), lacks) {
		e.Resolved = resolve(ctx, e.Chain[0].DNSNames)
	}
	return e
}

// resolve looks up the names of a certificate that clients of a VIP may use.
func resolve(ctx context.Context, names []string) map[string][]netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	return together(names[:min(len(names), maxNames)], itself, func(name string) (found []netip.Addr) {
		if !strings.Contains(name, ".") || strings.Contains(name, "*") || strings.HasPrefix(name, "kubernetes.") {
			return nil // resolves inside the cluster only, or is no name
		}
		addrs, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		for _, addr := range addrs {
			found = append(found, addr.Unmap())
		}
		return found
	})
}

// readRoots reads the authorities of a file. It returns nil, for the system's, without a file, and an
// empty pool if the file cannot be read: the check reports that.
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

// parseCertificate returns the first certificate of a PEM file; nil if there is none.
func parseCertificate(data []byte) *x509.Certificate {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert, _ := x509.ParseCertificate(block.Bytes) // nil in case of an error
			return cert
		}
	}
	return nil
}

// askTenants lists the Tenants of the cluster of the announced Services; none without a kubeconfig or the
// service account of a pod.
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
