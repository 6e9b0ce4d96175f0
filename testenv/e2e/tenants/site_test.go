//go:build e2e

// Package tenants tests the agent and the manager on real API servers, with the rights of their manifests.
package tenants

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

const binary = "../../../bin/herald"

// lbCluster is the load-balancing cluster: its API server, controllers, address writer and
// manager.
type lbCluster struct {
	*site.APIServer
	managerConfig string
	manager       *exec.Cmd
}

// startLBCluster starts it, with a pool of addresses.
func startLBCluster(t *testing.T, flags ...string) *lbCluster {
	t.Helper()
	b := &lbCluster{APIServer: site.StartAPIServer(t, flags...)}
	b.Apply(t, "/api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: herald-system}}")
	install(t, b.APIServer, "manager")
	b.managerConfig = kubeconfigOf(t, b.APIServer, "herald-system", "herald-manager")
	b.Apply(t, site.HeraldPath("addresspools"), `{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: public},
spec: {addresses: [10.1.0.0/24, "fd00:1::/120"], bgp: {}, namespaceSelectors: [{matchExpressions: [{key: herald.dev/tenant, operator: Exists}]}]}}`)
	writer := assign.New(site.Log(t), b.Connect(t), assign.Options{Scope: service.Scope{Class: "herald.dev/vip", Default: true}, Namespace: "default", Identity: "n1"})
	site.Meanwhile(t, writer.Run)
	b.Start(t, "kube-controller-manager", site.Part(t, "KUBE_CONTROLLER_MANAGER"), "--kubeconfig="+b.Kubeconfig, // to clean up and count
		"--controllers=namespace-controller,garbage-collector-controller,resourcequota-controller,serviceaccount-controller",
		"--leader-elect=false", "--secure-port=0")
	b.startManager(t)
	return b
}

// install applies the output of `herald manifest`, without the Deployment: the test
// runs its program itself.
func install(t *testing.T, k *site.APIServer, kind string, flags ...string) {
	t.Helper()
	out := site.Get[[]byte](t)(exec.Command(binary, append([]string{"manifest", kind}, flags...)...).Output())
	for text := range bytes.SplitSeq(out, []byte("\n---\n")) {
		var tree map[string]any
		site.Must(t, yaml.Unmarshal(text, &tree))
		k.Do(t, http.MethodPost, site.ObjectPath(t, tree)+"?fieldValidation=Strict", text, nil)
	}
}

// kubeconfigOf writes a kubeconfig with the rights of a service account.
func kubeconfigOf(t *testing.T, k *site.APIServer, namespace, account string) string {
	t.Helper()
	admin := k.Connect(t)
	token, _, err := admin.RequestToken(t.Context(), namespace, account, time.Hour)
	site.Must(t, err)
	text := site.Get[[]byte](t)(admin.Kubeconfig(""))
	dir := t.TempDir()
	site.Files{kube.KeyToken: token, kube.KeyKubeconfig: string(text)}.Write(t, dir)
	return filepath.Join(dir, kube.KeyKubeconfig)
}

func (b *lbCluster) startManager(t *testing.T) {
	t.Helper()
	b.manager = b.Start(t, "manager", binary, "manager", "--kubeconfig", b.managerConfig, "--namespace", "herald-system", "--pod-name", "manager", "--domain", "lb.example.test")
}

// admit makes a Tenant, and waits for its account.
func (b *lbCluster) admit(t *testing.T, name, spec string) {
	t.Helper()
	b.Apply(t, site.HeraldPath("tenants"), fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: %s}", name, spec))
	site.Eventually(t, site.Soon, func() error {
		return b.API.Get(t.Context(), "/apis/rbac.authorization.k8s.io/v1/namespaces/"+v1alpha1.TenantNamespace(name)+"/rolebindings/herald-agent", nil)
	})
}

func (b *lbCluster) tenant(t *testing.T, name string) v1alpha1.Tenant {
	t.Helper()
	var out v1alpha1.Tenant
	b.Do(t, http.MethodGet, site.HeraldPath("tenants")+"/"+name, nil, &out)
	return out
}

