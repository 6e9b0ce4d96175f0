package balancer

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// stage is a lab of namespaces for one part:
//
//	    c1 ─┐        .9: a client
//	m1..m4 ─┼─ lan   .1 to .4: masters, each with a server; 10.6.0.0/24
//	w1..w5 ─┘        .21 to .25: workers with balancers and clients
//
// A balancer listens on a worker's 127.0.0.1 and on its own address, and forwards to
// the masters' servers. By other addresses c1 reaches them through a worker that only
// routes: that shows the cost of the extra hop without balancing. At first only the
// machines run; their programs are booted node by node.
type stage struct {
	*lab.Lab
	*bench
	part  string // the part to measure
	dir   string // of configurations and logs
	proxy string // the worker with a Herald that balances in user space instead of in the kernel; may be empty
}

// Addresses and names.
const (
	// segment is the bridge of all machines.
	segment = "lan"
	// backendPort is the servers' port, listenPort the balancers', and splicePort that of
	// HAProxy with option splice-auto.
	backendPort, listenPort, splicePort = 6443, 9443, 9444
	// forwarder is the worker that forwards c1's packets to routed addresses.
	forwarder = "w5"

	binaryTarget = "/opt/herald/herald"
	clientTarget = "/usr/local/bin/herald-bench"
)

// masters returns all masters. The last one joins and leaves: no other node's file names it.
func masters() []string { return []string{"m1", "m2", "m3", newcomer} }

// voters returns the permanent masters.
func voters() []string { return masters()[:3] }

func workers() []string { return []string{"w1", "w2", "w3", "w4", "w5"} }

// address returns the address of a machine.
func address(machine string) netip.Addr {
	offset := map[byte]byte{'w': 20, 'c': 8}[machine[0]]
	return netip.AddrFrom4([4]byte{10, 6, 0, machine[1] - '0' + offset})
}

// backend returns the address of a master's server, routed the address that leads
// there through the forwarder.
func backend(master string) string { return netip.AddrPortFrom(address(master), backendPort).String() }

func routed(master string) netip.Addr { return netip.AddrFrom4([4]byte{10, 7, 0, master[1] - '0'}) }

// target returns the balancer's listening address for clients on its own machine or on others.
func target(worker, path string, port int) string {
	if path == local {
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	return fmt.Sprintf("%s:%d", address(worker), port)
}

// lay lays out the site. The context bounds only that. After an error nothing is left behind.
func (s *stage) lay(ctx context.Context) {
	step.Named("lab of balancers", func() {
		s.configure()
		s.install()
	})
	topology, images := s.topology()
	s.Lab = step.Get(lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Hold: true, Images: images, Dir: filepath.Join(s.dir, "logs")}))
}

