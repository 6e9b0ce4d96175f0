//go:build e2e

package site

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/testenv/services"
)

// Apply creates an object from YAML.
func (k *APIServer) Apply(t *testing.T, path, yaml string) {
	t.Helper()
	k.Do(t, http.MethodPost, path+"?fieldValidation=Strict", []byte(yaml), nil)
}

// HeraldPath returns the path of the objects of a Herald resource.
func HeraldPath(resource string) string {
	return "/apis/" + v1alpha1.Group + "/" + v1alpha1.Version + "/" + resource
}

// CrdFiles returns the files of the CRDs.
func CrdFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../manifests/crds/*.yaml")
	Must(t, err)
	if len(files) != 7 {
		t.Fatalf("the CRDs are %q, want seven", files)
	}
	return files
}

// HeraldObject returns an object of a kind, with this spec.
func HeraldObject(kind, spec string) []byte {
	return fmt.Appendf(nil, "{apiVersion: herald.dev/v1alpha1, kind: %s, metadata: {name: a}, spec: %s}", kind, spec)
}

// APIServer is a real etcd and a real kube-apiserver on the loopback of the machine,
// with Herald's CRDs, and nothing else of a cluster.
type APIServer struct {
	dir        string
	Kubeconfig string
	etcd       string // its URL
	Port       int
	Pki        *PKI
	API        *services.API // as an administrator
	server     *exec.Cmd
	flags      []string // additional flags of the server
}

// StartAPIServer starts both, until the test is over.
func StartAPIServer(t *testing.T, flags ...string) *APIServer {
	t.Helper()
	ports := freePorts(t, 3)
	k := &APIServer{dir: t.TempDir(), flags: flags, Pki: NewPKI(t), Port: ports[0], etcd: fmt.Sprintf("http://127.0.0.1:%d", ports[1])}
	k.Kubeconfig = filepath.Join(k.dir, "admin.kubeconfig")
	Must(t, os.WriteFile(k.Kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:%d", certificate-authority: %[2]s/ca.crt}}]
users: [{name: a, user: {client-certificate: %[2]s/admin.crt, client-key: %[2]s/admin.key}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
`, k.Port, k.Pki.Dir), 0o600))
	k.API = k.As(t, "admin")

	peers := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	k.Start(t, "etcd", Part(t, "ETCD"), "--data-dir", filepath.Join(k.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", k.etcd, "--advertise-client-urls", k.etcd,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	k.StartServer(t)
	for _, file := range CrdFiles(t) {
		k.Apply(t, services.Definitions, ReadFile(t, file))
	}
	Must(t, k.API.Define(t.Context()))
	for _, resource := range []string{"addresspools", "bgppeers", "nodestatuses", "tenants", "tenantnodes", "tcploadbalancers", "httploadbalancers"} {
		Eventually(t, Soon, func() error { return k.API.Get(t.Context(), HeraldPath(resource), nil) })
	}
	return k
}

// StartServer starts the API server alone, and waits until it is ready.
func (k *APIServer) StartServer(t *testing.T) {
	t.Helper()
	pki := k.Pki.Dir
	k.server = k.Start(t, "kube-apiserver", append([]string{Part(t, "KUBE_APISERVER"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", k.Port),
		"--etcd-servers=" + k.etcd, "--authorization-mode=RBAC", "--client-ca-file=" + pki + "/ca.crt",
		"--tls-cert-file=" + pki + "/apiserver.crt", "--tls-private-key-file=" + pki + "/apiserver.key",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + pki + "/apiserver.crt",
		"--service-account-signing-key-file=" + pki + "/apiserver.key", "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
		"--service-node-port-range=20000-32767", "--watch-cache=true", "--cert-dir=" + k.dir}, k.flags...)...)
	Eventually(t, Soon, func() error { return k.API.Get(t.Context(), "/readyz", nil) })
}

// StopServer kills the API server, and waits until it is gone.
func (k *APIServer) StopServer(t *testing.T) {
	t.Helper()
	Must(t, k.server.Process.Kill())
	_ = k.server.Wait() // it was killed
}

// Start starts a program that does not outlive the test.
func (k *APIServer) Start(t *testing.T, name string, argv ...string) *exec.Cmd {
	t.Helper()
	log, err := os.Create(filepath.Join(k.dir, name+".log"))
	Must(t, err)
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
	Must(t, <-started)
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

// Do sends YAML or JSON to the server, and decodes its answer into an object unless it
// is nil. It may be called when the test is over.
func (k *APIServer) Do(t *testing.T, method, path string, body []byte, into any) {
	t.Helper()
	Must(t, k.API.Do(context.WithoutCancel(t.Context()), method, path, body, into))
}

// As returns a client of the server with the certificate of that name, or none.
func (k *APIServer) As(t *testing.T, certificate string) *services.API {
	t.Helper()
	c := &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", k.Port)}
	c.CAFile, c.ServerName = filepath.Join(k.Pki.Dir, "ca.crt"), "kubernetes"
	if certificate != "" {
		c.CertFile, c.KeyFile = filepath.Join(k.Pki.Dir, certificate+".crt"), filepath.Join(k.Pki.Dir, certificate+".key")
	}
	api, err := services.NewAPI(c)
	Must(t, err)
	t.Cleanup(api.Close)
	return api
}

// Judge makes the server check an object as strictly as it can, without storing it.
func (k *APIServer) Judge(t *testing.T, collection string, object []byte) (status int, answer string) {
	t.Helper()
	status, answer, err := k.API.Ask(t.Context(), http.MethodPost, collection+"?dryRun=All&fieldValidation=Strict", object)
	Must(t, err)
	return status, answer
}

// Connect returns a connection of Herald to the server.
func (k *APIServer) Connect(t *testing.T) *kube.Cluster {
	t.Helper()
	c, err := kube.Connect(k.Kubeconfig, "herald-test")
	Must(t, err)
	return c
}

// freePorts returns unused TCP ports of the loopback, outside the range of ephemeral
// ports: the servers connect too, and one of them is restarted. No other test gets
// them until this one is over, because a server takes a while until it listens.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range 100 {
		port := 10_000 + rand.IntN(10_000)
		claim, err := net.Listen("unix", fmt.Sprintf("@herald-e2e-port-%d", port))
		if err != nil {
			continue
		}
		t.Cleanup(func() { claim.Close() })
		// A test listener would be in the way: a child before its exec keeps it open for a moment.
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			conn.Close()
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatal("no port is free")
	return nil
}

// collections are the paths of the objects of a kind; %s stands for the namespace, if any.
var collections = map[string]string{
	"Namespace":                        "/api/v1/namespaces",
	"ServiceAccount":                   "/api/v1/namespaces/%s/serviceaccounts",
	"ConfigMap":                        "/api/v1/namespaces/%s/configmaps",
	"Secret":                           "/api/v1/namespaces/%s/secrets",
	"Service":                          "/api/v1/namespaces/%s/services",
	"DaemonSet":                        "/apis/apps/v1/namespaces/%s/daemonsets",
	"ClusterRole":                      "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"ClusterRoleBinding":               "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"Role":                             "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
	"RoleBinding":                      "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	"PriorityLevelConfiguration":       "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
	"FlowSchema":                       "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
	"IngressClass":                     "/apis/networking.k8s.io/v1/ingressclasses",
	"Deployment":                       "/apis/apps/v1/namespaces/%s/deployments",
	"AddressPool":                      "/apis/herald.dev/v1alpha1/addresspools",
	"BGPPeer":                          "/apis/herald.dev/v1alpha1/bgppeers",
}

// ObjectPath returns the collection of an object.
func ObjectPath(t *testing.T, tree map[string]any) string {
	t.Helper()
	path, ok := collections[tree["kind"].(string)]
	if !ok {
		t.Fatalf("an object of kind %v", tree["kind"])
	}
	if strings.Contains(path, "%s") {
		return fmt.Sprintf(path, tree["metadata"].(map[string]any)["namespace"])
	}
	return path
}

// AccountObjects returns Herald's namespace, its service account and the objects that
// give the account rights or bound them, each with its collection, in order.
func AccountObjects(t *testing.T) iter.Seq2[string, []byte] {
	t.Helper()
	base := Kustomized(t, "services")
	return func(yield func(string, []byte) bool) {
		for _, kind := range []string{"Namespace/herald-system", "ServiceAccount/herald", "ClusterRole/herald", "ClusterRoleBinding/herald", "Role/herald", "RoleBinding/herald",
			"ValidatingAdmissionPolicy/herald-nodestatuses", "ValidatingAdmissionPolicyBinding/herald-nodestatuses"} {
			if o := base[kind]; !yield(ObjectPath(t, o.Tree), o.Text) {
				return
			}
		}
	}
}

// ServiceAccount is the user name of Herald's service account. RBAC treats a user of
// that name as the account, even with a certificate.
const ServiceAccount = "system:serviceaccount:herald-system:herald"

// IssueAccount issues that certificate, as services.crt.
func (p *PKI) IssueAccount(t *testing.T) {
	t.Helper()
	Must(t, p.IssueClient("services", ServiceAccount))
}