// tenantCluster is a tenant's cluster: its API server, and an agent with the rights
// that it was given.
type tenantCluster struct {
	*site.APIServer
	name   string
	own    string // kubeconfigs
	remote string
	agent  *exec.Cmd
}

// startTenant starts the cluster of an admitted Tenant, and an agent in it.
func startTenant(t *testing.T, b *lbCluster, name string) *tenantCluster {
	t.Helper()
	c := newTenant(t, b, name)
	c.startAgent(t)
	return c
}

// newTenant makes such a cluster without an agent, and three nodes in it.
func newTenant(t *testing.T, b *lbCluster, name string, flags ...string) *tenantCluster {
	t.Helper()
	c := &tenantCluster{APIServer: site.StartAPIServer(t, flags...), name: name}
	install(t, c.APIServer, "agent", "--cluster", name)
	secret := b.secret(t, name)
	c.Apply(t, "/api/v1/namespaces/herald-system/secrets", string(secret))
	c.own, c.remote = kubeconfigOf(t, c.APIServer, "herald-system", "herald-agent"), mount(t, secret)
	for i := range 3 {
		c.node(t, i+1)
	}
	return c
}

// mount writes the values of a Secret to files, as the kubelet does, and returns the
// path of the kubeconfig.
func mount(t *testing.T, secret []byte) string {
	t.Helper()
	var s corev1.Secret
	site.Must(t, yaml.Unmarshal(secret, &s))
	dir := t.TempDir()
	site.Files(s.StringData).Write(t, dir)
	return filepath.Join(dir, kube.KeyKubeconfig)
}

func (c *tenantCluster) node(t *testing.T, n int) {
	t.Helper()
	name := fmt.Sprintf("n%d", n)
	c.Apply(t, "/api/v1/nodes", fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}}", name))
	site.Must(t, c.API.Patch(t.Context(), "/api/v1/nodes/"+name+"/status", map[string]any{"status": map[string]any{
		"addresses":  []map[string]string{{"type": "InternalIP", "address": fmt.Sprintf("10.20.0.%d", n)}, {"type": "InternalIP", "address": fmt.Sprintf("fd00:20::%d", n)}},
		"conditions": []map[string]string{{"type": "Ready", "status": "True"}},
	}}))
}

func (c *tenantCluster) startAgent(t *testing.T) {
	t.Helper()
	c.agent = c.Start(t, "agent", binary, "agent", "--cluster", c.name, "--kubeconfig", c.own, "--load-balancer", c.remote, "--namespace", "herald-system", "--pod-name", "agent")
}

// stop kills a process, like a power cut.
func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	site.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
}

const servicesPath = "/api/v1/namespaces/default/services"

// expose makes a Service of the tenant, with further specification.
func (c *tenantCluster) expose(t *testing.T, name, annotations, spec string) {
	t.Helper()
	for field, value := range map[string]string{"type": "LoadBalancer", "ports": "[{name: http, port: 80}]"} {
		if !strings.Contains(spec, field+": ") {
			spec += fmt.Sprintf(", %s: %s", field, value)
		}
	}
	c.Apply(t, servicesPath, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, annotations: {%s}}, spec: {selector: {app: web}, %s}}", name, annotations, strings.TrimPrefix(spec, ", ")))
}

func (c *tenantCluster) service(ctx context.Context, name string) (corev1.Service, error) {
	var s corev1.Service
	err := c.API.Get(ctx, servicesPath+"/"+name, &s)
	return s, err
}

// becomes waits until the condition of a Service has a reason, and returns the Service.
func (c *tenantCluster) becomes(t *testing.T, name, reason string) (s corev1.Service) {
	t.Helper()
	site.Eventually(t, site.Soon, func() (err error) {
		if s, err = c.service(t.Context(), name); err != nil {
			return err
		}
		for _, condition := range s.Status.Conditions {
			if condition.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("%s has the conditions %+v, want one with the reason %s", name, s.Status.Conditions, reason)
	})
	return s
}
