//go:build e2e

package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pki is the certificates and keys of the masters, in a folder like kubeadm's.
type pki struct {
	dir string
	ca  *x509.Certificate
	key crypto.Signer
}

// newPKI makes a CA, and what it signs for apiservers and their health checks.
func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{dir: t.TempDir()}
	p.ca = &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubernetes"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	p.key = p.issue(t, "ca", p.ca)
	p.issue(t, "apiserver", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"kubernetes", "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(vip4), net.ParseIP(vip6)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	p.issue(t, "health", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "herald"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	must(t, err)
	p.write(t, "sa.pub", "PUBLIC KEY", public)
	p.writeKey(t, "sa", key)
	return p
}

// issue completes the certificate, which is valid for a day unless it says otherwise, has the CA sign it, and writes it and a new key, which it returns.
func (p *pki) issue(t *testing.T, name string, c *x509.Certificate) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	must(t, err)
	c.NotBefore = time.Now().Add(-2 * time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(24 * time.Hour)
	}
	c.KeyUsage |= x509.KeyUsageDigitalSignature
	signer := p.key
	if c.IsCA {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, p.ca, key.Public(), signer)
	must(t, err)
	p.write(t, name+".crt", "CERTIFICATE", der)
	p.writeKey(t, name, key)
	return key
}

func (p *pki) writeKey(t *testing.T, name string, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	p.write(t, name+".key", "PRIVATE KEY", der)
}

func (p *pki) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(p.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// client is how a health check speaks to an apiserver.
func (p *pki) client(t *testing.T) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(p.dir, "ca.crt"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	cert, err := tls.LoadX509KeyPair(filepath.Join(p.dir, "health.crt"), filepath.Join(p.dir, "health.key"))
	must(t, err)
	return &tls.Config{RootCAs: roots, ServerName: "kubernetes", Certificates: []tls.Certificate{cert}}
}
