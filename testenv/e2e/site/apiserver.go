//go:build e2e

package site

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/testenv/pki"
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
	files := Get[[]string](t)(filepath.Glob("../../../manifests/crds/*.yaml"))
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
	log := Get[*os.File](t)(os.Create(filepath.Join(k.dir, name+".log")))
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
	api := Get[*services.API](t)(services.NewAPI(c))
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

// Accepts checks that the server accepts an object.
func (k *APIServer) Accepts(t *testing.T, collection string, object []byte) {
	t.Helper()
	if status, answer := k.Judge(t, collection, object); status != http.StatusCreated {
		t.Errorf("%d %s\n%s", status, answer, object)
	}
}

// Asked checks the status of an answer to a client.
func Asked(t *testing.T, api *services.API, method, path string, body []byte, want int) {
	t.Helper()
	status, answer, err := api.Ask(t.Context(), method, path, body)
	Must(t, err)
	if status != want {
		t.Errorf("%s %s: %d, want %d: %s", method, path, status, want, answer)
	}
}

// Connect returns a connection of Herald to the server.
func (k *APIServer) Connect(t *testing.T) *kube.Cluster {
	t.Helper()
	c := Get[*kube.Cluster](t)(kube.Connect(k.Kubeconfig, "herald-test"))
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

// ObjectPath returns the collection of an object.
func ObjectPath(t *testing.T, tree map[string]any) string {
	t.Helper()
	version, kind := tree["apiVersion"].(string), tree["kind"].(string)
	path := "/apis/" + version
	if version == "v1" {
		path = "/api/v1"
	}
	if namespace, ok := tree["metadata"].(map[string]any)["namespace"]; ok {
		path += fmt.Sprintf("/namespaces/%s", namespace)
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(version, kind))
	return path + "/" + strings.Replace(plural.Resource, "gatewaies", "gateways", 1)
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

// PKI holds the certificates and keys of the masters.
type PKI struct{ *pki.PKI }

// NewPKI makes a CA, and certificates for apiservers, their health checks and administrators.
func NewPKI(t *testing.T) *PKI {
	t.Helper()
	p := Get[*pki.PKI](t)(pki.New(t.TempDir(), "kubernetes", "localhost", "127.0.0.1", "::1", VIP4, VIP6))
	Must(t, p.IssueClient("health", "herald"))
	Must(t, p.IssueClient("admin", "admin", "system:masters"))
	return &PKI{p}
}

// Server issues a certificate and returns the TLS configuration of its server.
func (p *PKI) Server(t *testing.T, name string, c *x509.Certificate) *tls.Config {
	t.Helper()
	Must(t, p.Issue(name, c))
	return &tls.Config{Certificates: []tls.Certificate{p.Pair(t, name)}}
}

// Pair returns a certificate with its key.
func (p *PKI) Pair(t *testing.T, name string) tls.Certificate {
	t.Helper()
	pair := Get[tls.Certificate](t)(p.PKI.Pair(name))
	return pair
}

// CA returns the CA's certificate.
func (p *PKI) CA(t *testing.T) []byte {
	t.Helper()
	return []byte(ReadFile(t, filepath.Join(p.Dir, "ca.crt")))
}

// Client returns the TLS configuration of a health check of an apiserver.
func (p *PKI) Client(t *testing.T) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CA(t))
	return &tls.Config{RootCAs: roots, ServerName: "kubernetes", Certificates: []tls.Certificate{p.Pair(t, "health")}}
}

// Audit is an API server's audit log of some users' requests.
type Audit struct{ policy, log string }

// NewAudit prepares a log of these users' requests.
func NewAudit(t *testing.T, users ...string) *Audit {
	t.Helper()
	dir := t.TempDir()
	a := &Audit{filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")}
	quoted := Get[[]byte](t)(json.Marshal(users))
	Must(t, os.WriteFile(a.policy, fmt.Appendf(nil, `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: %s}
- {level: None}
`, quoted), 0o600))
	return a
}

// Flags are the flags that make the API server write it.
func (a *Audit) Flags() []string {
	return []string{"--audit-policy-file=" + a.policy, "--audit-log-path=" + a.log}
}

// Request is one of the requests.
type Request struct {
	Verb, RequestURI string
	Stage            string
	User             struct{ Username string }
	ObjectRef        *struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus   *struct{ Code int }
	Annotations      map[string]string
}

// Resource returns the group and resource of the request.
func (r *Request) Resource() string {
	resource := r.ObjectRef.APIGroup + "/" + r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	return resource
}

// Requests returns a user's requests so far, in order.
func (a *Audit) Requests(t *testing.T, user string) (all []Request) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(ReadFile(t, a.log)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Request
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.User.Username == user { // the last line may be incomplete
			all = append(all, r)
		}
	}
	Must(t, lines.Err())
	return all
}

// Used returns the rights that a user has used so far, each as a verb, a group and a
// resource. It also returns the requests that were refused for lack of one. An apply
// of a new object also uses the right to create it.
func (a *Audit) Used(t *testing.T, user string) (used, refused []string) {
	t.Helper()
	all := map[string]bool{}
	for _, r := range a.Requests(t, user) {
		switch {
		case r.Annotations["authorization.k8s.io/decision"] == "forbid":
			refused = append(refused, r.Verb+" "+r.RequestURI)
		case r.ObjectRef != nil:
			all[r.Verb+" "+r.Resource()] = true
			if r.ResponseStatus != nil && r.ResponseStatus.Code == http.StatusCreated {
				all["create "+r.Resource()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), refused
}

// RightsOf returns the verbs of a role's rules, each with its group and resource, in
// the form of [Audit.Used].
func RightsOf(t *testing.T, roles ...map[string]any) []string {
	t.Helper()
	given := map[string]bool{}
	for _, role := range roles {
		for _, r := range role["rules"].([]any) {
			rule := r.(map[string]any)
			for _, group := range rule["apiGroups"].([]any) {
				for _, resource := range rule["resources"].([]any) {
					for _, verb := range rule["verbs"].([]any) {
						given[fmt.Sprintf("%s %s/%s", verb, group, resource)] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(given))
}
