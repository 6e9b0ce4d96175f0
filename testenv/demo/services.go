package demo

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
)

// reading is the time to read the output of a command.
const reading = 5 * time.Second

// tour is the demo of Services: it shows the output of `kubectl herald` while one
// thing after the other goes wrong in a cluster.
type tour struct {
	*services.Lab
	view *view
}

// runServices runs it.
func runServices(ctx context.Context, v *view, o Options) {
	began := time.Now()
	dir := step.Get(os.MkdirTemp("", "herald-demo-"))
	defer step.Close(func() error { return os.RemoveAll(dir) })
	v.say("Booting a real API server, three nodes with Herald, and a router with FRR, in network namespaces.")
	l := step.Get(services.Start(ctx, services.Options{
		Announcer: &services.Herald{Binary: o.Herald, CRDs: o.CRDs, Edit: inSystem}, APIServer: o.APIServer, Etcd: o.Etcd, Testenv: o.Testenv, Dir: dir,
	}))
	defer step.Close(l.Close)
	(&tour{l, v}).perform(ctx)
	v.printf("\nDone in %s.\n", since(began))
}

// inSystem puts Herald's Lease into the namespace of its DaemonSet, where `kubectl
// herald` looks for it.
func inSystem(_, file string) string {
	return strings.Replace(file, "services:\n", "services:\n  namespace: herald-system\n", 1)
}

func (t *tour) perform(ctx context.Context) {
	step.Do(t.API.Create(ctx, services.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "herald-system"}}))
	step.Do(t.Create(ctx, services.Service{Name: "shop", Pool: services.PoolBGP, Endpoints: []string{"n2"}}))
	nothing := func() error { return nil }
	for _, a := range []struct {
		title   string
		do      func() error
		command string
		says    string // a text of the expected output
	}{
		{"A Service has an address, and all nodes announce it", nothing, "why shop", "announced by n1, n2, n3"},
		{"", nothing, "status", "n3     1/1        0/0    1"},
		{"Its pod fails", func() error { return t.SetEndpoint(ctx, "shop", "n2", services.NotReady()) }, "why shop", "FAILS"},
		{"The pod is healthy again, and n1 is drained of traffic", func() error { return t.SetEndpoint(ctx, "shop", "n2", services.Ready()) }, "drain n1", "n1"},
		{"", nothing, "why shop", "announced by n2, n3; not by n1"},
		{"", nothing, "undrain n1", "n1"},
		{"A Service requests an address outside all pools", func() error {
			return t.Create(ctx, services.Service{Name: "blog", Pool: services.PoolBGP, Endpoints: []string{"n2"}, Edit: func(s *corev1.Service) {
				s.Annotations = map[string]string{"herald.dev/addresses": "192.0.2.1"}
			}})
		}, "why blog", "FAILS"},
	} {
		if a.title != "" {
			t.view.title(a.title)
		}
		step.Do(a.do())
		t.ask(ctx, a.command, a.says)
	}
}

// ask runs `kubectl herald` on a node until its output contains says, which may take
// some seconds after a change, and shows it.
func (t *tour) ask(ctx context.Context, command, says string) {
	t.view.print("\n" + t.view.paint(green, "$") + " kubectl herald " + command + "\n")
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	argv := fmt.Sprintf("exec -a kubectl-herald herald --kubeconfig /etc/herald/kubeconfig %s", command)
	out := ""
	step.Do(services.Eventually(within, func() (err error) {
		if out, err = t.Speaker("n1").Run(within, "bash", "-c", argv); err == nil && !strings.Contains(out, says) {
			err = fmt.Errorf("kubectl herald %s printed:\n%s", command, out)
		}
		return err
	}))
	t.view.printf("%s", out)
	t.view.pause(ctx)
}
