//go:build e2e

package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/hostile"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// TestRouterLosesPower cuts the power of one of two routers and restores it: the other
// one is not touched.
func TestRouterLosesPower(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	site.Must(t, s.Node("r1").PowerOff())
	down(t, s, "10.0.1.254")
	site.PowerOn(t, s.Node("r1"))
	announced(t, s)
	calm.untouched(t)
}

// TestRouterFreezes freezes the bgpd of one of two routers: the session ends with the
// hold time and the other router is not touched. If the apiserver dies meanwhile, the
// VIP is withdrawn from the other router as usual, and from the frozen one as soon as
// it continues.
func TestRouterFreezes(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	bgpd := s.Node("r1").Daemon("bgpd")
	site.Must(t, bgpd.Freeze())
	down(t, s, "10.0.1.254")
	calm.untouched(t)

	s.ApiserverDies()
	onlyOn(t, s, "r1") // where no process is left to remove the route
	s.HasAddress(t, site.VIP4, false)
	site.Must(t, bgpd.Thaw())
	withdrawn(t, s)
	s.ApiserverStarts(t)
	announced(t, s)
}

// TestRouteFiltered makes a router refuse the route. Status still reports the
// advertised route, but also that clients behind this router do not reach the VIP, and
// counts connections through the other router.
func TestRouteFiltered(t *testing.T) {
	t.Parallel()
	s := site.NewSession(t, site.Files{"r1.conf": site.RouterConf(64500, site.PlainRouter+"\n neighbor 10.0.1.1 prefix-list nothing in\nexit\nip prefix-list nothing deny any")})
	site.Boot(t, s.Lab, "r1", "r2", "s")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Established(t, "r2", "10.0.2.1", "10.0.2.254")
	onlyOn(t, s, "r2")
	s.ShowsPeer(t, "10.0.1.254", func(p bgp.Session) error {
		return site.ErrorIf(!slices.Contains(p.Advertised, site.HostPrefix(site.VIP4)), "status shows %v as advertised to r1, want the VIP among them", p.Advertised)
	})
	for router, want := range map[string]bool{"r1": false, "r2": true} {
		if err := s.Node(router).Reaches(t.Context(), site.VIP4+":6443"); (err == nil) != want {
			t.Errorf("connecting from %s: %v, want success: %t", router, err, want)
		}
	}
	s.Shows(t, func(status admin.Status) error {
		a := status.VIPs[0].Arrivals
		return site.ErrorIf(a == nil || a.Arrived == 0, "status counts %+v, want the connection of r2", a)
	})
}

// TestLinkDown takes the link to one of two routers away, in every way: its route
// goes, the other router is not touched, and everything is back when the link is.
func TestLinkDown(t *testing.T) {
	for name, fault := range map[string]func(*lab.Link) error{
		"carrier lost":     (*lab.Link).Down,
		"silent":           (*lab.Link).Cut,
		"silent to router": func(l *lab.Link) error { return l.CutFrom("s") },
		"silent to s":      func(l *lab.Link) error { return l.CutFrom("r1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAnnouncingSite(t, nil)
			calm, link := watchBystander(t, s), s.Link("s", "r1")
			site.Must(t, fault(link))
			onlyOn(t, s, "r2")
			down(t, s, "10.0.1.254")
			site.Must(t, link.Heal())
			announced(t, s)
			calm.untouched(t)
		})
	}
}

// TestLinkFlaps makes one link lose its carrier 20 times in a row, then both at once for a while.
func TestLinkFlaps(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	first, other := s.Link("s", "r1"), s.Link("s", "r2")
	for range 20 {
		site.Must(t, first.Down())
		site.Must(t, first.Heal())
	}
	announced(t, s)
	calm.untouched(t)

	site.Must(t, first.Down())
	site.Must(t, other.Down())
	onlyOn(t, s)
	for _, p := range plainPeers {
		down(t, s, p.peer)
	}
	s.HasAddress(t, site.VIP4, true) // s is healthy, and its own clients reach it
	site.Must(t, first.Heal())
	site.Must(t, other.Heal())
	announced(t, s)
}

// TestLinkSetDown sets the link to one router down and up again, as an administrator
// does, and then lo, which has the addresses and the checked apiserver.
func TestLinkSetDown(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	site.Shell(t, s.Node("s"), "ip link set eth1 down")
	onlyOn(t, s, "r2")
	site.Shell(t, s.Node("s"), "ip link set eth1 up")
	announced(t, s)
	calm.untouched(t)

	site.Shell(t, s.Node("s"), "ip link set lo down")
	onlyOn(t, s)
	site.Shell(t, s.Node("s"), "ip link set lo up")
	announced(t, s)
}

