//go:build e2e

package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/stub"
)

// served is a site with a speaker that also announces Services of a real API server.
type served struct {
	*site.Session
	kube *site.APIServer
}

// The Service, and the router that only the API knows.
const (
	serviceAddress = "10.99.1.1"
	slicePath      = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web"
	passwordOfPeer = "sesame"
)

// newServed makes a site with a speaker that has its own VIP and a session with r1. It learns of
// r2 from the API as this user, by this services section. Its API server cannot be reached yet.
func newServed(t *testing.T, k *site.APIServer, user, section string) *served {
	t.Helper()
	conf := site.SpeakerConf([]string{site.VIP4}, `peers:
- {address: 10.0.1.254, asn: 64500}`) + section
	own := site.Files{
		"herald/herald.yaml": conf,
		"herald/kubeconfig":  strings.NewReplacer(k.Pki.Dir, "/etc/herald", "/admin.", "/"+user+".").Replace(site.ReadFile(t, k.Kubeconfig)),
		"r2.conf": site.RouterConf(64501, ` neighbor 10.0.2.1 remote-as 64999
 neighbor 10.0.2.1 timers connect 1
 neighbor 10.0.2.1 password `+passwordOfPeer),
	}
	for _, name := range []string{"ca.crt", user + ".crt", user + ".key"} {
		own["herald/"+name] = site.ReadFile(t, filepath.Join(k.Pki.Dir, name))
	}
	return &served{Session: site.NewSession(t, own), kube: k}
}

// connect forwards connections from the speaker to the API server from then on.
func (s *served) connect(t *testing.T) {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", s.kube.Port)
	var l net.Listener
	site.Must(t, s.Node("s").Do(func() (err error) { l, err = net.Listen("tcp", address); return err }))
	site.Meanwhile(t, func(ctx context.Context) {
		var running sync.WaitGroup
		defer running.Wait()
		defer context.AfterFunc(ctx, func() { l.Close() })()
		for {
			inner, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			outer, err := net.Dial("tcp", address)
			if err != nil {
				inner.Close()
				continue
			}
			for src, dst := range map[net.Conn]net.Conn{inner: outer, outer: inner} {
				running.Go(func() {
					defer context.AfterFunc(ctx, func() { src.Close() })()
					_, _ = io.Copy(dst, src) // either end may close at any time
					dst.Close()
					src.Close()
				})
			}
		}
	})
}

// endpoint makes the Service's one endpoint, on node s, ready or not.
func (s *served) endpoint(t *testing.T, ready bool) {
	t.Helper()
	s.kube.Do(t, http.MethodPatch, slicePath, fmt.Appendf(nil,
		`{"endpoints": [{"addresses": ["10.244.0.1"], "nodeName": "s", "conditions": {"ready": %t, "serving": %[1]t}}]}`, ready), nil)
}

// plugin waits until the output of `kubectl herald` contains says: nodes report to the
// API up to five seconds late.
func (s *served) plugin(t *testing.T, says string, args ...string) {
	t.Helper()
	command := "exec -a kubectl-herald herald --kubeconfig /etc/herald/kubeconfig --system kube-system " + strings.Join(args, " ")
	site.Eventually(t, site.Soon, func() error {
		out, err := site.Run(t, s.Node("s"), "bash", "-c", command)
		return site.ErrorIf(err != nil || !strings.Contains(out, says), "kubectl herald %v printed, with %v:\n%s", args, err, out)
	})
}

