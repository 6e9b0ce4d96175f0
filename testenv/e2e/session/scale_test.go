//go:build e2e

package session

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/soak"
)

// manyVIPs is the number of VIPs in TestScale.
const manyVIPs = 1000

// TestScale has a speaker of 1,000 VIPs and two routers, and repeats the other tests
// with all VIPs at once. It announces, withdraws, changes and drains them, and loses a
// router that no longer reads.
func TestScale(t *testing.T) {
	const mostResident = 80_000_000 // bytes; a reload takes the most, 69 MB on an idle machine
	s := &scaleSite{Session: site.NewSession(t, site.Files{"herald/herald.yaml": manyConf(0)})}
	s.apiserverStarts = func() { s.Session.ApiserverStarts(t) } // it outlives the subtest that starts it
	site.Boot(t, s.Lab, "r1", "r2", "s")
	s.all(t, "r1", "r2")
	s.routes = map[string]*site.RouteWatcher{"r1": site.WatchRoutes(t, s.Node("r1")), "r2": site.WatchRoutes(t, s.Node("r2"))}

	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"announced", func(t *testing.T) { s.all(t, "r1", "r2") }},
		{"one VIP changes", s.testOneChanges},
		{"apiserver dies", s.testAPIServerDies},
		{"drain", s.testDrain},
		{"router stops reading", s.testRouterStopsReading},
		{"MTU black hole", s.testBlackHole},
	} {
		if !t.Run(test.name, test.run) {
			t.FailNow() // later steps depend on its result
		}
		t.Logf("%s: resident memory %.1f MB (at most %.1f)", test.name, float64(s.memory(t, "VmRSS"))/1e6, float64(s.memory(t, "VmHWM"))/1e6)
	}
	if peak := s.memory(t, "VmHWM"); peak > mostResident {
		t.Errorf("resident memory was up to %d bytes, want at most %d", peak, mostResident)
	}
}

// scaleSite is a site of many VIPs.
type scaleSite struct {
	*site.Session
	apiserverStarts func()
	routes          map[string]*site.RouteWatcher // by router
}

// memory returns a figure of the speaker's memory, in bytes.
func (s *scaleSite) memory(t *testing.T, name string) int {
	t.Helper()
	return site.Memory(t, s.Node("s").Daemon("herald").Pid(), name)
}

// manyConf returns the configuration of manyVIPs VIPs, starting with the address of this number.
func manyConf(first int) string {
	var vips strings.Builder
	for i := first; i < first+manyVIPs; i++ {
		fmt.Fprintf(&vips, "- {name: v%d, addresses: [%s], announce: bgp, checks: [apiserver], linger: 0s}\n", i, manyAddress(i))
	}
	head, rest, _ := strings.Cut(site.BothPeers, "- {name: control-plane")
	_, rest, _ = strings.Cut(rest, "\n")
	return head + vips.String() + rest
}

func manyAddress(i int) string { return fmt.Sprintf("10.99.%d.%d", i/250, 1+i%250) }

// all waits until the addresses are on s and only these routers have all routes.
func (s *scaleSite) all(t *testing.T, routers ...string) {
	t.Helper()
	s.counts(t, manyVIPs, routers...)
}

// counts waits until s has this many of the addresses, these routers all routes and the others
// none.
func (s *scaleSite) counts(t *testing.T, bound int, routers ...string) {
	t.Helper()
	site.Eventually(t, 2*site.Soon, func() error {
		list, err := site.Addresses(s.Node("s"))
		if err != nil {
			return err
		}
		if n := len(slices.DeleteFunc(list, func(a netip.Addr) bool { return !site.IsVIP(netip.PrefixFrom(a, a.BitLen())) })); n != bound {
			return fmt.Errorf("%d addresses on lo, want %d", n, bound)
		}
		for _, name := range []string{"r1", "r2"} {
			want := 0
			if slices.Contains(routers, name) {
				want = manyVIPs
			}
			if n, err := countRoutes(s.Node(name)); err != nil || n != want {
				return errors.Join(fmt.Errorf("%s has %d routes, want %d", name, n, want), err)
			}
		}
		return nil
	})
}

// countRoutes counts the node's IPv4 routes to VIPs.
func countRoutes(n *lab.Node) (count int, err error) {
	h, err := n.Handle()
	if err != nil {
		return 0, err
	}
	defer h.Close()
	list, err := h.RouteList(nil, unix.AF_INET)
	for _, r := range list {
		if dst, err := netip.ParsePrefix(r.Dst.String()); err == nil && site.IsVIP(dst) {
			count++
		}
	}
	return count, err
}

