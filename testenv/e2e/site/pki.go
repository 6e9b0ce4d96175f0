//go:build e2e

package site

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"

	"github.com/herald-vip/herald/testenv/pki"
)

// PKI holds the certificates and keys of the masters.
type PKI struct{ *pki.PKI }

// NewPKI makes a CA, and certificates for apiservers, their health checks and administrators.
func NewPKI(t *testing.T) *PKI {
	t.Helper()
	p, err := pki.New(t.TempDir(), "kubernetes", "localhost", "127.0.0.1", "::1", VIP4, VIP6)
	Must(t, err)
	Must(t, p.IssueClient("health", "herald"))
	Must(t, p.IssueClient("admin", "admin", "system:masters"))
	return &PKI{p}
}

// Server issues a certificate and returns the TLS configuration of its server.
func (p *PKI) Server(t *testing.T, name string, c *x509.Certificate) *tls.Config {
	t.Helper()
	Must(t, p.Issue(name, c))
	return &tls.Config{Certificates: []tls.Certificate{p.Pair(t, name)}}
}

// Pair returns a certificate with its key.
func (p *PKI) Pair(t *testing.T, name string) tls.Certificate {
	t.Helper()
	pair, err := p.PKI.Pair(name)
	Must(t, err)
	return pair
}

// CA returns the CA's certificate.
func (p *PKI) CA(t *testing.T) []byte {
	t.Helper()
	return []byte(ReadFile(t, filepath.Join(p.Dir, "ca.crt")))
}

// Client returns the TLS configuration of a health check of an apiserver.
func (p *PKI) Client(t *testing.T) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CA(t))
	return &tls.Config{RootCAs: roots, ServerName: "kubernetes", Certificates: []tls.Certificate{p.Pair(t, "health")}}
}
