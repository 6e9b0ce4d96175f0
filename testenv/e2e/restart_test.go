//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRouterRestarts kills and starts one of two routers, several times over,
// with connections opened by herald alone and by both sides at once: the
// session and the route are back in seconds, and the other router's session is
// not touched.
func TestRouterRestarts(t *testing.T) {
	for name, listen := range map[string]string{"opened by herald": "", "opened by both": "listen: {}\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, files{
				"r1.conf": routerConf(64500, plainRouter),
				"herald/herald.yaml": speakerConf([]string{vip4}, listen+
					"peers:\n- {address: 10.0.1.254, asn: 64500}\n- {address: 10.0.2.254, asn: 64500}"),
			})
			boot(t, s.Lab, "r1", "r2", "s")
			s.established(t, "r1", "10.0.1.1", "10.0.1.254")
			s.established(t, "r2", "10.0.2.1", "10.0.2.254")
			s.path(t, "r2", vip4)
			routes := record(t, s.Node("r2"))

			const restarts = 5
			for range restarts {
				must(t, s.Node("r1").Kill())
				eventually(t, soon, func() error {
					p, err := s.peer(t, "10.0.1.254")
					if err == nil && p.State == "established" {
						err = fmt.Errorf("status still has the session")
					}
					return err
				})
				boot(t, s.Lab, "r1")
				started := time.Now()
				s.established(t, "r1", "10.0.1.1", "10.0.1.254")
				s.path(t, "r1", vip4)
				t.Logf("back %v after the router", time.Since(started).Round(poll))
			}

			n, err := s.router("r1").neighbor(t, "10.0.1.1")
			must(t, err)
			if n.Established != 1 {
				t.Errorf("since the router's last start the session was up %d times, want once", n.Established)
			}
			n, err = s.router("r2").neighbor(t, "10.0.2.1")
			must(t, err)
			if n.Established != 1 || len(routes.since()) > 0 {
				t.Errorf("r2 was touched: session up %d times, routes %v", n.Established, routes.since())
			}
			p, err := s.peer(t, "10.0.1.254")
			must(t, err)
			if p.Drops != restarts {
				t.Errorf("status counts %d drops, want %d", p.Drops, restarts)
			}
		})
	}
}

// TestPeerShutsDown has the router's operator shut the session down, and start
// it again: status says why in the operator's own words.
func TestPeerShutsDown(t *testing.T) {
	s := newSite(t, files{"r1.conf": routerConf(64500, plainRouter), "herald/herald.yaml": lean})
	boot(t, s.Lab, "r1", "s")
	s.established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.path(t, "r1", vip4)

	configure := func(line string) {
		t.Helper()
		_, err := run(t, s.Node("r1"), "vtysh", "-c", "configure terminal", "-c", "router bgp 64500", "-c", line)
		must(t, err)
	}
	configure("neighbor 10.0.1.1 shutdown message new line cards")
	eventually(t, soon, func() error {
		p, err := s.peer(t, "10.0.1.254")
		if err == nil && (p.State == "established" || !strings.Contains(p.Reason, `the peer says "new line cards"`)) {
			err = fmt.Errorf("status says %s because %q", p.State, p.Reason)
		}
		return err
	})
	configure("no neighbor 10.0.1.1 shutdown")
	s.established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.path(t, "r1", vip4)
}
