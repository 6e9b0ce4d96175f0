package health_test

import (
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

	"github.com/herald-vip/herald/testenv/must"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// identity is a certificate with its key.
type identity struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes a certificate authority that is valid for the given time from now.
func newAuthority(t testing.TB, name string, left time.Duration) *identity {
	return issue(t, nil, name, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		c.NotAfter = time.Now().Add(left)
	})
}

// issue makes a certificate for 127.0.0.1, valid for a year from yesterday and changed by adjust.
func (i *identity) issue(t testing.TB, adjust ...func(*x509.Certificate)) *identity {
	return issue(t, i, "kube-apiserver", append([]func(*x509.Certificate){func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}}, adjust...)...)
}

func issue(t testing.TB, parent *identity, name string, adjust ...func(*x509.Certificate)) *identity {
	t.Helper()
	key := must.Get[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	serial := must.Get[*big.Int](t)(rand.Int(rand.Reader, big.NewInt(1<<62)))
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-day),
		NotAfter:     time.Now().Add(year),
	}
	for _, a := range adjust {
		a(template)
	}
	signer, signerKey := template, key
	if parent != nil {
		signer, signerKey = parent.cert, parent.key
	}
	der := must.Get[[]byte](t)(x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey))
	cert := must.Get[*x509.Certificate](t)(x509.ParseCertificate(der))
	return &identity{cert, key}
}

func (i *identity) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

func (i *identity) keyPEM(t testing.TB) []byte {
	der := must.Get[[]byte](t)(x509.MarshalPKCS8PrivateKey(i.key))
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (i *identity) tls() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{i.cert.Raw}, PrivateKey: i.key}
}

func (i *identity) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(i.cert)
	return pool
}

// put replaces a file atomically, by a rename.
func put(t testing.TB, path string, data []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(path+".new", data, 0o600))
	must.Do(t, os.Rename(path+".new", path))
}

// file puts data into a new file and returns its path.
func file(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	put(t, path, data)
	return path
}

func lives(from, until time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(until) }
}