// topology returns the machines and the image of each of their nodes. An image has the
// name of its node.
func (s *stage) topology() (*clab.Topology, map[string]lab.Image) {
	t := &clab.Topology{Name: "balance", Nodes: []clab.Node{{Name: segment, Kind: clab.Bridge}}}
	images := make(map[string]lab.Image)
	program := func(base, kind string, image lab.Image, binds ...clab.Bind) {
		name := base + "-" + kind
		t.Nodes = append(t.Nodes, clab.Node{Name: name, Kind: clab.Linux, Image: name, Hostname: base, Base: base, Binds: binds})
		images[name] = image
	}
	for _, name := range slices.Concat(masters(), workers(), []string{"c1"}) {
		n := clab.Node{Name: name, Kind: clab.Linux, Image: name, Hostname: name, Sysctls: map[string]string{
			// The same for all: thousands of connections per second from one address.
			"net.ipv4.ip_local_port_range": "10000 65535",
			"net.ipv4.ip_forward":          "1",
			"net.core.somaxconn":           "8192",
			// The detour enters and leaves by one interface.
			"net.ipv4.conf.all.send_redirects":     "0",
			"net.ipv4.conf.default.send_redirects": "0",
		}}
		for _, line := range append([]string{fmt.Sprintf("ip addr add %s/24 dev eth1", address(name))}, detour(name)...) {
			n.Exec = append(n.Exec, strings.Fields(line))
		}
		t.Nodes, images[name] = append(t.Nodes, n), daemons()
		t.Links = append(t.Links, clab.Link{
			A: clab.Endpoint{Node: name, Interface: "eth1"}, B: clab.Endpoint{Node: segment, Interface: name}, MTU: 1500,
		})
		if name[0] == 'm' {
			program(name, "server", lab.Binary(s.Programs["herald-bench"], "balance-server", fmt.Sprintf("--listen=:%d", backendPort), "--name="+name))
		} else {
			program(name, "client", lab.Binary(s.Programs["herald-bench"]))
		}
		if name == "c1" {
			continue
		}
		program(name, "speaker", daemons(binaryTarget, "run", "--config", "/etc/herald/herald.yaml"),
			clab.Bind{Source: s.file(name), Target: "/etc/herald"},
			clab.Bind{Source: s.file("bin"), Target: filepath.Dir(binaryTarget), ReadOnly: true})
		if name[0] == 'w' {
			program(name, "haproxy", daemons(s.Programs["haproxy"], "-W", "-db", "-f", "/etc/haproxy/haproxy.cfg"),
				clab.Bind{Source: s.file(name), Target: "/etc/haproxy"})
		}
	}
	return t, images
}

// detour returns the commands that route between c1 and the masters through the
// forwarder, at addresses used only for that.
func detour(machine string) (lines []string) {
	const client = "10.7.1.9"
	switch {
	case machine == "c1":
		lines = append(lines, "ip addr add "+client+"/32 dev lo", fmt.Sprintf("ip route add 10.7.0.0/24 via %s src %s", address(forwarder), client))
	case machine == forwarder:
		lines = append(lines, fmt.Sprintf("ip route add %s via %s", client, address("c1")))
		for _, m := range masters() {
			lines = append(lines, fmt.Sprintf("ip route add %s via %s", routed(m), address(m)))
		}
	case machine[0] == 'm':
		lines = append(lines, fmt.Sprintf("ip addr add %s/32 dev lo", routed(machine)), fmt.Sprintf("ip route add %s via %s", client, address(forwarder)))
	}
	return lines
}

// daemons returns the image of a node that runs a program, or of a machine that only has a
// network.
func daemons(argv ...string) lab.Image {
	return func(clab.Node) (p lab.Program, err error) {
		if len(argv) > 0 {
			p.Daemons = []lab.Daemon{{Name: filepath.Base(argv[0]), Argv: argv}}
		}
		return p, nil
	}
}

// server, speaker and haproxy return the nodes of a machine.
func (s *stage) server(master string) *lab.Node   { return s.Node(master + "-server") }
func (s *stage) speaker(machine string) *lab.Node { return s.Node(machine + "-speaker") }
func (s *stage) haproxy(worker string) *lab.Node  { return s.Node(worker + "-haproxy") }