// create creates all objects to announce.
func (s *served) create(t *testing.T) {
	t.Helper()
	for path, object := range map[string]string{
		"/api/v1/nodes": `{apiVersion: v1, kind: Node, metadata: {name: s, labels: {rack: b}}}`,
		site.HeraldPath("addresspools"): `{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: public},
			spec: {addresses: [10.99.1.1-10.99.1.9], bgp: {communities: ["64512:7"]}}}`,
		site.HeraldPath("bgppeers"): `{apiVersion: herald.dev/v1alpha1, kind: BGPPeer, metadata: {name: rack-b},
			spec: {address: 10.0.2.254, asn: 64501, localASN: 64999, nodeSelectors: [{matchLabels: {rack: b}}], passwordSecretRef: {name: rack-b}}}`,
		"/api/v1/namespaces/default/services": `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: LoadBalancer,
			selector: {app: web}, externalTrafficPolicy: Local, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}}`,
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices": `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice,
			metadata: {name: web, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: []}`,
	} {
		s.kube.Do(t, http.MethodPost, path, []byte(object), nil)
	}
	s.endpoint(t, true)
}

// TestServiceVIP makes a speaker announce a Service beside its own VIP, through
// outages of the API and other events.
func TestServiceVIP(t *testing.T) {
	s := newServed(t, site.StartAPIServer(t), "admin", "services: {kubeconfig: /etc/herald/kubeconfig}\n")
	routes := site.WatchRoutes(t, s.Node("r1"))
	site.Boot(t, s.Lab, "r1", "r2", "s")

	t.Run("an API outage at the start does not block a VIP", func(t *testing.T) {
		s.Path(t, "r1", site.VIP4)
		s.Shows(t, func(status admin.Status) error {
			v := status.Services
			return site.ErrorIf(v == nil || v.Synced || len(v.Kubernetes.Troubles) == 0, "the API was unreachable: %+v", v)
		})
	})

	s.create(t)
	s.connect(t)
	t.Run("a Service is announced once the API is there", func(t *testing.T) {
		if p := s.Path(t, "r1", serviceAddress); p.Communities != "64512:7" {
			t.Errorf("the route has the communities %q, want the pool's", p.Communities)
		}
		s.plugin(t, "default/web is announced", "why", "default/web")
		s.plugin(t, serviceAddress+" is of Service default/web", "who", serviceAddress)
		s.plugin(t, "control-plane", "status")
		s.plugin(t, "established", "peers")
	})
	t.Run("only a BGPPeer waits for its Secret", func(t *testing.T) {
		s.Shows(t, func(status admin.Status) error {
			return site.ErrorIf(len(status.Services.LeftOut) != 1 || status.Services.LeftOut[0].Reason != "passwordSecretRef: there is no Secret kube-system/rack-b",
				"left out: %+v", status.Services.LeftOut)
		})
		s.kube.Do(t, http.MethodPost, "/api/v1/namespaces/kube-system/secrets", []byte(
			`{apiVersion: v1, kind: Secret, metadata: {name: rack-b}, stringData: {password: `+passwordOfPeer+`}}`), nil)
		if p := s.Path(t, "r2", serviceAddress); p.ASPath != "64999" {
			t.Errorf("the AS path at r2 is %q, want the ASN of the BGPPeer alone", p.ASPath)
		}
		s.Path(t, "r2", site.VIP4)
	})
	t.Run("its endpoint fails and returns", func(t *testing.T) {
		s.endpoint(t, false)
		s.NoPath(t, "r1", serviceAddress)
		s.NoPath(t, "r2", serviceAddress)
		s.plugin(t, "default/web is not announced: no node announces it; s: no ready IPv4 endpoint on this node", "why", "default/web")
		s.endpoint(t, true)
		s.Path(t, "r1", serviceAddress)
		s.Path(t, "r2", serviceAddress)
	})
	s.testAbsence(t, routes) // no test of its own: the server it starts outlives it
	t.Run("drained and undrained", func(t *testing.T) {
		site.MustRun(t, s.Speaker.Node, "herald", "drain")
		s.NoPath(t, "r1", serviceAddress)
		s.NoPath(t, "r1", site.VIP4)
		site.MustRun(t, s.Speaker.Node, "herald", "undrain")
		s.Path(t, "r1", serviceAddress)
		s.Path(t, "r1", site.VIP4)
	})
	t.Run("drained from a workstation", func(t *testing.T) {
		s.plugin(t, "s is excluded from load balancers", "drain", "s")
		s.NoPath(t, "r1", serviceAddress)
		s.Path(t, "r1", site.VIP4) // which is no Service's
		s.plugin(t, "s may announce Services again", "undrain", "s")
		s.Path(t, "r1", serviceAddress)
	})
	t.Run("the node belongs to another rack", func(t *testing.T) {
		routes.Mark()
		s.kube.Do(t, http.MethodPatch, "/api/v1/nodes/s", []byte(`{"metadata": {"labels": {"rack": "c"}}}`), nil)
		s.NoPath(t, "r2", serviceAddress)
		routes.Untouched(t)
	})
}

// testAbsence kills the API server for long enough that all requests have failed
// repeatedly, breaks and mends the VIP meanwhile, and starts the server again.
func (s *served) testAbsence(t *testing.T, routes *site.RouteWatcher) {
	t.Helper()
	routes.Mark()
	s.kube.StopServer(t)
	var before uint64
	s.Shows(t, func(status admin.Status) error {
		const kinds = 5 // the watched kinds, besides the Secret
		before = status.Services.Kubernetes.Failed
		return site.ErrorIf(len(status.Services.Kubernetes.Troubles) < kinds, "troubles: %+v", status.Services.Kubernetes.Troubles)
	})
	s.Readyz.SetAll(stub.Answer{Status: http.StatusInternalServerError})
	s.NoPath(t, "r1", site.VIP4)
	s.Readyz.SetAll(stub.Answer{})
	s.Path(t, "r1", site.VIP4)
	site.Eventually(t, 2*time.Minute, func() error {
		status, err := s.Status(t)
		if err == nil && status.Services.Kubernetes.Failed < before+100 {
			err = errors.New("the server was not asked often enough")
		}
		return err
	})
	s.Path(t, "r1", serviceAddress)

	s.kube.StartServer(t)
	s.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(len(status.Services.Kubernetes.Troubles) > 0, "troubles: %+v", status.Services.Kubernetes.Troubles)
	})
	// A change after its return proves that all earlier changes were received.
	s.kube.Do(t, http.MethodPatch, site.HeraldPath("addresspools")+"/public", []byte(`{"spec": {"bgp": {"med": 7}}}`), nil)
	site.Eventually(t, site.Soon, func() error {
		p := s.Path(t, "r1", serviceAddress)
		return site.ErrorIf(p.MED != 7, "MED %d, want 7", p.MED)
	})
	for _, step := range routes.Steps(serviceAddress) {
		if len(step.NextHops) == 0 {
			t.Errorf("the Service was withdrawn while the API was away, or when it came back: %v", routes.Since())
		}
	}
}

// TestRightsAreUsed has a speaker announce Services, be the writer, and be examined,
// with the rights of its manifests. It needs no other, and each of these.
func TestRightsAreUsed(t *testing.T) {
	audit := site.NewAudit(t, site.ServiceAccount)
	k := site.StartAPIServer(t, audit.Flags()...)
	for path, object := range site.AccountObjects(t) {
		k.Apply(t, path, string(object))
	}
	k.Pki.IssueAccount(t)
	s := newServed(t, k, "services", "services: {kubeconfig: /etc/herald/kubeconfig, namespace: herald-system}\n")
	k.Do(t, http.MethodPost, "/api/v1/namespaces/herald-system/secrets", []byte(
		`{apiVersion: v1, kind: Secret, metadata: {name: rack-b}, stringData: {password: `+passwordOfPeer+`}}`), nil)
	s.connect(t)
	site.Boot(t, s.Lab, "r1", "r2", "s")
	s.create(t)
	s.Path(t, "r1", serviceAddress)
	s.Path(t, "r2", serviceAddress) // by its password
	createBalancer(t, k, "refused", "herald.dev/pool: nowhere", "")
	becomes(t, k, "refused", "NoPool")
	k.Apply(t, site.HeraldPath("tenants"), `{apiVersion: herald.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {nodes: {cidrs: [10.20.0.0/24]}}}`)
	report, _ := site.Run(t, s.Node("s"), "herald", "doctor", "--config", "/etc/herald/herald.yaml") // other findings do not matter here
	if want := "tenant acme: no manager has acted on it"; !strings.Contains(report, want) {
		t.Errorf("herald doctor does not say %q:\n%s", want, report)
	}

	given := rightsGiven(t)
	site.Eventually(t, site.Soon, func() error {
		used, refused := audit.Used(t, site.ServiceAccount)
		if len(refused) > 0 {
			t.Fatalf("refused are %q", refused)
		}
		diff := cmp.Diff(given, used)
		return site.ErrorIf(diff != "", "rights (-given +used):\n%s", diff)
	})
}

// rightsGiven returns the verbs of the manifests' roles, each with its group and resource.
func rightsGiven(t *testing.T) []string {
	t.Helper()
	base := site.Kustomized(t, "services")
	role := base["Role/herald"].Tree
	for _, r := range role["rules"].([]any) {
		if names, ok := r.(map[string]any)["resourceNames"]; ok && fmt.Sprint(names) != "["+assign.LeaseName+"]" {
			t.Errorf("the Lease is %v, and %s in the program", names, assign.LeaseName)
		}
	}
	return site.RightsOf(t, base["ClusterRole/herald"].Tree, role)
}
