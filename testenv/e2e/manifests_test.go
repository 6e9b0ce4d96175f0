//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/manifests"
)

// api is a real API server that knows no anonymous users, without what else makes a cluster.
type api struct {
	master master
	pki    *pki
	admin  *http.Client
}

func newAPI(t *testing.T) *api {
	t.Helper()
	p := newPKI(t)
	c := newCluster(startLab(t, "e2e-control-plane.clab.yml", map[string]string{"PKI_DIR": p.dir}))
	p.issue(t, "admin", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	a := &api{master: c.masters[1], pki: p}
	a.admin = a.client(t, "admin")
	boot(t, c.Lab, a.master.etcd().Name(), a.master.apiserver().Name())
	eventually(t, soon, func() error {
		status, answer, err := a.do(a.admin, http.MethodGet, "/readyz", nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("/readyz: %d %s", status, answer)
		}
		return err
	})
	return a
}

// client has the certificate of that name, or none.
func (a *api) client(t *testing.T, certificate string) *http.Client {
	t.Helper()
	conf := a.pki.client(t)
	conf.Certificates = nil
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(a.pki.dir, certificate+".crt"), filepath.Join(a.pki.dir, certificate+".key"))
		must(t, err)
		conf.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: conf, DialContext: a.master.base().DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: soon}
}

// do sends YAML to the server.
func (a *api) do(client *http.Client, method, path string, body []byte) (status int, answer string, err error) {
	request, err := http.NewRequest(method, "https://127.0.0.1:6443"+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/yaml")
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// create has the server judge an object as strictly as it can, and forget it.
func (a *api) create(t *testing.T, collection string, object []byte) (int, string) {
	t.Helper()
	status, answer, err := a.do(a.admin, http.MethodPost, collection+"?dryRun=All&fieldValidation=Strict", object)
	must(t, err)
	return status, answer
}

const (
	pods       = "/api/v1/namespaces/kube-system/pods"
	daemonSets = "/apis/apps/v1/namespaces/kube-system/daemonsets"
	accounts   = "/api/v1/namespaces/kube-system/serviceaccounts"
)

// TestManifestsOnAPIServer shows a kube-apiserver the manifests, and the certificate
// that docs/kubeadm.md has a health check get where there are no anonymous users.
func TestManifestsOnAPIServer(t *testing.T) {
	a := newAPI(t)
	t.Run("manifests", a.testManifests)
	t.Run("certificate of the check", a.testCertificate)
}

// testManifests has every manifest judged, with strict validation of fields.
func (a *api) testManifests(t *testing.T) {
	// A controller would make it; without it no pod is taken.
	status, answer, err := a.do(a.admin, http.MethodPost, accounts, []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}"))
	must(t, err)
	if status != http.StatusCreated {
		t.Fatalf("create the service account: %d %s", status, answer)
	}
	status, answer, err = a.do(a.admin, http.MethodPost, "/api/v1/namespaces", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: herald-system}}"))
	must(t, err)
	if status != http.StatusCreated {
		t.Fatalf("create the namespace: %d %s", status, answer)
	}
	accepted := func(name, collection string, object []byte) {
		t.Run(name, func(t *testing.T) {
			if status, answer := a.create(t, collection, object); status != http.StatusCreated {
				t.Errorf("%d %s\n%s", status, answer, object)
			}
		})
	}
	const dir = "../../manifests/"
	for file, collection := range map[string]string{
		"static-pod.yaml":                   pods,
		"kustomize/base/daemonset.yaml":     daemonSets,
		"kustomize/balancer/daemonset.yaml": daemonSets,
		"kustomize/example/configmap.yaml":  "/api/v1/namespaces/kube-system/configmaps",
		"kustomize/example/secret.yaml":     "/api/v1/namespaces/kube-system/secrets",
	} {
		object, err := os.ReadFile(dir + file)
		must(t, err)
		accepted(file, collection, object)
	}
	c := parseConfig(t, "../../config/example.yaml")
	c.Metrics.Listen = "[::1]:9474"
	var pod []byte
	for kind, collection := range map[manifests.Kind]string{
		manifests.StaticPod: pods,
		// With a services section it is where Herald's service account is.
		manifests.DaemonSet: "/apis/apps/v1/namespaces/herald-system/daemonsets",
	} {
		object, err := manifests.Make(kind, manifests.Options{Config: c, Image: "registry.example.com:5000/herald@sha256:" + strings.Repeat("0a", 32)})
		must(t, err)
		accepted(string(kind)+" for every field", collection, object)
		if kind == manifests.StaticPod {
			pod = object
		}
	}
	for _, typo := range []string{"readOnly", "hostNetwork", "drop", "periodSeconds"} {
		t.Run("typo "+typo, func(t *testing.T) {
			if status, answer := a.create(t, pods, bytes.ReplaceAll(pod, []byte(typo+":"), []byte(typo+"s:"))); status != http.StatusBadRequest {
				t.Errorf("%ss is answered by %d %s", typo, status, answer)
			}
		})
	}
}

// testCertificate shows what a client certificate of the cluster's CA is good for
// whose user has no rights of its own: the check, and nothing else.
func (a *api) testCertificate(t *testing.T) {
	for _, test := range []struct {
		certificate, path string
		want              int
	}{
		{"health", "/readyz", http.StatusOK},
		{"health", "/livez", http.StatusOK},
		{"health", "/api/v1/nodes", http.StatusForbidden},
		{"health", "/api/v1/namespaces/kube-system/secrets", http.StatusForbidden},
		{"", "/readyz", http.StatusUnauthorized},
	} {
		status, answer, err := a.do(a.client(t, test.certificate), http.MethodGet, test.path, nil)
		must(t, err)
		if status != test.want {
			t.Errorf("certificate %q: %s is answered by %d %s, want %d", test.certificate, test.path, status, answer, test.want)
		}
	}
}
