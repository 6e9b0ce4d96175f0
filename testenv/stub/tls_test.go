package stub_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/herald-vip/herald/testenv/stub"
)

func ignoreSignals(t *testing.T) <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	t.Cleanup(func() { signal.Stop(signals) })
	return signals
}

func request(t *testing.T, ctx context.Context, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// recorder is an http.ResponseWriter that keeps the status.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }

// Several servers that start at once end up with one CA, which vouches for all of them.
func TestTLSShared(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	const servers = 8
	configs := make([]*tls.Config, servers)
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() {
			var err error
			if configs[i], err = stub.TLS(dir, []string{"kubernetes", "10.0.1.1", "fd00::1"}); err != nil {
				t.Errorf("server %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	again, err := stub.TLS(dir, []string{"kubernetes", "10.0.1.1", "fd00::1"})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("ca.crt holds no certificate")
	}
	for i, config := range append(configs, again) {
		for _, name := range []string{"kubernetes", "10.0.1.1", "fd00::1"} {
			if err := vouch(pool, config, name); err != nil {
				t.Errorf("server %d as %s: %v", i, name, err)
			}
		}
		if err := vouch(pool, config, "elsewhere"); err == nil {
			t.Errorf("server %d passes for elsewhere", i)
		}
	}
	leftovers, err := filepath.Glob(filepath.Join(dir, ".tmp-*"))
	if err != nil || len(leftovers) > 0 {
		t.Errorf("temporary files left: %v, %v", leftovers, err)
	}
	info, err := os.Stat(filepath.Join(dir, "ca.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("ca.pem, with its key: mode %v, %v, want 0600", info.Mode(), err)
	}
}

// vouch checks a server's certificate as a client would.
func vouch(ca *x509.CertPool, server *tls.Config, name string) error {
	leaf, err := x509.ParseCertificate(server.Certificates[0].Certificate[0])
	if err != nil {
		return err
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: ca, DNSName: name})
	return err
}

func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	config, err := stub.TLS(dir, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	base := start(t, stub.APIServer("m1"), config)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(strings.Replace(base, "http:", "https:", 1) + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("X-Served-By") != "m1" {
		t.Errorf("status %d from %q, want 200 from m1", resp.StatusCode, resp.Header.Get("X-Served-By"))
	}
}

func TestTLSRefusesBrokenCA(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := stub.TLS(dir, nil); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("TLS: %v, want an error with the folder", err)
	}
}
