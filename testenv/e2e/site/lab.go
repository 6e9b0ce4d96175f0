//go:build e2e

// Package site holds the labs that the tests of the herald binary share, with real
// parts in network namespaces: FRR routers, and masters with an etcd, a kube-apiserver
// and a container registry each. `make e2e` installs and builds their needs.
package site

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
)

func Kill(t *testing.T, n *lab.Node) { t.Helper(); Must(t, n.Kill()) }

func Freeze(t *testing.T, n *lab.Node) { t.Helper(); Must(t, n.Freeze()) }

func Thaw(t *testing.T, n *lab.Node) { t.Helper(); Must(t, n.Thaw()) }

// Context returns a context for quick operations.
func Context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Soon)
	t.Cleanup(cancel)
	return ctx
}

// Start boots a node's program.
func Start(t *testing.T, n *lab.Node) { t.Helper(); Must(t, n.Boot(Context(t))) }

// PowerOn gives a machine its power back.
func PowerOn(t *testing.T, n *lab.Node) { t.Helper(); Must(t, n.PowerOn(Context(t))) }

// Stop asks a node to end, and waits until it has.
func Stop(t *testing.T, n *lab.Node) error { return n.Stop(Context(t)) }

func Command(argv ...string) func(*testing.T, *lab.Node) {
	return func(t *testing.T, n *lab.Node) {
		t.Helper()
		MustRun(t, n, argv...)
	}
}

// Daemonise runs a program in a node until the end of the test.
func Daemonise(t *testing.T, n *lab.Node, argv ...string) {
	t.Helper()
	p := Get[*lab.Process](t)(n.Start(&exec.Cmd{Args: argv, Stdout: t.Output(), Stderr: t.Output()}))
	t.Cleanup(func() {
		if t.Failed() && !p.Running() {
			t.Logf("%s ended before the test did: %v", p.Name(), p.Wait(context.Background()))
		}
		Must(t, p.Kill())
	})
}

// Meanwhile runs a function until it is stopped or the test is over; then its context ends.
func Meanwhile(t *testing.T, run func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// Shell runs a script in the node, to its first error.
func Shell(t *testing.T, n *lab.Node, script string) {
	t.Helper()
	MustRun(t, n, "sh", "-euc", script)
}

// WantLittleMemory checks the peak memory of a speaker with one VIP.
func WantLittleMemory(t *testing.T, n *lab.Node) {
	t.Helper()
	const most = 45 << 20 // bytes
	if peak := Memory(t, n.Daemon("herald").Pid(), "VmHWM"); peak > most {
		t.Errorf("%s needed up to %d bytes of memory, want at most %d", n.Name(), peak, most)
	}
}

// UnderLoad overloads every core from a node, for the time in an environment variable,
// or ten seconds.
func UnderLoad(t *testing.T, n *lab.Node, variable string) (measured time.Duration) {
	t.Helper()
	measured = Get[time.Duration](t)(time.ParseDuration(cmp.Or(os.Getenv(variable), "10s")))
	for range 2 * runtime.NumCPU() {
		_, err := n.Start(exec.Command("sh", "-c", "while :; do :; done"))
		Must(t, err)
	}
	select {
	case <-time.After(measured):
	case <-t.Context().Done():
	}
	return measured
}

// Memory returns a figure of the process's status, in bytes.
func Memory(t *testing.T, pid int, name string) int {
	t.Helper()
	for line := range strings.Lines(ReadFile(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kib := Get[int](t)(strconv.Atoi(strings.Fields(value)[0]))
			return kib << 10
		}
	}
	t.Fatalf("process %d has no %s", pid, name)
	return 0
}

// Part returns the path of a real part, from the environment variable of its name or
// by default from `make e2e`.
func Part(t *testing.T, name string) string {
	t.Helper()
	path := Get[string](t)(findPart(name))
	return path
}

func findPart(name string) (string, error) {
	path := cmp.Or(os.Getenv(name), map[string]string{
		"HERALD":                  "../../../bin/herald",
		"HERALD_RACE":             "../../../bin/race/herald",
		"TESTENV":                 "../../../bin/herald-testenv",
		"HERALD_RELEASE":          "../../../bin/herald-release",
		"KUBE_APISERVER":          "../../realparts/bin/kube-apiserver",
		"KUBE_CONTROLLER_MANAGER": "../../realparts/bin/kube-controller-manager",
		"KUBE_PROXY":              "../../realparts/bin/kube-proxy",
		"KUBECTL":                 "../../realparts/bin/kubectl",
		"ETCD":                    "/usr/bin/etcd",
		"REGISTRY":                "/usr/bin/docker-registry",
		"HELM":                    "../../realparts/bin/helm",
		"KUSTOMIZE":               "../../realparts/bin/kustomize",
		"TRAEFIK":                 "../../realparts/bin/traefik",
		"EXTERNAL_DNS":            "../../realparts/bin/external-dns",
		"GATEWAY_API":             "../../realparts/bin/gateway-api",
		"CONTOUR":                 "../../realparts/bin/contour",
		"ECHO_BASIC":              "../../realparts/bin/gateway-api-conformance/echo-basic",
		"CONFORMANCE":             "../../realparts/bin/gateway-api-conformance/conformance",
		"NAMED":                   "/usr/sbin/named",
	}[name])
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w: run `make e2e`, which installs everything, or set %[1]s", name, err)
	}
	return path, nil
}

