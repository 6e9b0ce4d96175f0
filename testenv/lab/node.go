package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/step"
)

var (
	errOff     = errors.New("the machine is powered off")
	errRunning = errors.New("already running")
)

// Node is one container of the lab. While its machine has no power, most of its methods fail.
type Node struct {
	lab     *Lab
	spec    clab.Node
	program Program
	machine *machine

	mu        sync.Mutex
	container *container // nil while powered off
	daemons   []*Process // of the last boot
}

// create makes the node's container on its machine's network.
func (n *Node) create(network netns.NsHandle) error {
	binds := slices.Concat(n.program.Binds, n.spec.Binds)
	c, err := newContainer(network, n.spec.Hostname, binds, n.lab.staging())
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.container, n.daemons = c, nil
	return nil
}

// destroy kills all processes of the node and removes its file tree.
func (n *Node) destroy() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.container == nil {
		return nil
	}
	err := n.container.close()
	n.container = nil
	return err
}

// Name returns the node's name in the topology.
func (n *Node) Name() string { return n.spec.Name }

// Log returns the path of the file that the node's daemons write to.
func (n *Node) Log() string { return filepath.Join(n.lab.dir, n.spec.Name+".log") }

// Boot starts the node's program and returns when it is ready, as far as that can be
// told. It is an error if the program runs already.
func (n *Node) Boot(ctx context.Context) error {
	if err := n.boot(ctx); err != nil {
		return fmt.Errorf("boot %s: %w", n.spec.Name, err)
	}
	n.lab.log.Debug("node booted", "node", n.spec.Name)
	return nil
}

func (n *Node) boot(ctx context.Context) error {
	n.mu.Lock()
	running := slices.ContainsFunc(n.daemons, (*Process).Running)
	if !running {
		n.daemons = nil
	}
	n.mu.Unlock()
	if running {
		return errRunning
	}
	return step.Run(func() {
		for _, argv := range n.program.Prepare {
			step.Get(n.Run(ctx, argv...))
		}
		for _, d := range n.program.Daemons {
			step.Do(n.startDaemon(ctx, d))
		}
		for _, argv := range n.program.Finish {
			step.Get(n.Run(ctx, argv...))
		}
	})
}

// startDaemon starts one daemon, logging its output to the node's file, and waits until it is
// ready.
func (n *Node) startDaemon(ctx context.Context, d Daemon) error {
	log, err := os.OpenFile(n.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p, err := n.start(d.Name, &exec.Cmd{Args: d.Argv, Stdout: log, Stderr: log})
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.daemons = append(n.daemons, p)
	n.mu.Unlock()
	if d.Socket == "" {
		return nil
	}
	return await(ctx, func() (bool, error) {
		if !p.Running() {
			return false, fmt.Errorf("%s exited: %v; see %s", d.Name, p.err, n.Log())
		}
		return n.knock(d.Socket) == nil, nil
	}, func() string { return fmt.Sprintf("%s does not listen on %s, see %s", d.Name, d.Socket, n.Log()) })
}

// knock connects to a Unix socket in the node's file tree.
func (n *Node) knock(path string) error {
	return n.inside(func(c *container) error {
		return c.thread.do(func() error {
			conn, err := net.Dial("unix", path)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	})
}

// inside runs f with the node's container, or fails if the node is off.
func (n *Node) inside(f func(*container) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.container == nil {
		return errOff
	}
	return f(n.container)
}

// Daemons returns the processes of the node's program, of the last boot.
func (n *Node) Daemons() []*Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.daemons)
}

// Daemon returns the process of that name, of the last boot. It panics if the
// node's program has none.
func (n *Node) Daemon(name string) *Process {
	for _, p := range n.Daemons() {
		if p.name == name {
			return p
		}
	}
	panic(fmt.Sprintf("lab: node %s runs no %q", n.spec.Name, name))
}

// Running reports whether any of the node's daemons runs, frozen or not.
func (n *Node) Running() bool { return slices.ContainsFunc(n.Daemons(), (*Process).Running) }

// Kill kills the node's daemons with SIGKILL, as the OOM killer would, and returns
// when they are gone. The network keeps its state.
func (n *Node) Kill() error { return each(n.Daemons(), (*Process).Kill) }

// Stop asks the node's daemons to end and waits until they have.
func (n *Node) Stop(ctx context.Context) error {
	return each(n.Daemons(), func(p *Process) error { return p.Stop(ctx) })
}

// Freeze stops the node's daemons; the kernel still answers for their sockets.
func (n *Node) Freeze() error { return each(n.Daemons(), (*Process).Freeze) }

// Thaw resumes frozen daemons.
func (n *Node) Thaw() error { return each(n.Daemons(), (*Process).Thaw) }

// Do runs f inside the node's network, on a separate thread. Sockets that f opens
// itself belong to the node, but not the sockets of goroutines that it starts.
func (n *Node) Do(f func() error) error {
	ns, err := n.machine.network()
	if err != nil {
		return fmt.Errorf("node %s: %w", n.spec.Name, err)
	}
	defer ns.Close()
	return within(ns, f)
}

// DialContext connects from inside the node's network, for example as the DialContext
// of an http.Transport. The address must be numeric.
func (n *Node) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Reaches returns an error unless a program in the node can connect to a TCP address.
func (n *Node) Reaches(ctx context.Context, address string) error {
	conn, err := n.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Handle opens a netlink handle on the node's network, to read or change its addresses
// and routes. The caller closes it.
func (n *Node) Handle() (*netlink.Handle, error) {
	ns, err := n.machine.network()
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.spec.Name, err)
	}
	defer ns.Close()
	return netlink.NewHandleAt(ns)
}
