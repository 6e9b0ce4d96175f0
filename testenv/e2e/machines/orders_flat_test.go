//go:build e2e

package machines

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/holders"
)

// TestARPBootOrdersBeforeInit powers on three masters of a flat layer 2, set up by
// cloud-init's user-data, in three of the six orders (nightly, in all). No master
// answers for the VIP before an apiserver is ready. The first ready one has it, the
// others change nothing, and when it loses power another takes over.
func TestARPBootOrdersBeforeInit(t *testing.T) {
	s := newMachines(t, readUserData(t, "master-arp.yaml", masterWords(t)).image(t), readUserData(t, "router.yaml", nil).image(t))
	f := &site.Flat{Lab: s.Lab}
	f.Observe(t, holders.On(s.Lab, site.FlatMasters(),
		[]netip.Addr{site.IP("10.0.1.100"), site.IP("fd00:1::100")}, site.IP("10.0.1.128"), site.IP("fd00:1::80")))
	for _, order := range site.Orders(site.FlatMasters()...) {
		if !t.Run(strings.Join(order, " "), func(t *testing.T) { s.testARPOrder(t, f, order) }) {
			return // the state of the machines is unknown
		}
	}
}

// lease is the lease in the user-data, the default.
const lease = 600 * time.Millisecond

func (s *machines) testARPOrder(t *testing.T, f *site.Flat, order []string) {
	f.Asked(t, 10)
	dark := f.Seen.Clock()
	for _, name := range order {
		site.PowerOn(t, s.Node(name))
	}
	for _, name := range order {
		site.Eventually(t, site.Soon, func() error { return votes(t, f, name) })
	}
	masters := s.named(order...)
	for _, m := range masters {
		s.kubeadm(t, m)
	}
	s.withdrawn(t, "500")
	f.Asked(t, int(2*lease/(10*time.Millisecond)))
	for _, seen := range f.Seen.Trace().Observations {
		if seen.At > dark {
			t.Fatalf("before any apiserver is ready: %v", seen)
		}
	}

	s.ready(masters[0])
	f.Held(t, order[0])
	from := f.Mark(t)
	for _, m := range masters[1:] {
		s.ready(m)
		f.Ready(t, m.String())
	}
	f.Asked(t, 50)
	f.Stays(t, order[0], from)

	s.loses(t, masters[0])
	f.Held(t, order[1:]...)
	f.Asked(t, 50) // the answering master has yet to announce it
	s.loses(t, masters[1])
	s.loses(t, masters[2])
}

// votes returns an error unless a master receives from all others, all of them vote,
// and none campaigns for the VIP or holds it.
func votes(t *testing.T, f *site.Flat, master string) error {
	status, err := f.Speaker(master).Status(t)
	if err != nil {
		return err
	}
	e := status.Election
	if e == nil || e.Problem != "" {
		return fmt.Errorf("%s does not take part in the election: %+v", master, e)
	}
	for _, m := range e.Members {
		if !m.Alive || m.Problem != "" {
			return fmt.Errorf("%s does not receive from %s: %s", master, m.Name, m.Problem)
		}
	}
	for _, l := range e.Leases {
		if l.Campaigning || l.Holder != "" {
			return fmt.Errorf("the lease of %s is %+v", master, l)
		}
	}
	return nil
}