// Images returns the real parts as container images.
func Images() map[string]lab.Image {
	part := func(name string, args ...string) lab.Image {
		return func(n clab.Node) (lab.Program, error) {
			path, err := findPart(name)
			if err != nil {
				return lab.Program{}, err
			}
			return lab.Binary(path, args...)(n)
		}
	}
	return map[string]lab.Image{
		"quay.io/frrouting/frr":          lab.FRR,
		"bird":                           lab.BIRD,
		"herald":                         part("HERALD"),
		"herald-testenv":                 part("TESTENV"),
		"registry.k8s.io/etcd":           part("ETCD"),
		"registry.k8s.io/kube-apiserver": part("KUBE_APISERVER"),
		"registry":                       part("REGISTRY", "serve"),
	}
}

// StartLab lays out a topology with these variables in its environment, but boots no
// node. It closes the lab when the test is over; if that failed, it prints the logs of
// its nodes.
func StartLab(t *testing.T, file string, variables map[string]string) *lab.Lab {
	t.Helper()
	return StartTopology(t, "../../topologies/"+file, variables, Images())
}

// StartTopology is StartLab with the file's path, and other images.
func StartTopology(t *testing.T, path string, variables map[string]string, images map[string]lab.Image) *lab.Lab {
	t.Helper()
	topology, err := clab.Parse(path, []byte(ReadFile(t, path)), func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
	Must(t, err)
	l := Get[*lab.Lab](t)(lab.Start(t.Context(), Log(t), topology, lab.Options{Hold: true, Images: images, Dir: t.TempDir()}))
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			ShowLogs(t, l)
		}
		Must(t, l.Close())
	})
	return l
}

// ShowLogs prints the end of every node's log.
func ShowLogs(t *testing.T, l *lab.Lab) {
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

// Sane checks that no program of the node has panicked or raced.
func Sane(t *testing.T, n *lab.Node) {
	t.Helper()
	log, err := os.ReadFile(n.Log())
	if err != nil {
		return // it never ran
	}
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
		if _, after, found := strings.Cut(string(log), bad); found {
			t.Errorf("%s: %s%s", n.Name(), bad, after[:min(len(after), 2000)])
		}
	}
}

// Boot starts the nodes' programs, one after another.
func Boot(t *testing.T, l *lab.Lab, nodes ...string) {
	t.Helper()
	for _, name := range nodes {
		Start(t, l.Node(name))
	}
}

// Run runs a short command in the node and returns its output.
func Run(t *testing.T, n *lab.Node, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Soon)
	defer cancel()
	return n.Run(ctx, argv...)
}

// MustRun is Run for a command that must succeed.
func MustRun(t *testing.T, n *lab.Node, argv ...string) string {
	t.Helper()
	out := Get[string](t)(Run(t, n, argv...))
	return out
}

// Log returns the logger for a test's parts.
func Log(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// Must ends the test on an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a result, and ends the test on an error, as [must.Get] does.
func Get[T any](t *testing.T) func(T, error) T { return must.Get[T](t) }

// ReadFile returns the text of a file of the host.
func ReadFile(t *testing.T, path string) string {
	t.Helper()
	text := Get[[]byte](t)(os.ReadFile(path))
	return string(text)
}

// ReadOnlySettings wraps a command so that it cannot write to /proc/sys, as in a pod.
func ReadOnlySettings() []string {
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"`, "sh"}
}

// confined returns the command that starts herald like a container runtime: as root
// with only these capabilities.
func confined(capabilities []string) []string {
	bounds := "-all"
	for _, c := range capabilities {
		bounds += ",+" + c
	}
	return []string{"setpriv", "--bounding-set=" + bounds, "--inh-caps=" + bounds, "--no-new-privs",
		"herald", "run", "--config", "/etc/herald/herald.yaml"}
}

// StartConfined starts a speaker, after the words of wrap, and kills it when the test
// is over. It returns the path of its log.
func StartConfined(t *testing.T, n *lab.Node, capabilities []string, wrap ...string) (log string) {
	t.Helper()
	f := Get[*os.File](t)(os.CreateTemp(t.TempDir(), n.Name()))
	defer f.Close()
	p := Get[*lab.Process](t)(n.Start(&exec.Cmd{Args: append(wrap, confined(capabilities)...), Stdout: f, Stderr: f}))
	t.Cleanup(func() {
		err := p.Kill()
		if text, failed := os.ReadFile(f.Name()); failed == nil && (err != nil || t.Failed()) {
			t.Logf("log of %s:\n%s", n.Name(), text)
		}
		Must(t, err)
	})
	return f.Name()
}

// Orders returns orders of the items that begin with each item once, or nightly all orders.
func Orders(items ...string) [][]string {
	all := permutations(items...)
	if Nightly() {
		return all
	}
	var some [][]string
	share := len(all) / len(items) // orders with the same first item
	for i := range items {
		some = append(some, all[i*share+i%share])
	}
	return some
}

// permutations returns all orders of the items.
func permutations(items ...string) [][]string {
	if len(items) == 1 {
		return [][]string{items}
	}
	var out [][]string
	for i, first := range items {
		rest := slices.Delete(slices.Clone(items), i, i+1)
		for _, p := range permutations(rest...) {
			out = append(out, append([]string{first}, p...))
		}
	}
	return out
}

func IP(s string) netip.Addr { return netip.MustParseAddr(s) }
