package stub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files that TLS keeps in its folder.
const (
	caCertFile = "ca.crt" // what clients trust
	caFile     = "ca.pem" // the CA's certificate and key
)

// TLS returns a server configuration with a new certificate for names, which
// are DNS names and IP addresses. It is signed by the CA in folder dir, made
// if absent, whose certificate clients find there as ca.crt. Servers that
// start at the same time may share the folder.
func TLS(dir string, names []string) (*tls.Config, error) {
	ca, err := loadCA(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeCA(dir); err == nil {
			ca, err = loadCA(dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("CA in %s: %w", dir, err)
	}
	// Written by all who share the folder, so that it is there when the first of them serves.
	if err := writeFile(filepath.Join(dir, caCertFile), pemCert(ca.Certificate[0]), 0o644, os.Rename); err != nil {
		return nil, fmt.Errorf("CA certificate in %s: %w", dir, err)
	}
	cert, err := issue(ca, names)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}}, nil
}

func loadCA(dir string) (tls.Certificate, error) {
	path := filepath.Join(dir, caFile)
	return tls.LoadX509KeyPair(path, path)
}

// makeCA writes a new CA into dir. The first of several that try at once wins,
// and is whom the others then load.
func makeCA(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := template("herald-testenv CA")
	if err != nil {
		return err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	content := append(pemCert(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// A link, unlike a rename, fails if the name is taken.
	err = writeFile(filepath.Join(dir, caFile), content, 0o600, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// issue makes a server certificate signed by ca.
func issue(ca tls.Certificate, names []string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template, err := template("herald-testenv server")
	if err != nil {
		return tls.Certificate{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// template is what all certificates have in common.
func template(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
	}, nil
}

func pemCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// writeFile makes content appear at path as a whole: it is written to another
// file first, which place then puts there.
func writeFile(path string, content []byte, mode fs.FileMode, place func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return place(f.Name(), path)
}