// TestRouterRestarts kills and starts one of two routers several times, with
// connections opened by herald alone and by both sides. The session and the route are
// back in seconds, and the other router's session is not touched.
func TestRouterRestarts(t *testing.T) {
	for name, listen := range map[string]string{"opened by herald": "", "opened by both": "listen: {}\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAnnouncingSite(t, site.Files{
				"r1.conf": site.RouterConf(64500, site.PlainRouter),
				"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4}, listen+
					"peers:\n- {address: 10.0.1.254, asn: 64500}\n- {address: 10.0.2.254, asn: 64500}"),
			})
			routes := site.WatchRoutes(t, s.Node("r2"))

			const restarts = 5
			for range restarts {
				site.Must(t, s.Node("r1").Kill())
				s.ShowsPeer(t, "10.0.1.254", func(p bgp.Session) error {
					return site.ErrorIf(p.State == "established", "status still shows the session")
				})
				site.Boot(t, s.Lab, "r1")
				s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
				s.Path(t, "r1", site.VIP4)
			}

			onceUp(t, s, "r1", "10.0.1.1") // since its last start
			onceUp(t, s, "r2", "10.0.2.1")
			routes.Untouched(t)
			p := site.Get[bgp.Session](t)(s.Peer(t, "10.0.1.254"))
			if p.Drops != restarts {
				t.Errorf("status counts %d drops, want %d", p.Drops, restarts)
			}
		})
	}
}

// TestPeerShutsDown has the router's operator shut the session down, and start it
// again: status contains the operator's own reason.
func TestPeerShutsDown(t *testing.T) {
	s := newPlainSession(t, site.PlainRouter, lean)

	configure := func(line string) {
		t.Helper()
		site.MustRun(t, s.Node("r1"), "vtysh", "-c", "configure terminal", "-c", "router bgp 64500", "-c", line)
	}
	configure("neighbor 10.0.1.1 shutdown message new line cards")
	s.ShowsPeer(t, "10.0.1.254", func(p bgp.Session) error {
		return site.ErrorIf(p.State == "established" || !strings.Contains(p.Reason, `the peer says "new line cards"`),
			"status shows %s because %q", p.State, p.Reason)
	})
	tells(t, s, "announced to 0 of 1 peers")
	configure("no neighbor 10.0.1.1 shutdown")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Path(t, "r1", site.VIP4)
	tells(t, s, "announced")
}

// TestHostileRouter makes one router run every attack, each as a separate peer, while
// the other router's kernel route to the VIP never changes. Here Herald opens the
// sessions; in bgp.TestHostilePeer the peer does.
func TestHostileRouter(t *testing.T) {
	t.Parallel()
	const (
		mostResident = 250 << 20 // bytes
		each         = 2 * time.Second
	)
	attacks := hostile.Attacks()
	peers := "peers:\n- {address: 10.0.1.254, asn: 64500}\n"
	for i := range attacks {
		peers += fmt.Sprintf("- {address: %s, asn: 64501}\n", attacker(i))
	}
	dir := t.TempDir()
	site.Files{"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4}, peers), "r1.conf": site.RouterConf(64500, site.PlainRouter)}.Write(t, dir)
	s := &site.Session{Lab: site.StartLab(t, "e2e-hostile.clab.yml", map[string]string{"HOSTILE_DIR": dir})}
	s.Speaker = site.Speaker{Node: s.Node("s")}
	site.Serve(t, s.Node("s"), ":6443", stub.APIServer("s"))
	site.Boot(t, s.Lab, "r1", "r2", "s")
	for i := range attacks {
		site.MustRun(t, s.Node("r2"), "ip", "addr", "add", attacker(i)+"/24", "dev", "eth1")
	}
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Path(t, "r1", site.VIP4)
	routes := site.WatchRoutes(t, s.Node("r1"))

	attack := func(i int, name string, limit time.Duration) (string, error) {
		argv := []string{"herald-testenv", "hostile", "--asn", "64501", "--id", attacker(i), "--attack", name, "--for", limit.String(), "--listen", attacker(i) + ":179"}
		ctx, cancel := context.WithTimeout(t.Context(), limit+site.Soon)
		defer cancel()
		return s.Node("r2").Run(ctx, argv...)
	}
	herald := s.Node("s").Daemon("herald")
	for i, a := range attacks {
		out, err := attack(i, a.Name, each)
		if err != nil {
			t.Fatalf("%s: %v", a.Name, err)
		}
		p := site.Get[bgp.Session](t)(s.Peer(t, attacker(i)))
		if strings.ContainsFunc(p.Reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: status gives a reason with control characters: %q", a.Name, p.Reason)
		}
		t.Logf("%s%s: %s, %d drops: %s; %d MiB", out, a.Name, p.State, p.Drops, p.Reason, site.Memory(t, herald.Pid(), "VmRSS")>>20)
		if !herald.Running() {
			t.Fatalf("herald died of %s", a.Name)
		}
	}
	routes.Untouched(t)
	onceUp(t, s, "r1", "10.0.1.1")
	if peak := site.Memory(t, herald.Pid(), "VmHWM"); peak > mostResident {
		t.Errorf("resident memory was up to %d MiB", peak>>20)
	}

	// The first attacker behaves now, and is accepted again.
	behaved := make(chan error, 1)
	go func() { _, err := attack(0, hostile.Behaved.Name, time.Minute); behaved <- err }()
	s.ShowsPeer(t, attacker(0), func(p bgp.Session) error {
		return site.ErrorIf(p.State != "established", "session is %s: %s", p.State, p.Reason)
	})
}

// attacker returns the source address of the i-th attack.
func attacker(i int) string { return fmt.Sprintf("10.0.2.%d", 100+i) }
