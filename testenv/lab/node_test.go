package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// served returns small.clab.yml with a server in m1-app.
func served(t *testing.T) *clab.Topology {
	t.Helper()
	topology := load(t, "small.clab.yml")
	for i := range topology.Nodes {
		if n := &topology.Nodes[i]; n.Name == "m1-app" {
			n.Image, n.Entrypoint, n.Cmd = "test", nil, []string{"serve", ":80"}
		}
	}
	return topology
}

// connect connects from c1 to the server in m1-app, once it listens.
func connect(t *testing.T, l *lab.Lab) net.Conn {
	t.Helper()
	var conn net.Conn
	wait.Until(t, "a connection", func() (ok bool) {
		var err error
		conn, err = l.Node("c1").DialContext(t.Context(), "tcp", "10.0.2.1:80")
		return err == nil
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// echo checks that the server answers.
func echo(t *testing.T, conn net.Conn) {
	t.Helper()
	must.Get[int](t)(conn.Write([]byte("x")))
	must.Get[int](t)(io.ReadFull(conn, make([]byte, 1)))
}

// TestBootAndKill checks that a server's connections end with it, and that it serves
// again after a new boot.
func TestBootAndKill(t *testing.T) {
	l := start(t, served(t), lab.Options{Hold: true})
	app := l.Node("m1-app")
	ends := map[string]func() error{
		"kill": app.Kill,
		"stop": func() error { return app.Stop(t.Context()) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			must.Do(t, app.Boot(t.Context()))
			if err := app.Boot(t.Context()); err == nil || !strings.Contains(err.Error(), "boot m1-app: already running") {
				t.Errorf("second boot: %v", err)
			}
			conn := connect(t, l)
			echo(t, conn)
			if !app.Running() || len(app.Daemons()) != 1 {
				t.Errorf("running %v, daemons %v", app.Running(), app.Daemons())
			}
			must.Do(t, end())
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("reading from a dead server: %v", err)
			}
			if app.Running() {
				t.Error("still running")
			}
			if err := app.Kill(); err != nil {
				t.Errorf("killing the dead: %v", err)
			}
			if err := app.Freeze(); err == nil || !strings.Contains(err.Error(), "not running") {
				t.Errorf("freezing the dead: %v", err)
			}
		})
	}
	if log := string(must.Get[[]byte](t)(os.ReadFile(app.Log()))); log != "serving\nserving\n" {
		t.Errorf("the log has %q", log)
	}
	must.Do(t, l.Boot(t.Context()))
	for _, n := range l.Nodes() {
		if !n.Running() {
			t.Errorf("%s does not run", n.Name())
		}
	}
}

// TestFreeze checks that a frozen server's kernel accepts connections, and that the
// server answers them when thawed.
func TestFreeze(t *testing.T) {
	l := start(t, served(t), lab.Options{})
	app := l.Node("m1-app")
	echo(t, connect(t, l))
	for range 2 {
		must.Do(t, app.Freeze())
		if got := state(t, app.Daemon("lab.test")); got != "T" {
			t.Errorf("a frozen server is in state %s", got)
		}
		conn := connect(t, l)
		must.Get[int](t)(conn.Write([]byte("x")))
		must.Do(t, app.Thaw())
		must.Get[int](t)(io.ReadFull(conn, make([]byte, 1)))
	}
	must.Do(t, app.Freeze()) // Close kills it nevertheless
}

// state returns the kernel's state of a process.
func state(t *testing.T, p *lab.Process) string {
	t.Helper()
	stat := string(must.Get[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))))
	_, rest, _ := strings.Cut(stat, ") ")
	return rest[:1]
}