// testOneChanges gives a single VIP another address: nothing else changes on the routers.
func (s *scaleSite) testOneChanges(t *testing.T) {
	updates := func() (n int) {
		var all map[string]struct {
			Messages struct {
				Updates int `json:"updatesRecv"`
			} `json:"messageStats"`
		}
		site.Must(t, s.Router("r1").Show(t, &all, "bgp neighbors 10.0.1.1"))
		return all["10.0.1.1"].Messages.Updates
	}
	before := updates()
	for _, r := range s.routes {
		r.Mark()
	}
	inPlace(t, s.Config, manyConf(1)) // without the first address, and with one more
	generation(t, s.Session, 2, "")
	old, added := manyAddress(0), manyAddress(manyVIPs)
	site.Eventually(t, site.Soon, func() error {
		for vip, want := range map[string]int{old: 0, added: 1} {
			if list, err := site.KernelRoutes(s.Node("r1"), vip); err != nil || len(list) != want {
				return errors.Join(fmt.Errorf("r1 has %d routes to %s, want %d", len(list), vip, want), err)
			}
		}
		return nil
	})
	s.all(t, "r1", "r2")
	for name, r := range s.routes {
		for _, c := range r.Since() {
			if c.Prefix != site.HostPrefix(old) && c.Prefix != site.HostPrefix(added) {
				t.Errorf("%s: the change of one VIP touched another: %v", name, c)
			}
		}
	}
	// The old route is marked with GRACEFUL_SHUTDOWN and then withdrawn, the new one announced.
	if n := updates() - before; n < 2 || n > 4 {
		t.Errorf("r1 was sent %d UPDATEs, want 2 to 4", n)
	}
}

// testAPIServerDies withdraws everything from both routers, and announces it again.
func (s *scaleSite) testAPIServerDies(t *testing.T) {
	s.ApiserverDies()
	s.counts(t, 0)
	s.apiserverStarts()
	s.all(t, "r1", "r2")
}

func (s *scaleSite) testDrain(t *testing.T) {
	site.MustRun(t, s.Node("s"), "herald", "drain")
	s.counts(t, 0)
	site.MustRun(t, s.Node("s"), "herald", "undrain")
	s.all(t, "r1", "r2")
}

// testRouterStopsReading freezes a router while all VIPs come and go: the other router
// follows as usual, and the frozen one catches up when it continues.
func (s *scaleSite) testRouterStopsReading(t *testing.T) {
	bgpd := s.Node("r1").Daemon("bgpd")
	site.Must(t, bgpd.Freeze())
	for range 2 {
		s.ApiserverDies()
		s.counts(t, 0, "r1") // where no process is left to remove the routes
		s.apiserverStarts()
		s.all(t, "r1", "r2")
	}
	down(t, s.Session, "10.0.1.254")
	site.Must(t, bgpd.Thaw())
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.all(t, "r1", "r2")
}

// testBlackHole makes the far side of a link lose packets longer than 600 bytes, on a
// session with longer segments. Full UPDATEs do not get through, so the routes there
// go with the hold time. The session comes back with shorter segments.
func (s *scaleSite) testBlackHole(t *testing.T) {
	site.Shell(t, s.Node("r1"), "ip link set eth1 mtu 600")
	s.ApiserverDies()
	s.counts(t, 0)
	s.apiserverStarts()
	s.all(t, "r1", "r2")
	site.Shell(t, s.Node("r1"), "ip link set eth1 mtu 1500")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.all(t, "r1", "r2")
}

// TestSoak is a short `make soak`. Speakers built with the race detector run through a
// round of faults and a planned change, nightly two, and the kernels of routers and
// masters are judged.
func TestSoak(t *testing.T) {
	long, least := time.Duration(site.Scale(60, 20))*time.Second, site.Scale(30, 15)
	report := site.Soak(t, soak.Options{
		Topology: "../../topologies/bgp.clab.yml",
		Seed:     1249, // 20 kinds of faults, and much to judge
		Storm:    25 * time.Second,
		Time:     long,                   // until its last round ends
		Slack:    2 * time.Second,        // it may run beside other tests
		BFD:      300 * time.Millisecond, // slow enough that a busy machine loses no sessions
	})
	if report.Judged < least {
		t.Errorf("only %d times a route or an address had to go: too few to prove anything", report.Judged)
	}
}
