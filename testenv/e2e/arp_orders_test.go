//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/segment"
)

// TestARPBootOrdersBeforeInit gives three masters of a flat layer 2, set up by
// cloud-init's user-data, their power in each of the six orders. Nobody answers
// for the VIP while no apiserver is ready. The first that is has it, the others
// change nothing, and when it loses its power another one takes over.
func TestARPBootOrdersBeforeInit(t *testing.T) {
	s := newMachines(t, readUserData(t, "master-arp.yaml", masterWords(t)), readUserData(t, "router.yaml", nil).image(t))
	f := &flat{Lab: s.Lab}
	f.observe(t, onSegment(s.Lab))
	for _, order := range permutations(flatMasters()...) {
		if !t.Run(strings.Join(order, " "), func(t *testing.T) { s.testARPOrder(t, f, order) }) {
			return // the machines are in no known state
		}
	}
}

// onSegment is what the observer of machines.clab.yml is to watch.
func onSegment(l *lab.Lab) segment.Target {
	t := segment.Target{
		Link:    "eth1",
		VIPs:    []netip.Addr{ip("10.0.1.100"), ip("fd00:1::100")},
		Senders: []netip.Addr{ip("10.0.1.128"), ip("fd00:1::80")},
		Masters: make(map[string]net.HardwareAddr),
	}
	for _, m := range flatMasters() {
		t.Masters[m] = l.Link(m, "lan").MAC(m)
	}
	return t
}

func (s *machines) testARPOrder(t *testing.T, f *flat, order []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	f.asked(t, 10)
	dark := f.seen.Clock()
	for _, name := range order {
		must(t, s.Node(name).PowerOn(ctx))
	}
	for _, name := range order {
		eventually(t, soon, func() error { return f.votes(t, name) })
	}
	masters := s.named(order...)
	for _, m := range masters {
		s.kubeadm(t, m)
	}
	s.withdrawn(t, "500")
	f.asked(t, int(2*lease/(10*time.Millisecond)))
	for _, seen := range f.seen.Trace().Sightings {
		if seen.At > dark {
			t.Fatalf("before any apiserver is ready: %v", seen)
		}
	}

	s.ready(masters[0])
	f.held(t, order[0])
	from := f.seen.Clock()
	for _, m := range masters[1:] {
		s.ready(m)
		f.ready(t, m.String())
	}
	f.asked(t, 50)
	f.stays(t, order[0], from)

	s.loses(t, masters[0])
	f.held(t, order[1:]...)
	f.asked(t, 50) // the one who answers has yet to announce it
	s.loses(t, masters[1])
	s.loses(t, masters[2])
}

// votes says that a master hears all the others, that all of them vote, and that
// nobody stands for the VIP or holds it.
func (f *flat) votes(t *testing.T, master string) error {
	status, err := f.speaker(master).status(t)
	if err != nil {
		return err
	}
	e := status.Election
	if e == nil || e.Problem != "" {
		return fmt.Errorf("%s takes no part in the election: %+v", master, e)
	}
	for _, m := range e.Members {
		if !m.Alive || m.Reason != "" {
			return fmt.Errorf("%s does not hear %s: %s", master, m.Name, m.Reason)
		}
	}
	for _, l := range e.Leases {
		if l.Stands || l.Holder != "" {
			return fmt.Errorf("the lease of %s is %+v", master, l)
		}
	}
	return nil
}
