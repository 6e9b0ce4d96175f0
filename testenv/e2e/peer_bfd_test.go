//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/admin"
)

// watched is a session whose path is watched, as both ends configure it.
type watched struct {
	name   string
	router string // r1 if empty
	asn    uint32 // 64500 if zero
	frr    string
	herald string
	// neighbor is the speaker's name in FRR, peer the router's in status.
	neighbor, peer string
	multihop       bool
}

var watchedSessions = []watched{{
	name: "IPv4",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 bfd 3 50 50`,
	herald:   `peers: [{address: 10.0.1.254, asn: 64500, bfd: {}}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
}, {
	name: "IPv6",
	frr: `
 neighbor fd00:1::1 remote-as 64512
 neighbor fd00:1::1 bfd 3 50 50
 address-family ipv6 unicast
  neighbor fd00:1::1 activate`,
	herald:   `peers: [{address: "fd00:1::254", asn: 64500, localAddress: "fd00:1::1", families: [ipv4, ipv6], nextHop4: 10.0.1.1, bfd: {}}]`,
	neighbor: "fd00:1::1", peer: "fd00:1::254",
}, {
	name: "unnumbered",
	frr: `
 neighbor eth1 interface remote-as 64512
 neighbor eth1 bfd 3 50 50`,
	herald:   `peers: [{interface: eth1, asn: 64500, bfd: {}}]`,
	neighbor: "eth1", peer: "eth1",
}, {
	name: "iBGP",
	asn:  64512,
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 bfd 3 50 50`,
	herald:   `peers: [{address: 10.0.1.254, asn: 64512, bfd: {}}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
}, {
	name: "GTSM",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 ttl-security hops 1
 neighbor 10.0.1.1 bfd 3 50 50`,
	herald:   `peers: [{address: 10.0.1.254, asn: 64500, ttlSecurity: 1, bfd: {}}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254", multihop: true,
}, {
	name:   "GTSM over two hops",
	router: "far",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 ttl-security hops 2
 neighbor 10.0.1.1 bfd 3 50 50`,
	herald:   `peers: [{address: 10.0.3.1, asn: 64500, ttlSecurity: 2, bfd: {}}]`,
	neighbor: "10.0.1.1", peer: "10.0.3.1", multihop: true,
}, {
	name:   "multihop",
	router: "far",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 ebgp-multihop 2
 neighbor 10.0.1.1 bfd 3 50 50`,
	herald:   `peers: [{address: 10.0.3.1, asn: 64500, multihop: 2, bfd: {}}]`,
	neighbor: "10.0.1.1", peer: "10.0.3.1", multihop: true,
}}

// bfdPeer is what FRR tells of a BFD session.
type bfdPeer struct {
	Multihop bool
	Peer     string
	Status   string
	Diag     string `json:"diagnostic"`
	Remote   string `json:"remote-diagnostic"`
	Receive  int    `json:"remote-receive-interval"`
	Transmit int    `json:"remote-transmit-interval"`
}

// bfd is the router's only BFD session.
func (r router) bfd(t *testing.T) (bfdPeer, error) {
	t.Helper()
	var all []bfdPeer
	if err := r.show(t, &all, "bfd peers"); err != nil {
		return bfdPeer{}, err
	}
	if len(all) != 1 {
		return bfdPeer{}, fmt.Errorf("%s has %d BFD sessions: %+v", r.Name(), len(all), all)
	}
	return all[0], nil
}

// watchedUp waits until both ends say that the BFD session is up.
func (s *site) watchedUp(t *testing.T, router, peer string) (b bfdPeer, p admin.Peer) {
	t.Helper()
	eventually(t, soon, func() (err error) {
		if b, err = s.router(router).bfd(t); err != nil {
			return err
		}
		if p, err = s.peer(t, peer); err != nil {
			return err
		}
		if b.Status != "up" || p.BFD == nil || p.BFD.State != "up" {
			return fmt.Errorf("BFD with %s: FRR says %+v, status says %+v", peer, b, p.BFD)
		}
		return nil
	})
	return b, p
}

// TestPeerBFD brings up each kind of watched session with FRR.
func TestPeerBFD(t *testing.T) {
	for _, tt := range watchedSessions {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node, asn := "r1", uint32(64500)
			if tt.router != "" {
				node = tt.router
			}
			if tt.asn != 0 {
				asn = tt.asn
			}
			s := newSite(t, files{
				node + ".conf":       routerConf(asn, tt.frr),
				"herald/herald.yaml": speakerConf([]string{vip4}, tt.herald),
			})
			boot(t, s.Lab, node, "s")
			s.established(t, node, tt.neighbor, tt.peer)
			b, p := s.watchedUp(t, node, tt.peer)
			if b.Multihop != tt.multihop {
				t.Errorf("multihop at FRR: %t, want %t", b.Multihop, tt.multihop)
			}
			if p.BFD.Interval != 0.05 || p.BFD.DetectionTime != 0.15 {
				t.Errorf("interval %v s, detection time %v s; want 0.05, 0.15", p.BFD.Interval, p.BFD.DetectionTime)
			}
			s.path(t, node, vip4)
		})
	}
}

// TestPeerBFDFindsFaults cuts the link in each direction, freezes the speaker and
// the router's forwarding: the route goes long before the hold time of 90
// seconds, and comes back.
func TestPeerBFDFindsFaults(t *testing.T) {
	const watched = `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 timers 30 90
 neighbor 10.0.1.1 timers connect 1
 neighbor 10.0.1.1 bfd 3 50 50`
	s := newSite(t, files{
		"r1.conf": routerConf(64500, watched),
		"herald/herald.yaml": speakerConf([]string{vip4}, `
peers:
- {address: 10.0.1.254, asn: 64500, holdTime: 90s, bfd: {}}
- {address: 10.0.2.254, asn: 64500}`),
	})
	boot(t, s.Lab, "r1", "r2", "s")
	s.watchedUp(t, "r1", "10.0.1.254")
	s.path(t, "r1", vip4)
	s.path(t, "r2", vip4)
	link := s.Link("s", "r1")
	speaker := s.Node("s")

	gone := func(t *testing.T) {
		t.Helper()
		eventually(t, soon, func() error {
			routes, err := kernelRoutes(s.Node("r1"), vip4)
			if err == nil && len(routes) > 0 {
				err = fmt.Errorf("r1 still has %v", routes)
			}
			return err
		})
	}
	for _, fault := range []struct {
		name       string
		make, undo func() error
		known      bool // herald is in a state to notice
	}{
		{"cut", link.Cut, link.Heal, true},
		{"cut from the speaker", func() error { return link.CutFrom("s") }, link.Heal, true},
		{"cut from the router", func() error { return link.CutFrom("r1") }, link.Heal, true},
		{"speaker frozen", speaker.Freeze, speaker.Thaw, false},
	} {
		t.Run(fault.name, func(t *testing.T) {
			s.established(t, "r1", "10.0.1.1", "10.0.1.254")
			s.watchedUp(t, "r1", "10.0.1.254")
			s.path(t, "r1", vip4)
			must(t, fault.make())
			gone(t)
			if fault.known {
				eventually(t, soon, func() error {
					p, err := s.peer(t, "10.0.1.254")
					if err == nil && (p.State == "established" || p.BFD == nil || p.BFD.State == "up" || p.BFD.Reason == "") {
						err = fmt.Errorf("status says %s, %+v", p.State, p.BFD)
					}
					return err
				})
			}
			must(t, fault.undo())
			began := time.Now()
			s.path(t, "r1", vip4)
			s.watchedUp(t, "r1", "10.0.1.254")
			t.Logf("back %v later", time.Since(began).Round(poll))
		})
	}
	p, err := s.peer(t, "10.0.1.254")
	must(t, err)
	if p.Drops < 3 || p.BFD.Downs < 3 {
		t.Errorf("status counts %d lost sessions and %d BFD failures, want 3 at least", p.Drops, p.BFD.Downs)
	}
}

// TestPeerBFDReload changes, removes and adds BFD on a session that stays up.
func TestPeerBFDReload(t *testing.T) {
	const watched = `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 bfd 3 50 50`
	conf := func(bfd string) string {
		return speakerConf([]string{vip4}, "peers:\n- {address: 10.0.1.254, asn: 64500"+bfd+"}")
	}
	s := newSite(t, files{"r1.conf": routerConf(64500, watched), "herald/herald.yaml": conf(", bfd: {}")})
	boot(t, s.Lab, "r1", "s")
	s.watchedUp(t, "r1", "10.0.1.254")
	s.path(t, "r1", vip4)
	routes := record(t, s.Node("r1"))

	inPlace(t, s.config, conf(", bfd: {interval: 200ms, multiplier: 5}"))
	eventually(t, soon, func() error {
		b, err := s.router("r1").bfd(t)
		if err == nil && (b.Status != "up" || b.Transmit != 200) {
			err = fmt.Errorf("FRR says %+v", b)
		}
		return err
	})
	p, err := s.peer(t, "10.0.1.254")
	must(t, err)
	if p.BFD.Downs != 0 || p.Drops != 0 {
		t.Errorf("a new interval took sessions down: %+v", p)
	}
	for _, c := range routes.since() {
		t.Errorf("a new interval touched the route: %v", c)
	}
	inPlace(t, s.config, conf(""))
	eventually(t, soon, func() error {
		b, err := s.router("r1").bfd(t)
		if err == nil && (b.Status == "up" || !strings.Contains(b.Remote, "administratively")) {
			err = fmt.Errorf("FRR says %+v", b)
		}
		return err
	})
	inPlace(t, s.config, conf(", bfd: {}"))
	s.watchedUp(t, "r1", "10.0.1.254")
	s.path(t, "r1", vip4) // FRR took the end of BFD for a fault, against RFC 5882 section 4.2, and ended its session
}

// TestPeerBFDSaysGoodbye ends the speaker on purpose: the router does not take it for a fault.
func TestPeerBFDSaysGoodbye(t *testing.T) {
	const watched = `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 bfd 3 50 50`
	s := newSite(t, files{
		"r1.conf":            routerConf(64500, watched),
		"herald/herald.yaml": speakerConf([]string{vip4}, "peers: [{address: 10.0.1.254, asn: 64500, bfd: {}}]"),
	})
	boot(t, s.Lab, "r1", "s")
	s.watchedUp(t, "r1", "10.0.1.254")
	must(t, s.Node("s").Daemon("herald").Signal(unix.SIGTERM))
	eventually(t, soon, func() error {
		b, err := s.router("r1").bfd(t)
		if err == nil && (b.Status == "up" || !strings.Contains(b.Remote, "administratively")) {
			err = fmt.Errorf("FRR says %+v", b)
		}
		return err
	})
	log, err := os.ReadFile(s.Node("s").Log())
	must(t, err)
	if strings.Contains(string(log), "session lost") || !strings.Contains(string(log), "session closed") {
		t.Error("herald takes its own goodbye for a fault")
	}
}
