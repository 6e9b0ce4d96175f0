package health

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
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
	req, err := http.NewRequest(http.MethodGet, c.url.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "herald")
	if c.token.value != "" {
		req.Header.Set("Authorization", "Bearer "+c.token.value)
	}
	var request bytes.Buffer
	if err := req.Write(&request); err != nil {
		return err
	}
	pair := c.pair.value
	c.request = request.Bytes()
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

// rotated is a value read from files that may be replaced at any time. A bad or
// half-written new version leaves the last good value in place.
type rotated[T any] struct {
	what  string
	paths []string // if the first is empty, value stays zero
	parse func(data [][]byte) (T, error)

	value T
	good  bool          // value has been read
	err   error         // of the last read
	seen  []os.FileInfo // of the files that value came from; nil after an error
}

// refresh reads the files again if they changed, and reports whether value did.
func (r *rotated[T]) refresh() bool {
	if r.paths[0] == "" {
		return false
	}
	// Stat before reading: a write in between shows as a change at the next call.
	infos, err := statAll(r.paths)
	if err == nil && slices.EqualFunc(infos, r.seen, sameFile) {
		return false
	}
	var value T
	if err == nil {
		value, err = r.read()
	}
	if err != nil {
		// Read again at the next call: the fault may be this process's, such as a lack of
		// descriptors, and not the file's.
		r.err, r.seen = fmt.Errorf("%s %w", r.what, err), nil
		return false
	}
	r.value, r.good, r.err, r.seen = value, true, nil, infos
	return true
}

func (r *rotated[T]) read() (value T, err error) {
	data := make([][]byte, len(r.paths))
	for i, path := range r.paths {
		if data[i], err = readSmall(path); err != nil {
			return value, err
		}
	}
	if value, err = r.parse(data); err != nil {
		return value, fmt.Errorf("%s: %w", strings.Join(r.paths, ", "), err)
	}
	return value, nil
}

// missing returns the last error while no value has been read.
func (r *rotated[T]) missing() error {
	if r.good {
		return nil
	}
	return r.err
}

// stale returns the last error while an older value is in use.
func (r *rotated[T]) stale() error {
	if !r.good {
		return nil
	}
	return r.err
}

func statAll(paths []string) ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, pathError(path, err)
		}
		if !info.Mode().IsRegular() { // a FIFO would block, a device never end
			return nil, fmt.Errorf("%s: not a regular file", path)
		}
		infos[i] = info
	}
	return infos, nil
}

func sameFile(x, y os.FileInfo) bool {
	return os.SameFile(x, y) && x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
}

func readSmall(path string) ([]byte, error) {
	const maxFile = 1 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, pathError(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, pathError(path, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than 1 MiB", path)
	}
	return data, nil
}

// pathError adds the path to an error and drops the name of the system call.
func pathError(path string, err error) error { return fmt.Errorf("%s: %w", path, bare(err)) }

// bare returns err without the path and the system call.
func bare(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
