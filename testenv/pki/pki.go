// Package pki makes the certificates of a lab's apiservers and their clients, in a folder
// like kubeadm's.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// PKI is a CA, and the folder of the certificates that it signed.
type PKI struct {
	Dir string
	ca  *x509.Certificate
	key crypto.Signer
}

// New makes a CA and signs a certificate of apiservers for names, which are DNS names and
// addresses.
func New(dir string, names ...string) (*PKI, error) {
	p := &PKI{Dir: dir, ca: &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubernetes"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, name)
		}
	}
	if err := p.Issue("ca", p.ca); err != nil {
		return nil, err
	}
	return p, p.Issue("apiserver", server)
}

// Issue completes the certificate, which by default is valid for a day, signs it, and
// writes it and a new key.
func (p *PKI) Issue(name string, c *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return err
	}
	c.NotBefore = time.Now().Add(-2 * time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(24 * time.Hour)
	}
	c.KeyUsage |= x509.KeyUsageDigitalSignature
	if c.IsCA {
		p.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, p.ca, key.Public(), p.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return errors.Join(err, p.write(name+".crt", "CERTIFICATE", der), p.write(name+".key", "PRIVATE KEY", private))
}

func (p *PKI) write(name, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(p.Dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// IssueClient issues the certificate of a user in groups.
func (p *PKI) IssueClient(name, user string, groups ...string) error {
	return p.Issue(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Pair reads a certificate and its key.
func (p *PKI) Pair(name string) (tls.Certificate, error) {
	return tls.LoadX509KeyPair(filepath.Join(p.Dir, name+".crt"), filepath.Join(p.Dir, name+".key"))
}
