// Package balance is a site in a lab of namespaces, to balance connections in, and what
// loads it:
//
//	    c1 ─┐        .9: a client
//	m1..m4 ─┼─ lan   .1 to .4: masters, each with a server; 10.6.0.0/24
//	w1..w5 ─┘        .21 to .25: workers, on which balancers run, and clients
//
// A balancer listens on a worker's 127.0.0.1 and on its own address, and leads to the
// masters' servers. By other addresses c1 reaches them through a worker that only
// forwards: that is what a machine on the way costs, if it balances or not. Nothing runs after [Start] but the machines: what is to run is
// booted node by node.
package balance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/testenv/lab"
)

// Where things are.
const (
	// Segment is the bridge that all are on.
	Segment = "lan"
	// Masters and Workers are how many there are; the last master is the one that comes and goes.
	Masters, Workers = 4, 5
	// BackendPort is that of the servers, ListenPort that of balancers.
	BackendPort, ListenPort = 6443, 9443
	// SplicePort is that of HAProxy with option splice-auto.
	SplicePort = 9444
)

// Options say what a lab is made of.
type Options struct {
	// Herald and Testenv are the paths of the two binaries, HAProxy that of the rival's.
	Herald, Testenv, HAProxy string
	// Proxy is the worker whose Herald balances by itself instead of in the kernel; may be empty.
	Proxy string
	// Dir receives configurations and logs.
	Dir string
}

// Lab is a running site.
type Lab struct {
	*lab.Lab
	options Options
}

// Start lays out the site. The context bounds the start only. After an error nothing is
// left behind.
func Start(ctx context.Context, o Options) (_ *Lab, err error) {
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	l := &Lab{options: o}
	if err := errors.Join(l.configureHerald(), l.configureHAProxy(), l.Install()); err != nil {
		return nil, fmt.Errorf("lab of balancers: %w", err)
	}
	topology, images := l.topology()
	l.Lab, err = lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Hold: true, Images: images, Dir: filepath.Join(o.Dir, "logs")})
	return l, err
}

// MasterNames are the names of the masters, WorkerNames those of the workers.
func MasterNames() []string { return names("m", Masters) }

// WorkerNames is described at MasterNames.
func WorkerNames() []string { return names("w", Workers) }

func names(letter string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s%d", letter, i+1))
	}
	return list
}

// Address is the address of a machine.
func Address(machine string) netip.Addr {
	number := machine[1] - '0'
	switch machine[0] {
	case 'w':
		number += 20
	case 'c':
		number += 8
	}
	return netip.AddrFrom4([4]byte{10, 6, 0, number})
}

// Backend is the address of a master's server.
func Backend(master string) netip.AddrPort { return netip.AddrPortFrom(Address(master), BackendPort) }

// Router is the worker that forwards what c1 sends to [Routed] addresses.
const Router = "w5"

// Routed is the address of a master's server by way of [Router].
func Routed(master string) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 7, 0, master[1] - '0'}), BackendPort)
}

// Server is the server on a master.
func (l *Lab) Server(master string) *lab.Node { return l.Node(master + "-server") }

// Speaker is Herald on a machine.
func (l *Lab) Speaker(machine string) *lab.Node { return l.Node(machine + "-speaker") }

// HAProxy is HAProxy on a worker.
func (l *Lab) HAProxy(worker string) *lab.Node { return l.Node(worker + "-haproxy") }

// own is the folder of a machine's files.
func (l *Lab) own(machine string) string { return filepath.Join(l.options.Dir, machine) }

// Status is what the speaker on a machine tells of itself.
func (l *Lab) Status(ctx context.Context, machine string) (s admin.Status, err error) {
	out, err := l.Speaker(machine).Run(ctx, binaryTarget, "status", "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// Served is how many requests a master's server has had since it started.
func (l *Lab) Served(ctx context.Context, master string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	c, err := l.Node(master).DialContext(ctx, "tcp", Backend(master).String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	text, err := ask(c, "/served", answerWithin)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(text, &n)
	return n, err
}

// Ask makes one connection from a machine and returns the name of the server that answers.
func (l *Lab) Ask(ctx context.Context, machine, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := l.Node(machine).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return ask(c, "/", time.Second)
}

// Client is a load that runs in a process of its own.
type Client struct {
	process     *lab.Process
	out, errout bytes.Buffer
	result      any
}

// Load starts a load on a machine.
func (l *Lab) Load(machine string, load Load) (*Client, error) {
	return l.client(machine, "load", load, new(LoadResult))
}

// Bulk starts the reading of bytes on a machine.
func (l *Lab) Bulk(machine string, bulk Bulk) (*Client, error) {
	return l.client(machine, "bulk", bulk, new(BulkResult))
}

func (l *Lab) client(machine, kind string, what, result any) (*Client, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	c := &Client{result: result}
	c.process, err = l.Node(machine + "-client").Start(&exec.Cmd{
		Args: []string{clientTarget, "balance-" + kind, string(text)}, Stdout: &c.out, Stderr: &c.errout,
	})
	return c, err
}

// Stop asks the client to end and waits for its result.
func (c *Client) Stop(ctx context.Context) (any, error) {
	if err := c.process.Stop(ctx); err != nil {
		return nil, err
	}
	return c.Wait(ctx)
}

// Wait waits for the client's result, a *[LoadResult] or a *[BulkResult].
func (c *Client) Wait(ctx context.Context) (any, error) {
	if err := c.process.Wait(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("client: %w: %s", err, bytes.TrimSpace(c.errout.Bytes())), c.process.Kill())
	}
	if err := json.Unmarshal(c.out.Bytes(), c.result); err != nil {
		return nil, fmt.Errorf("the client's result: %w", err)
	}
	return c.result, nil
}

// Install writes Herald's binary, as another file than the one before, as its package does.
func (l *Lab) Install() error {
	dir := filepath.Join(l.options.Dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(l.options.Herald)
	if err != nil {
		return err
	}
	next := filepath.Join(dir, "next")
	if err := os.WriteFile(next, data, 0o755); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, "herald"))
}
