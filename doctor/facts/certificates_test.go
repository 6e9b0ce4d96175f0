package facts

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	"github.com/herald-vip/herald/testenv/must"
)

func FuzzParseCertificate(f *testing.F) {
	public, key, err := ed25519.GenerateKey(nil)
	must.Do(f, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, template, template, public, key)
	must.Do(f, err)
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if parseCertificate(good) == nil {
		f.Error("a certificate is not recognised")
	}
	f.Add(good)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cert := parseCertificate(b); cert != nil && len(cert.Raw) == 0 {
			t.Errorf("%q has an empty certificate", b)
		}
	})
}
