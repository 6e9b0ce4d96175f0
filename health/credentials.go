package health

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// credentials authenticate the check to the server and verify the server's certificate. Their
// files may be replaced while the check runs.
type credentials struct {
	check HTTP
	url   *url.URL
	ca    rotated[authorities]
	pair  rotated[tls.Certificate]
	token rotated[string]
	alpn  string // the protocol spoken over the connection

	tls     *tls.Config // nil until refresh has succeeded once
	request []byte      // as sent over the wire, token included
	server  validity    // of the server's certificate, when last seen
	asked   bool        // the server wanted a client certificate in some handshake
}

// authorities are the certificates of a CA file.
type authorities struct {
	pool *x509.CertPool
	last validity // of the certificate that expires last
}

func newCredentials(check HTTP, u *url.URL, protocol string) *credentials {
	pair := func(data [][]byte) (tls.Certificate, error) { return tls.X509KeyPair(data[0], data[1]) }
	return &credentials{
		check: check, url: u, alpn: protocol,
		ca:    rotated[authorities]{what: "caFile", paths: []string{check.CAFile}, parse: parseAuthorities},
		pair:  rotated[tls.Certificate]{what: "client certificate", paths: []string{check.ClientCertFile, check.ClientKeyFile}, parse: pair},
		token: rotated[string]{what: "tokenFile", paths: []string{check.TokenFile}, parse: parseToken},
	}
}

// TryAuthorities returns an error if a check could not use the certificates in a caFile.
func TryAuthorities(caFile string) error {
	c := newCredentials(HTTP{CAFile: caFile}, nil, "")
	c.ca.refresh()
	return c.ca.missing()
}

// refresh reads changed files again. It fails only while a file has never been read successfully.
func (c *credentials) refresh() error {
	changed := c.ca.refresh()
	changed = c.pair.refresh() || changed
	changed = c.token.refresh() || changed
	if err := cmp.Or(c.ca.missing(), c.pair.missing(), c.token.missing()); err != nil {
		return err
	}
	if !changed && c.tls != nil {
		return nil
	}
	request, err := renderRequest(c.url, c.token.value)
	if err != nil {
		return err
	}
	pair := c.pair.value
	c.request = request
	c.tls = &tls.Config{
		RootCAs:            c.ca.value.pool, // nil means the system's
		ServerName:         cmp.Or(c.check.ServerName, c.url.Hostname()),
		InsecureSkipVerify: c.check.InsecureSkipVerify,
		NextProtos:         []string{c.alpn},
		// By default, crypto/tls sends no certificate to a server that does not list its
		// issuer, and the server would then report a missing certificate.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c.asked = true
			return &pair, nil // empty if there is none
		},
	}
	return nil
}

func renderRequest(u *url.URL, token string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "herald")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	var b bytes.Buffer
	err = req.Write(&b)
	return b.Bytes(), err
}

func parseAuthorities(data [][]byte) (authorities, error) {
	a := authorities{pool: x509.NewCertPool()}
	for block, rest := pem.Decode(data[0]); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return a, err
		}
		a.pool.AddCert(cert)
		if cert.NotAfter.After(a.last.until) {
			a.last = validity{cert.NotBefore, cert.NotAfter}
		}
	}
	if a.last.until.IsZero() {
		return a, errors.New("no PEM certificate in it")
	}
	return a, nil
}

func parseToken(data [][]byte) (string, error) {
	token := strings.TrimSpace(string(data[0]))
	if token == "" {
		return "", errors.New("it is empty")
	}
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", errors.New("it is not one word of printable ASCII")
	}
	return token, nil
}

// client returns the validity of the client certificate; zero if there is none.
func (c *credentials) client() validity {
	if leaf := c.pair.value.Leaf; leaf != nil {
		return validity{leaf.NotBefore, leaf.NotAfter}
	}
	return validity{}
}

// warning lists unreadable files and certificates that expire soon.
func (c *credentials) warning(now time.Time) string {
	var all []string
	for _, err := range []error{c.ca.stale(), c.pair.stale(), c.token.stale()} {
		if err != nil {
			all = append(all, err.Error()+": still using the previous content")
		}
	}
	for _, v := range []struct {
		what string
		validity
	}{
		{"caFile", c.ca.value.last},
		{"client certificate", c.client()},
		{"server certificate", c.server},
	} {
		if s := v.warning(now); s != "" {
			all = append(all, v.what+" "+s)
		}
	}
	return strings.Join(all, "; ")
}