// TestProcess checks that exit states are distinguished and that helpers die with their leader.
func TestProcess(t *testing.T) {
	l := start(t, load(t, "small.clab.yml"), lab.Options{})
	n := l.Node("m1")
	var exit *exec.ExitError
	p := must.Get[*lab.Process](t)(n.Start(exec.Command("sh", "-c", "exit 3")))
	if err := p.Wait(t.Context()); !errors.As(err, &exit) || exit.ExitCode() != 3 || p.Name() != "sh" {
		t.Errorf("%s: %v, want exit status 3", p.Name(), err)
	}
	if err := p.Signal(unix.SIGTERM); err == nil || err.Error() != "sh: not running" {
		t.Errorf("a signal to the dead: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, command := range []string{"wait", "exit"} {
		p, helper := startHelped(t, n, "sleep infinity & echo $!; read word; "+command)
		if err := p.Wait(ctx); !errors.Is(err, context.Canceled) || !p.Running() {
			t.Errorf("wait with a deadline: %v, running %v", err, p.Running())
		}
		must.Do(t, p.Freeze())
		wait.Until(t, "the helper is frozen", func() bool { return strings.Contains(status(n, helper), "State:\tT") })
		must.Do(t, p.Thaw())
		wait.Until(t, "the helper is thawed", func() bool { return strings.Contains(status(n, helper), "State:\tS") })
		if command == "exit" {
			must.Do(t, p.stdin.Close()) // ends by itself
		} else {
			must.Do(t, p.Kill())
		}
		<-p.Done()
		wait.Until(t, "the helper is gone", func() bool { return status(n, helper) == "" })
	}

	if _, err := n.Run(ctx, "sleep", "infinity"); !errors.Is(err, context.Canceled) {
		t.Errorf("a command after the end of its context: %v", err)
	}
}

// helped is a process with a standard input.
type helped struct {
	*lab.Process
	stdin io.WriteCloser
}

// startHelped starts a shell script that prints the PID of its helper.
func startHelped(t *testing.T, n *lab.Node, script string) (p helped, helper int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	p.stdin = must.Get[io.WriteCloser](t)(cmd.StdinPipe())
	out := must.Get[io.ReadCloser](t)(cmd.StdoutPipe())
	p.Process = must.Get[*lab.Process](t)(n.Start(cmd))
	must.Get[int](t)(fmt.Fscan(out, &helper))
	return p, helper
}

// status returns /proc/PID/status of one of the node's processes, empty if there is none.
func status(n *lab.Node, pid int) string {
	out, _ := n.Run(context.Background(), "cat", fmt.Sprintf("/proc/%d/status", pid))
	return out
}

// TestPower checks that a power cut is silent even for open connections, and that a
// restarted machine has no state left.
func TestPower(t *testing.T) {
	l := start(t, served(t), lab.Options{})
	m1, app := l.Node("m1"), l.Node("m1-app")
	mac := func() string {
		h := must.Get[*netlink.Handle](t)(m1.Handle())
		defer h.Close()
		return must.Get[netlink.Link](t)(h.LinkByName("eth1")).Attrs().HardwareAddr.String()
	}
	fence := newTalk(t, l.Node("r1"), l.Node("c1"), "10.0.1.1")
	before := mac()
	for range 2 {
		conn := connect(t, l)
		echo(t, conn)
		run(t, app, "touch /mark")

		must.Do(t, app.PowerOff())
		fence.works() // arrives after everything that m1 has sent
		if n, err := peek(t, conn); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("c1 received %d bytes and %v from a machine without power", n, err)
		}
		if !carrier(t, l.Node("r1"), "eth2") {
			t.Error("r1 lost the carrier")
		}
		for what, err := range map[string]error{
			"power off": m1.PowerOff(),
			"boot":      m1.Boot(t.Context()),
			"do":        m1.Do(func() error { return nil }),
			"heal":      l.Link("m1", "r1").Heal(),
			"down":      l.Link("m1", "r1").Down(),
		} {
			if err == nil || !strings.Contains(err.Error(), "powered off") {
				t.Errorf("%s without power: %v", what, err)
			}
		}
		if m1.Running() || app.Running() {
			t.Error("something runs without power")
		}

		must.Do(t, m1.PowerOn(t.Context()))
		if err := m1.PowerOn(t.Context()); err == nil {
			t.Error("power on twice is no error")
		}
		echo(t, connect(t, l))
		if _, err := app.Run(t.Context(), "test", "!", "-e", "/mark"); err != nil {
			t.Error("a file outlived the power cut")
		}
		if after := mac(); after != before {
			t.Errorf("the MAC address is %s, was %s", after, before)
		}
	}
}

// TestPowerOfTwo powers both ends of a link off and on again, in each order and
// at once.
func TestPowerOfTwo(t *testing.T) {
	l := start(t, served(t), lab.Options{})
	m1, r1 := l.Node("m1"), l.Node("r1")
	on := func(nodes ...*lab.Node) {
		t.Helper()
		for _, n := range nodes {
			must.Do(t, n.PowerOn(t.Context()))
		}
		echo(t, connect(t, l))
	}
	for range 2 {
		must.Do(t, m1.PowerOff())
		must.Do(t, r1.PowerOff())
		on(r1, m1)
		must.Do(t, r1.PowerOff())
		must.Do(t, m1.PowerOff())
		must.Do(t, l.Link("m1", "r1").Cut())
		on(r1, m1)
	}
	must.Do(t, errors.Join(m1.PowerOff(), r1.PowerOff()))
	powered := make(chan error, 2)
	for _, n := range []*lab.Node{m1, r1} {
		go func() { powered <- n.PowerOn(t.Context()) }()
	}
	must.Do(t, errors.Join(<-powered, <-powered))
	on()
}

// peek looks for received data on a connection without waiting.
func peek(t *testing.T, conn net.Conn) (n int, err error) {
	t.Helper()
	raw, rawErr := conn.(*net.TCPConn).SyscallConn()
	must.Do(t, rawErr)
	must.Do(t, raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}))
	return n, err
}
