//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/herald-vip/herald/kube"
)

// kubeServer is a real etcd and a real kube-apiserver on the loopback of the
// machine, with Herald's CRDs, and nothing else of a cluster.
type kubeServer struct {
	dir        string
	kubeconfig string
	etcd       string // its URL
	port       int
	pki        *pki
	admin      *http.Client
	server     *exec.Cmd
	flags      []string // more of the server's
}

// newKubeServer starts them, and ends them when the test is over.
func newKubeServer(t *testing.T, flags ...string) *kubeServer {
	t.Helper()
	ports := freePorts(t, 3)
	k := &kubeServer{dir: t.TempDir(), flags: flags, pki: newPKI(t), port: ports[0], etcd: fmt.Sprintf("http://127.0.0.1:%d", ports[1])}
	k.kubeconfig = filepath.Join(k.dir, "admin.kubeconfig")
	k.pki.issue(t, "admin", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	must(t, os.WriteFile(k.kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:%d", certificate-authority: %[2]s/ca.crt}}]
users: [{name: a, user: {client-certificate: %[2]s/admin.crt, client-key: %[2]s/admin.key}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
`, k.port, k.pki.dir), 0o600))
	pair, err := tls.LoadX509KeyPair(filepath.Join(k.pki.dir, "admin.crt"), filepath.Join(k.pki.dir, "admin.key"))
	must(t, err)
	conf := k.pki.client(t)
	conf.Certificates = []tls.Certificate{pair}
	transport := &http.Transport{TLSClientConfig: conf, MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	k.admin = &http.Client{Transport: transport, Timeout: soon}

	peers := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	k.start(t, "etcd", parts["ETCD"], "--data-dir", filepath.Join(k.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", k.etcd, "--advertise-client-urls", k.etcd,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	k.startServer(t)
	for _, file := range crdFiles(t) {
		definition, err := os.ReadFile(file)
		must(t, err)
		k.do(t, http.MethodPost, definitions, definition, nil)
	}
	for _, resource := range []string{"addresspools", "bgppeers"} {
		eventually(t, soon, func() error { return k.try(http.MethodGet, collection(resource), nil, nil) })
	}
	return k
}

// startServer starts the API server alone, and waits until it is ready.
func (k *kubeServer) startServer(t *testing.T) {
	t.Helper()
	pki := k.pki.dir
	k.server = k.start(t, "kube-apiserver", append([]string{parts["KUBE_APISERVER"], "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", k.port),
		"--etcd-servers=" + k.etcd, "--authorization-mode=RBAC", "--client-ca-file=" + pki + "/ca.crt",
		"--tls-cert-file=" + pki + "/apiserver.crt", "--tls-private-key-file=" + pki + "/apiserver.key",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + pki + "/sa.pub",
		"--service-account-signing-key-file=" + pki + "/sa.key", "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
		"--service-node-port-range=20000-32767", "--watch-cache=true", "--cert-dir=" + k.dir}, k.flags...)...)
	eventually(t, soon, func() error { return k.try(http.MethodGet, "/readyz", nil, nil) })
}

// stopServer kills the API server, and waits until it is gone.
func (k *kubeServer) stopServer(t *testing.T) {
	t.Helper()
	must(t, k.server.Process.Kill())
	_ = k.server.Wait() // it was killed
}

// start starts a program that does not outlive the test.
func (k *kubeServer) start(t *testing.T, name string, argv ...string) *exec.Cmd {
	t.Helper()
	log, err := os.Create(filepath.Join(k.dir, name+".log"))
	must(t, err)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The kernel ends the program together with the thread that started it, and the lab
	// uses up threads: this one stays.
	started, over := make(chan error), make(chan struct{})
	var thread sync.WaitGroup
	thread.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-over
	})
	t.Cleanup(func() { close(over); thread.Wait() })
	must(t, <-started)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("log of %s:\n%s", name, text[max(0, len(text)-5000):])
		}
	})
	return cmd
}

// do sends YAML or JSON to the server, and reads its answer into an object, if that
// is not nil.
func (k *kubeServer) do(t *testing.T, method, path string, body []byte, into any) {
	t.Helper()
	must(t, k.try(method, path, body, into))
}

func (k *kubeServer) try(method, path string, body []byte, into any) error {
	answer, err := k.send(method, path, body)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

// send returns the text of the server's answer.
func (k *kubeServer) send(method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, fmt.Sprintf("https://127.0.0.1:%d%s", k.port, path), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/yaml")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := k.admin.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %d %s", method, path, response.StatusCode, answer)
	}
	return answer, err
}

// connect is a connection of Herald to the server.
func (k *kubeServer) connect(t *testing.T) *kube.Cluster {
	t.Helper()
	c, err := kube.Connect(k.kubeconfig, "herald-test")
	must(t, err)
	return c
}

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// freePorts are TCP ports of the loopback that nobody has, of those that nobody is given who
// connects to somewhere: the servers do, and one of them is started again.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range 100 {
		port := 10_000 + rand.IntN(10_000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // later, lest it is found twice
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatal("no port is free")
	return nil
}
