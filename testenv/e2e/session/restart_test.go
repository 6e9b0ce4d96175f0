//go:build e2e

package session

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestRouterRestarts kills and starts one of two routers several times, with
// connections opened by herald alone and by both sides. The session and the route are
// back in seconds, and the other router's session is not touched.
func TestRouterRestarts(t *testing.T) {
	for name, listen := range map[string]string{"opened by herald": "", "opened by both": "listen: {}\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site.NewSession(t, site.Files{
				"r1.conf": site.RouterConf(64500, site.PlainRouter),
				"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4}, listen+
					"peers:\n- {address: 10.0.1.254, asn: 64500}\n- {address: 10.0.2.254, asn: 64500}"),
			})
			site.Boot(t, s.Lab, "r1", "r2", "s")
			s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
			s.Established(t, "r2", "10.0.2.1", "10.0.2.254")
			s.Path(t, "r2", site.VIP4)
			routes := site.WatchRoutes(t, s.Node("r2"))

			const restarts = 5
			for range restarts {
				site.Must(t, s.Node("r1").Kill())
				s.ShowsPeer(t, "10.0.1.254", func(p bgp.Session) error {
					return site.ErrorIf(p.State == "established", "status still shows the session")
				})
				site.Boot(t, s.Lab, "r1")
				started := time.Now()
				s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
				s.Path(t, "r1", site.VIP4)
				t.Logf("back %v after the router", time.Since(started).Round(site.Poll))
			}

			onceUp(t, s, "r1", "10.0.1.1") // since its last start
			onceUp(t, s, "r2", "10.0.2.1")
			routes.Untouched(t)
			p, err := s.Peer(t, "10.0.1.254")
			site.Must(t, err)
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
