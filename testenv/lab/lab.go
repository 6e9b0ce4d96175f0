// Package lab runs a containerlab topology in network namespaces, without Docker: the
// same file, interfaces and addresses. It needs root, a kernel of 5.12 or later and
// Debian's base system.
//
// Every node has its own network, mount, UTS and PID namespace and a private file
// tree. That is the host's root file system under a writable layer in memory, with the
// topology's binds on top. A node with `network-mode: container:BASE` shares only the
// network of its base node; the two form one machine, which is powered off as one.
// [Options].Images selects the program that runs in place of a node's container image.
//
// Links run through a separate namespace. There each can be cut in one or both
// directions without either end noticing, or lose its carrier.
//
// Nothing in a lab has a name on the host, and nothing outlives the process that
// started it. The first process of every node dies with the thread that forked it, and
// all others are in its PID namespace. Namespaces, mounts and interfaces go with their
// last process.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/step"
)

// Options select how to run a topology.
type Options struct {
	// Images maps the repository of a container image (its reference without tag) to a
	// program. A node with an entrypoint needs none.
	Images map[string]Image
	// Dir receives a log file per node. Default: a temporary folder, removed by Close.
	Dir string
	// Hold lays everything out but starts no node's program; Boot does.
	Hold bool
}

// Lab is a running topology.
type Lab struct {
	log      *slog.Logger
	dir      string
	tempDir  bool
	wires    *wires
	machines []*machine
	nodes    []*Node
	links    []*Link
	power    sync.Mutex // held while a machine is powered on or off
}

// Start lays out the topology, runs every node's exec commands and, unless opts.Hold,
// boots all nodes in parallel. The context bounds the start only. Start cleans up
// after an error.
//
// Unlike in containerlab, exec commands run before a node's program.
func Start(ctx context.Context, log *slog.Logger, t *clab.Topology, opts Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a lab needs root for its namespaces: run with sudo")
	}
	l := &Lab{log: log}
	err := step.Run(func() {
		step.Do(l.makeDir(opts.Dir))
		step.Do(l.plan(t, opts.Images))
		l.layOut(ctx, t)
		log.Info("lab laid out", "lab", t.Name, "nodes", len(l.nodes), "links", len(l.links), "logs", l.dir)
		if !opts.Hold {
			step.Do(l.Boot(ctx))
			log.Info("lab booted", "lab", t.Name)
		}
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", t.Name, err), l.Close())
	}
	return l, nil
}

// makeDir prepares the folder of the logs, and in it the empty folder over which each
// node builds its file tree, in its own mount namespace.
func (l *Lab) makeDir(dir string) (err error) {
	l.dir = dir
	if dir == "" {
		l.tempDir = true
		if l.dir, err = os.MkdirTemp("", "lab-"); err != nil {
			return err
		}
	}
	if l.dir, err = filepath.Abs(l.dir); err != nil {
		return err
	}
	return os.MkdirAll(l.staging(), 0o755)
}

func (l *Lab) staging() string { return filepath.Join(l.dir, "root") }

// plan builds the nodes, machines and links in memory only.
func (l *Lab) plan(t *clab.Topology, images map[string]Image) error {
	for _, spec := range t.Nodes {
		if spec.Kind != clab.Linux {
			continue
		}
		p, err := program(spec, images)
		if err != nil {
			return fmt.Errorf("node %s: %w", spec.Name, err)
		}
		l.nodes = append(l.nodes, &Node{lab: l, spec: spec, program: p})
	}
	for _, n := range l.nodes {
		if n.spec.Base == "" {
			n.machine = newMachine(n)
			l.machines = append(l.machines, n.machine)
		}
	}
	for _, n := range l.nodes {
		if n.spec.Base != "" {
			n.machine = l.Node(n.spec.Base).machine
			n.machine.nodes = append(n.machine.nodes, n)
		}
	}
	return nil
}

// layOut makes namespaces, file trees and links and configures the nodes.
func (l *Lab) layOut(ctx context.Context, t *clab.Topology) {
	var err error
	l.wires, err = newWires()
	step.Doing("namespace of the links", err)
	for _, n := range t.Nodes {
		if n.Kind == clab.Bridge {
			step.Doing("bridge "+n.Name, l.wires.addBridge(n.Name))
		}
	}
	step.Do(each(l.machines, (*machine).create))
	for i, spec := range t.Links {
		link := l.newLink(i, spec)
		l.links = append(l.links, link)
		step.Doing(fmt.Sprintf("link %v to %v", spec.A, spec.B), link.plug())
	}
	step.Do(each(l.machines, func(m *machine) error { return m.configure(ctx) }))
}

// Boot starts the programs of all nodes that are not running, in parallel.
func (l *Lab) Boot(ctx context.Context) error {
	return each(l.nodes, func(n *Node) error {
		if n.Running() {
			return nil
		}
		return n.Boot(ctx)
	})
}

// each runs f for all items in parallel and returns the first error.
func each[T any](items []T, f func(T) error) error {
	var g errgroup.Group
	for _, item := range items {
		g.Go(func() error { return f(item) })
	}
	return g.Wait()
}

// Nodes returns the lab's nodes in the order of the file, without bridges.
func (l *Lab) Nodes() []*Node { return slices.Clone(l.nodes) }

// Node returns the node of that name. It panics if there is none.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.nodes {
		if n.spec.Name == name {
			return n
		}
	}
	panic(fmt.Sprintf("lab: there is no node %q", name))
}

// Link returns the link between a and b, each a node's name or, where two nodes have
// several links, "node:interface". It panics if there is none.
func (l *Lab) Link(a, b string) *Link {
	for _, link := range l.links {
		if link.joins(a, b) || link.joins(b, a) {
			return link
		}
	}
	panic(fmt.Sprintf("lab: there is no link between %q and %q", a, b))
}

// Close kills everything in the lab and returns when it is gone.
func (l *Lab) Close() error {
	err := each(l.machines, (*machine).destroy)
	if l.wires != nil {
		err = errors.Join(err, l.wires.close())
		l.wires = nil
	}
	if e := os.Remove(l.staging()); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if l.tempDir {
		err = errors.Join(err, os.RemoveAll(l.dir))
	}
	return err
}
