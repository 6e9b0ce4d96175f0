//go:build e2e

package services

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

const (
	servicesPath = "/api/v1/namespaces/default/services"
	leasePath    = "/apis/coordination.k8s.io/v1/namespaces/default/leases/" + assign.LeaseName
	// assignerVariable makes the test binary run as an assigner with that kubeconfig.
	assignerVariable = "HERALD_E2E_ASSIGNER"
	assignerName     = "HERALD_E2E_ASSIGNER_NAME"
)

func assignOptions(identity string) assign.Options {
	return assign.Options{Scope: service.Scope{Class: "herald.dev/vip", Default: true}, Namespace: "default", Identity: identity}
}

// startAssigner runs an Assigner until the test is over.
func startAssigner(t *testing.T, k *site.APIServer) *assign.Assigner {
	t.Helper()
	a := assign.New(site.Log(t), k.Connect(t), assignOptions("n1"))
	site.Meanwhile(t, a.Run)
	site.Eventually(t, site.Soon, func() error {
		return site.ErrorIf(!a.Status().Writes, "there is no assigner")
	})
	return a
}

// assignerProcess starts a separate process that is a candidate for assigner.
func assignerProcess(t *testing.T, k *site.APIServer, name string) *exec.Cmd {
	t.Helper()
	return k.Start(t, name, "/usr/bin/env", assignerVariable+"="+k.Kubeconfig, assignerName+"="+name, os.Args[0])
}

// holder returns the assigner named in the Lease: its node, and the unique identity of its
// process.
func holder(k *site.APIServer) (name, identity string, err error) {
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	if err := k.API.Get(context.Background(), leasePath, &lease); err != nil {
		return "", "", err
	}
	name, _, _ = strings.Cut(lease.Spec.HolderIdentity, "_")
	if name == "" {
		return "", "", fmt.Errorf("there is no assigner")
	}
	return name, lease.Spec.HolderIdentity, nil
}

// createPool creates an AddressPool with a specification in YAML.
func createPool(t *testing.T, k *site.APIServer, name, spec string) {
	t.Helper()
	k.Apply(t, site.HeraldPath("addresspools"), fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: %s}, spec: %s}", name, spec))
}

// createBalancer creates a Service of type LoadBalancer with annotations and further
// specification in YAML.
func createBalancer(t *testing.T, k *site.APIServer, name, annotations, spec string) {
	t.Helper()
	if spec != "" {
		spec = ", " + spec
	}
	if !strings.Contains(spec, "ports:") {
		spec += ", ports: [{port: 80}]"
	}
	k.Apply(t, servicesPath, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, annotations: {%s}}, spec: {type: LoadBalancer%s}}", name, annotations, spec))
}

// state returns the addresses of a Service and the reason of Herald's condition.
func state(s *corev1.Service) string {
	var words []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		words = append(words, i.IP)
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
			words = append(words, "without ipMode VIP")
		}
	}
	for _, c := range s.Status.Conditions {
		if c.Type == service.ConditionAssigned {
			words = append(words, c.Reason)
		}
	}
	return strings.Join(words, " ")
}

// becomes waits until a Service has addresses and a reason.
func becomes(t *testing.T, k *site.APIServer, name, want string) *corev1.Service {
	t.Helper()
	s := new(corev1.Service)
	site.Eventually(t, site.Soon, func() error {
		*s = corev1.Service{}
		if err := k.API.Get(t.Context(), servicesPath+"/"+name, s); err != nil {
			return err
		}
		got := state(s)
		return site.ErrorIf(got != want, "%s: %q, want %q (%v)", name, got, want, s.Status.Conditions)
	})
	return s
}

// poolBecomes waits until a pool has a usage and these conflicts.
func poolBecomes(t *testing.T, k *site.APIServer, name, usage string, conflicts ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		var p v1alpha1.AddressPool
		err := k.API.Get(t.Context(), site.HeraldPath("addresspools")+"/"+name, &p)
		return site.Check(err, p.Status.Usage != usage || !slices.Equal(p.Status.Conflicts, conflicts),
			"pool %s: %+v, want %q and %q", name, p.Status, usage, conflicts)
	})
}

// eventsOf returns the events about a Service, in alphabetical order.
func eventsOf(t *testing.T, api *services.API, name string) []string {
	t.Helper()
	var list corev1.EventList
	site.Must(t, api.Get(t.Context(), "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Service,involvedObject.name="+name, &list))
	var said []string
	for _, e := range list.Items {
		said = append(said, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
	}
	slices.Sort(said)
	return said
}

// requests returns the server's request counts so far, by verb and resource, except
// watches and the server's own.
func requests(t *testing.T, k *site.APIServer) map[string]int {
	t.Helper()
	_, text, err := k.API.Ask(t.Context(), http.MethodGet, "/metrics", nil)
	site.Must(t, err)
	counts := make(map[string]int)
	for line := range strings.Lines(text) {
		labels, ok := strings.CutPrefix(line, "apiserver_request_total{")
		if !ok {
			continue
		}
		var n float64
		label := func(name string) string {
			_, rest, _ := strings.Cut(labels, name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		if _, err := fmt.Sscan(labels[strings.LastIndex(labels, "}")+1:], &n); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if label("verb") != "WATCH" && slices.Contains([]string{"services", "addresspools", "events", "nodes", "namespaces"}, label("resource")) {
			counts[label("verb")+" "+label("resource")] += int(n)
		}
	}
	return counts
}

// runAssigner runs a process that gives Services their addresses.
func runAssigner(kubeconfig string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cluster, err := kube.Connect(kubeconfig, "herald-test")
	if err != nil {
		log.Error("cannot start", "reason", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	assign.New(log, cluster, assignOptions(os.Getenv(assignerName))).Run(ctx)
	return 0
}

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(assignerVariable); kubeconfig != "" {
		os.Exit(runAssigner(kubeconfig)) // this is a process that a test has started
	}
	os.Exit(m.Run())
}
