//go:build e2e

package e2e

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
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/kube"
	"github.com/herald-vip/herald/service/assign"
)

const (
	servicesPath = "/api/v1/namespaces/default/services"
	leasePath    = "/apis/coordination.k8s.io/v1/namespaces/default/leases/" + assign.LeaseName
	// writerVariable has the test binary run as a writer with that kubeconfig.
	writerVariable = "HERALD_E2E_WRITER"
	writerName     = "HERALD_E2E_WRITER_NAME"
)

func assignOptions(identity string) assign.Options {
	return assign.Options{Class: "herald.dev/vip", Default: true, Namespace: "default", Identity: identity}
}

// startWriter has an Assigner work until the test is over.
func (k *kubeServer) startWriter(t *testing.T) *assign.Assigner {
	t.Helper()
	a := assign.New(testLog(t), k.connect(t), assignOptions("n1"))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	eventually(t, soon, func() error {
		if !a.Status().Writer {
			return fmt.Errorf("nobody is the writer")
		}
		return nil
	})
	return a
}

// runWriter is the whole of a process that gives Services their addresses.
func runWriter(kubeconfig string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cluster, err := kube.Connect(kubeconfig, "herald-test")
	if err != nil {
		log.Error("cannot start", "reason", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := assign.New(log, cluster, assignOptions(os.Getenv(writerName))).Run(ctx); err != nil {
		log.Error("cannot go on", "reason", err)
		return 1
	}
	return 0
}

// writerProcess starts a process of its own that stands for writer.
func (k *kubeServer) writerProcess(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	return k.start(t, name, "/usr/bin/env", writerVariable+"="+k.kubeconfig, writerName+"="+name, os.Args[0])
}

// holder is the name of the writer's node by the Lease.
func (k *kubeServer) holder() (string, error) {
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	if err := k.try(http.MethodGet, leasePath, nil, &lease); err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(lease.Spec.HolderIdentity, "_")
	if name == "" {
		return "", fmt.Errorf("nobody is the writer")
	}
	return name, nil
}

// apply creates an object of YAML.
func (k *kubeServer) apply(t *testing.T, path, yaml string) {
	t.Helper()
	k.do(t, http.MethodPost, path+"?fieldValidation=Strict", []byte(yaml), nil)
}

// pool creates an AddressPool with a specification in YAML.
func (k *kubeServer) pool(t *testing.T, name, spec string) {
	t.Helper()
	k.apply(t, collection("addresspools"), fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: %s}, spec: %s}", name, spec))
}

// balancer creates a Service of type LoadBalancer with annotations and more of its
// specification in YAML.
func (k *kubeServer) balancer(t *testing.T, name, annotations, spec string) {
	t.Helper()
	if spec != "" {
		spec = ", " + spec
	}
	if !strings.Contains(spec, "ports:") {
		spec += ", ports: [{port: 80}]"
	}
	k.apply(t, servicesPath, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, annotations: {%s}}, spec: {type: LoadBalancer%s}}", name, annotations, spec))
}

func (k *kubeServer) patch(t *testing.T, path, json string) {
	t.Helper()
	k.do(t, http.MethodPatch, path, []byte(json), nil)
}

// state is the addresses of a Service and the reason of Herald's condition.
func state(s *corev1.Service) string {
	var words []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		words = append(words, i.IP)
		if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
			words = append(words, "without ipMode VIP")
		}
	}
	for _, c := range s.Status.Conditions {
		if c.Type == assign.ConditionAssigned {
			words = append(words, c.Reason)
		}
	}
	return strings.Join(words, " ")
}

// becomes waits until a Service has addresses and a reason.
func (k *kubeServer) becomes(t *testing.T, name, want string) *corev1.Service {
	t.Helper()
	s := new(corev1.Service)
	eventually(t, soon, func() error {
		*s = corev1.Service{}
		if err := k.try(http.MethodGet, servicesPath+"/"+name, nil, s); err != nil {
			return err
		}
		if got := state(s); got != want {
			return fmt.Errorf("%s: %q, want %q (%v)", name, got, want, s.Status.Conditions)
		}
		return nil
	})
	return s
}

// poolBecomes waits until a pool has a usage and these conflicts.
func (k *kubeServer) poolBecomes(t *testing.T, name, usage string, conflicts ...string) {
	t.Helper()
	eventually(t, soon, func() error {
		var p v1alpha1.AddressPool
		if err := k.try(http.MethodGet, collection("addresspools")+"/"+name, nil, &p); err != nil {
			return err
		}
		if p.Status.Usage != usage || !slices.Equal(p.Status.Conflicts, conflicts) {
			return fmt.Errorf("pool %s: %+v, want %q and %q", name, p.Status, usage, conflicts)
		}
		return nil
	})
}

// eventsOf are the events about a Service, in alphabetical order.
func (k *kubeServer) eventsOf(t *testing.T, name string) []string {
	t.Helper()
	var list corev1.EventList
	k.do(t, http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Service,involvedObject.name="+name, nil, &list)
	var said []string
	for _, e := range list.Items {
		said = append(said, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
	}
	slices.Sort(said)
	return said
}

// requests are how many the server has had so far, by verb and resource, but for
// watches and what is about itself.
func (k *kubeServer) requests(t *testing.T) map[string]int {
	t.Helper()
	text, err := k.send(http.MethodGet, "/metrics", nil)
	must(t, err)
	counts := make(map[string]int)
	for line := range strings.Lines(string(text)) {
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
