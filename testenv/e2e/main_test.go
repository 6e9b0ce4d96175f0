//go:build e2e

// Package e2e holds the tests of the herald binary on real parts: FRR routers,
// and masters with an etcd, a kube-apiserver and a container registry each, in
// a lab of network namespaces. `make e2e` installs and builds what they need;
// README.md tells what they show.
package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

// Where the real parts are, unless the environment says otherwise.
var parts = map[string]string{
	"HERALD":         "../../bin/herald",
	"TESTENV":        "../../bin/herald-testenv",
	"KUBE_APISERVER": "../realparts/bin/kube-apiserver",
	"ETCD":           "/usr/bin/etcd",
	"REGISTRY":       "/usr/bin/docker-registry",
	"BGPD":           "/usr/lib/frr/bgpd",
}

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(writerVariable); kubeconfig != "" {
		os.Exit(runWriter(kubeconfig)) // this is a process that a test has started
	}
	if err := findParts(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func findParts() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root for network namespaces: run `make e2e` with sudo")
	}
	for name := range parts {
		if path := os.Getenv(name); path != "" {
			parts[name] = path
		}
		if _, err := os.Stat(parts[name]); err != nil {
			return fmt.Errorf("%s: %w: run `make e2e`, which gets everything, or set %s", name, err, name)
		}
	}
	return nil
}

// images are the real parts as container images.
func images() map[string]lab.Image {
	return map[string]lab.Image{
		"quay.io/frrouting/frr":          lab.FRR,
		"herald":                         lab.Binary(parts["HERALD"]),
		"herald-testenv":                 lab.Binary(parts["TESTENV"]),
		"registry.k8s.io/etcd":           lab.Binary(parts["ETCD"]),
		"registry.k8s.io/kube-apiserver": lab.Binary(parts["KUBE_APISERVER"]),
		"registry":                       lab.Binary(parts["REGISTRY"], "serve"),
	}
}

// startLab lays out a topology with these variables in its environment, and
// boots none of its nodes. It is gone when the test is over; if that failed,
// the logs of its nodes are shown.
func startLab(t *testing.T, file string, variables map[string]string) *lab.Lab {
	t.Helper()
	return startTopology(t, "../topologies/"+file, variables, images())
}

// startTopology is startLab with the file's path, and other images.
func startTopology(t *testing.T, path string, variables map[string]string, images map[string]lab.Image) *lab.Lab {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	topology, err := clab.Parse(path, data, func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	l, err := lab.Start(t.Context(), log, topology, lab.Options{Hold: true, Images: images, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, l)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
	})
	return l
}

// showLogs prints the end of every node's log.
func showLogs(t *testing.T, l *lab.Lab) {
	const most = 60
	for _, n := range l.Nodes() {
		log, err := os.ReadFile(n.Log())
		if err != nil {
			continue // it never ran
		}
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		lines = lines[max(0, len(lines)-most):]
		t.Logf("log of %s:\n%s", n.Name(), strings.Join(lines, "\n"))
	}
}

// boot starts the nodes' programs, one after another.
func boot(t *testing.T, l *lab.Lab, nodes ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, name := range nodes {
		if err := l.Node(name).Boot(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a command in the node, which must not take long, and returns its output.
func run(t *testing.T, n *lab.Node, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return n.Run(ctx, argv...)
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
