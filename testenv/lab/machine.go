package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/step"
)

// machine is a network and the nodes that share it, the base node first: a host with its
// containers.
type machine struct {
	nodes []*Node

	mu sync.Mutex
	ns netns.NsHandle // netns.None() while powered off
}

func newMachine(base *Node) *machine { return &machine{nodes: []*Node{base}, ns: netns.None()} }

// network returns a new handle on the machine's network, which the caller closes.
func (m *machine) network() (netns.NsHandle, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ns.IsOpen() {
		return netns.None(), errOff
	}
	fd, err := unix.FcntlInt(uintptr(m.ns), unix.F_DUPFD_CLOEXEC, 0)
	return netns.NsHandle(fd), err
}

func (m *machine) on() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ns.IsOpen()
}

// create makes the machine's network and its nodes' containers.
func (m *machine) create() error {
	return step.Run(func() {
		ns, err := newNetwork(m.prepareNetwork)
		step.Doing("network of "+m.nodes[0].spec.Name, err)
		m.mu.Lock()
		m.ns = ns
		m.mu.Unlock()
		for _, n := range m.nodes {
			step.Doing("node "+n.spec.Name, n.create(ns))
		}
	})
}

// prepareNetwork makes the settings that have to precede the links.
func (m *machine) prepareNetwork() error {
	return step.Run(func() {
		step.Do(netlink.LinkSetUp(step.Get(netlink.LinkByName("lo"))))
		for _, conf := range []string{"all", "default"} {
			// Duplicate address detection would delay each IPv6 address by a second or two.
			step.Do(setSysctl("net.ipv6.conf."+conf+".accept_dad", "0"))
		}
		for _, n := range m.nodes {
			for key, value := range n.spec.Sysctls {
				step.Doing("sysctls of "+n.spec.Name, setSysctl(key, value))
			}
		}
	})
}

// setSysctl sets a kernel setting of the calling thread's network.
func setSysctl(key, value string) error {
	if !strings.HasPrefix(key, "net.") {
		return fmt.Errorf("%s: only net. settings belong to a node, others to the host", key)
	}
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %q: %w", key, value, err)
	}
	return nil
}

// configure runs the exec commands of the machine's nodes, one after another.
func (m *machine) configure(ctx context.Context) error {
	for _, n := range m.nodes {
		for _, argv := range n.spec.Exec {
			if _, err := n.Run(ctx, argv...); err != nil {
				return fmt.Errorf("node %s: exec: %w", n.spec.Name, err)
			}
		}
	}
	return m.awaitAddresses(ctx)
}

// awaitAddresses waits until every IPv6 address is usable. The kernel leaves that to a
// worker even without duplicate address detection; until then a program cannot listen
// at the address.
func (m *machine) awaitAddresses(ctx context.Context) error {
	h, err := m.nodes[0].Handle()
	if err != nil {
		return err
	}
	defer h.Close()
	var address *net.IPNet
	return await(ctx, func() (bool, error) {
		err := step.Run(func() { address = tentative(h) })
		return address == nil, err
	}, func() string { return fmt.Sprintf("address %s stays tentative", address) })
}

// await waits until holds returns true or an error. If ctx ends first, missing
// describes the missing part.
func await(ctx context.Context, holds func() (bool, error), missing func() string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", missing(), context.Cause(ctx))
		}
	}
}

// tentative returns a tentative address on a link with a carrier, nil if there is none.
func tentative(h *netlink.Handle) *net.IPNet {
	for _, l := range step.Get(h.LinkList()) {
		if l.Attrs().RawFlags&unix.IFF_RUNNING == 0 {
			continue
		}
		for _, a := range step.Get(h.AddrList(l, netlink.FAMILY_V6)) {
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				return a.IPNet
			}
		}
	}
	return nil
}

// destroy kills all processes of the machine and closes its network.
func (m *machine) destroy() error {
	err := each(m.nodes, (*Node).destroy)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ns.IsOpen() {
		err = errors.Join(err, m.ns.Close()) // which leaves it None
	}
	return err
}

// PowerOff ends the node's whole machine like a power cut: first its links go silent,
// with the carrier up at their far ends, then all its processes are killed. No peer
// receives a FIN or a withdrawal. The links stay cut until PowerOn.
func (n *Node) PowerOff() error {
	n.lab.power.Lock()
	defer n.lab.power.Unlock()
	m := n.machine
	if !m.on() {
		return fmt.Errorf("power off %s: %w", n.spec.Name, errOff)
	}
	links := n.lab.linksOf(m)
	return step.Run(func() {
		step.Do(each(links, (*Link).Cut))
		step.Do(m.destroy())
		n.lab.log.Info("machine powered off", "node", n.spec.Name)
		step.Do(each(links, func(l *Link) error { return l.unplug(m) }))
	})
}

// PowerOn starts a machine after PowerOff: with empty memory and a new file tree, its
// links healed, its exec commands run and its nodes booted.
func (n *Node) PowerOn(ctx context.Context) error {
	m := n.machine
	if err := n.powerOn(ctx); err != nil {
		return fmt.Errorf("power on %s: %w", n.spec.Name, err)
	}
	n.lab.log.Info("machine powered on", "node", n.spec.Name)
	return each(m.nodes, func(n *Node) error { return n.Boot(ctx) })
}

func (n *Node) powerOn(ctx context.Context) error {
	n.lab.power.Lock()
	defer n.lab.power.Unlock()
	m := n.machine
	if m.on() {
		return errRunning
	}
	return step.Run(func() {
		step.Do(m.create())
		step.Do(each(n.lab.linksOf(m), (*Link).plug))
		step.Do(m.configure(ctx))
	})
}