// file returns the path of one of the lab's files; each machine has a folder of its name.
func (s *stage) file(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// configure writes the files of all machines.
func (s *stage) configure() {
	key := step.Get(election.NewKey())
	for _, machine := range append(masters(), workers()...) {
		step.Do(os.MkdirAll(s.file(machine), 0o755))
		s.writeHerald(machine, internal)
		step.Do(os.WriteFile(s.file(machine, "gossip.key"), []byte(key+"\n"), 0o600))
		if machine[0] == 'w' {
			s.fill("haproxy.cfg", machine, "", voters())
		}
	}
}

//go:embed *.tmpl
var templates embed.FS

// fill writes a machine's file from its template, with these masters as backends or voters.
func (s *stage) fill(file, machine, kind string, masters []string) {
	mode := "kernel"
	switch machine {
	case s.proxy:
		mode = "proxy"
	case "m1", "m2", "m3", newcomer:
		mode = "" // it does not balance
	}
	t := template.Must(template.New(file+".tmpl").Funcs(template.FuncMap{"address": address}).ParseFS(templates, file+".tmpl"))
	var text bytes.Buffer
	step.Do(t.Execute(&text, map[string]any{"Name": machine, "Type": kind, "Mode": mode, "Servers": masters}))
	step.Do(os.WriteFile(s.file(machine, file), text.Bytes(), 0o644))
}

// internal and external are the types of a load balancer.
const internal, external = "internal", "external"

// writeHerald writes a machine's Herald configuration.
func (s *stage) writeHerald(machine, kind string) { s.fill("herald.yaml", machine, kind, voters()) }

// switchTo changes loadBalancer.type of a worker's Herald by a reload.
func (s *stage) switchTo(worker, kind string) {
	s.writeHerald(worker, kind)
	step.Do(s.speaker(worker).Daemons()[0].Signal(unix.SIGHUP))
}

// reloadHAProxy makes a worker's HAProxy use these masters. It waits until the master
// process has a new child, which has read the configuration.
func (s *stage) reloadHAProxy(ctx context.Context, worker string, masters ...string) {
	s.fill("haproxy.cfg", worker, "", masters)
	p := s.haproxy(worker).Daemons()[0]
	before := step.Get(observe.Group(p.Pid()))
	// Signal only the first process: the signal means something else to the others.
	step.Named("reload HAProxy", func() { step.Do(unix.Kill(p.Pid(), unix.SIGUSR2)) })
	step.Eventually(ctx, answerWithin, func() error {
		now, err := observe.Group(p.Pid())
		begun := func(pid int) bool { return !slices.Contains(before, pid) }
		if err == nil && !slices.ContainsFunc(now, begun) {
			err = fmt.Errorf("HAProxy on %s has no new process", worker)
		}
		return err
	})
}

// install replaces Herald's binary with a new file, as its package does.
func (s *stage) install() {
	data := step.Get(os.ReadFile(s.Programs["herald"]))
	step.Do(os.MkdirAll(s.file("bin"), 0o755))
	step.Do(os.WriteFile(s.file("bin", "next"), data, 0o755))
	step.Do(os.Rename(s.file("bin", "next"), s.file("bin", "herald")))
}

// ask makes one connection from a machine and returns the answer.
func (s *stage) ask(ctx context.Context, machine, address, path string, within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c, err := s.Node(machine).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return ask(c, path, within)
}

// Task is a client's work, in a separate process: a [Load] or a [Bulk].
type Task interface {
	// Run does the task and returns its result.
	Run(ctx context.Context) (any, error)
}

// client is a process that does a task.
type client struct {
	process     *lab.Process
	out, errout bytes.Buffer
}

// start starts a task on a machine.
func (s *stage) start(machine string, t Task) *client {
	kind := "load"
	if _, ok := t.(Bulk); ok {
		kind = "bulk"
	}
	c := new(client)
	c.process = step.Get(s.Node(machine + "-client").Start(&exec.Cmd{
		Args: []string{clientTarget, "balance-client", kind, string(step.Get(json.Marshal(t)))}, Stdout: &c.out, Stderr: &c.errout,
	}))
	return c
}

// stop makes the client end.
func (c *client) stop(ctx context.Context) { step.Do(c.process.Stop(ctx)) }

// load waits for the result of a [Load], bulk for that of a [Bulk].
func (c *client) load(ctx context.Context) (r LoadResult) { c.wait(ctx, &r); return r }
func (c *client) bulk(ctx context.Context) (r BulkResult) { c.wait(ctx, &r); return r }

func (c *client) wait(ctx context.Context, result any) {
	if err := c.process.Wait(ctx); err != nil {
		step.Do(errors.Join(fmt.Errorf("client: %w: %s", err, bytes.TrimSpace(c.errout.Bytes())), c.process.Kill()))
	}
	step.Named("the client's result", func() { step.Do(json.Unmarshal(c.out.Bytes(), result)) })
}
