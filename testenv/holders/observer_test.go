package holders

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"go.uber.org/goleak"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nothing is an image without a program.
func nothing(clab.Node) (lab.Program, error) { return lab.Program{}, nil }

// site is the flat topology without Herald: the test moves the VIP by hand.
type site struct {
	*testing.T
	*lab.Lab
	*Observer
}

func newSite(t *testing.T) *site {
	t.Helper()
	topology := must.Get[*clab.Topology](t)(clab.Load("../topologies/flat.clab.yml"))
	l := must.Get[*lab.Lab](t)(lab.Start(t.Context(), slog.New(slog.DiscardHandler), topology, lab.Options{
		Hold: true, Images: map[string]lab.Image{"herald": nothing, "herald-testenv": nothing},
	}))
	t.Cleanup(func() { must.Do(t, l.Close()) })
	s := &site{t, l, must.Get[*Observer](t)(Observe(l.Node("o1"), Flat(l)))}
	t.Cleanup(func() { must.Do(t, s.Observer.Close()) })
	return s
}

// address adds the VIP to a master, or deletes it there.
func (s *site) address(what, master string) {
	s.Helper()
	for _, a := range []string{"10.4.0.10/32", "fd00:4::10/128"} {
		_, err := s.Node(master).Run(s.Context(), "ip", "addr", what, a, "dev", "eth1")
		must.Do(s, err)
	}
}

// announce makes a master announce the VIP.
func (s *site) announce(master string) {
	s.Helper()
	must.Do(s, s.Node(master).Do(func() error {
		dev, err := net.InterfaceByName("eth1")
		if err != nil {
			return err
		}
		conn, err := packet.Listen(dev, packet.Raw, 0, nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, vip := range []netip.Addr{vip4, vip6} {
			frame := announcement(s, dev.HardwareAddr, vip)
			_, failed := conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
			err = errors.Join(err, failed)
		}
		return err
	}))
}

// held waits until the master answers, and for ten more questions.
func (s *site) held(master string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	_, err := s.Await(ctx, master)
	must.Do(s, err)
	asked := func() int { return len(s.Trace().Questions[vip4]) }
	for n := asked(); asked() < n+10; {
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			s.Fatal("the observer asks no more")
		}
	}
}

// seen counts the violations of a rule, by VIP.
func (s *site) seen(r Rule) map[netip.Addr]int {
	out := make(map[netip.Addr]int)
	for _, v := range Judge(s.Trace(), DefaultLimits()) {
		s.Log(v)
		if v.Rule == r {
			out[v.VIP]++
		}
	}
	return out
}

// TestObserve follows the VIP from m1 to m2 in both families and expects no violation.
func TestObserve(t *testing.T) {
	s := newSite(t)
	s.address("add", "m1")
	s.held("m1")
	must.Do(s, s.Move("m1", func() error {
		s.address("del", "m1")
		s.announce("m2") // first: on a busy machine it may take long to start two programs
		s.address("add", "m2")
		return nil
	}))
	s.held("m2")
	trace := s.Trace()
	for _, v := range Judge(trace, DefaultLimits()) {
		t.Errorf("%v %q", v, v.Around)
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		reigns := trace.Reigns(vip, DefaultLimits())
		if len(reigns) != 2 || reigns[0].Master != "m1" || reigns[1].Master != "m2" {
			t.Errorf("%s was held by %v", vip, reigns)
		}
		acts := make(map[string]int)
		for _, x := range trace.ofVIP(vip) {
			acts[x.Master+" "+string(x.Act)]++
			if (x.Act == Answers || x.Act == Accepts) && (x.Asked <= 0 || x.Asked >= x.At) {
				t.Errorf("%v, asked only at %v", x, x.Asked)
			}
		}
		for _, act := range []string{"m1 answers", "m1 accepts for", "m2 answers", "m2 accepts for"} {
			if acts[act] < 5 {
				t.Errorf("%s: saw %v", vip, acts)
			}
		}
	}
}

// Violations are found in both families.
func TestObserveViolations(t *testing.T) {
	for _, test := range []struct {
		name string
		rule Rule
		do   func(*site)
	}{
		{"two masters with the address", TwoHolders, func(s *site) {
			s.address("add", "m3")
			s.announce("m3")
		}},
		// eth1 does not answer for an address on lo, but accepts its packets.
		{"a master that only accepts packets", Trespass, func(s *site) {
			for _, argv := range [][]string{
				{"sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1"},
				{"ip", "addr", "add", "10.4.0.10/32", "dev", "lo"},
				{"ip", "addr", "add", "fd00:4::10/128", "dev", "lo"},
			} {
				_, err := s.Node("m2").Run(s.Context(), argv...)
				must.Do(s, err)
			}
		}},
		{"a partition that leaves the observer out", TwoHolders, func(s *site) {
			must.Do(s, s.Part("lan", []string{"m1"}, []string{"m2", "m3"}))
			s.address("add", "m2")
			s.announce("m2")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.address("add", "m1")
			s.held("m1")
			test.do(s)
			s.held("m1")
			if got := s.seen(test.rule); got[vip4] == 0 || got[vip6] == 0 {
				t.Errorf("found %v", got)
			}
		})
	}
}
