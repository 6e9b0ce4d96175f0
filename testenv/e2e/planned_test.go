//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/stub"
)

// twoPeers is the configuration of a speaker with a session to r1 and r2, and
// these lines for its VIP.
func twoPeers(vip string) string {
	conf := speakerConf([]string{vip4}, "peers:\n- {address: 10.0.1.254, asn: 64500}\n- {address: 10.0.2.254, asn: 64500}")
	return strings.Replace(conf, "checks: [apiserver]}", "checks: [apiserver]"+vip+"}", 1)
}

// TestMoveBetweenPeers moves a VIP from one peer to the other by a reload: the
// new one has its route before the old one loses it, and the old one is told
// before that.
func TestMoveBetweenPeers(t *testing.T) {
	s := newSite(t, files{
		"r1.conf":            routerConf(64500, plainRouter),
		"r2.conf":            routerConf(64500, strings.ReplaceAll(plainRouter, "10.0.1.1", "10.0.2.1")),
		"herald/herald.yaml": twoPeers(`, peers: [10.0.1.254]`),
	})
	boot(t, s.Lab, "r1", "r2", "s")
	s.established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.established(t, "r2", "10.0.2.1", "10.0.2.254")
	s.path(t, "r1", vip4)
	if paths, _, err := s.router("r2").paths(t, vip4); err != nil || len(paths) > 0 {
		t.Fatalf("r2 has %v (%v), which is not for it", paths, err)
	}
	from, to := record(t, s.Node("r1")), record(t, s.Node("r2"))

	inPlace(t, s.config, twoPeers(`, peers: [10.0.2.254]`))
	s.path(t, "r2", vip4)
	var lost time.Time
	eventually(t, soon, func() error {
		for _, c := range from.since() {
			if c.removed {
				lost = c.at
				return nil
			}
		}
		return fmt.Errorf("r1 still has the route")
	})
	if got := to.first(ip("10.0.2.1")); got.IsZero() || got.After(lost) {
		t.Errorf("r1 lost the route at %v, r2 had it from %v", lost, got)
	}
	wantUpdates(t, s.Node("r1"),
		`rcvd UPDATE w/ attr: nexthop 10\.0\.1\.1, origin i, metric 4294967295, community (graceful-shutdown|65535:0), path 64512`,
		`rcvd UPDATE about 10\.99\.0\.10/32 IPv4 unicast -- withdrawn`)

	inPlace(t, s.config, twoPeers(""))
	s.path(t, "r1", vip4)
	s.path(t, "r2", vip4)
	for _, c := range to.since() {
		if c.removed {
			t.Errorf("r2 lost the route for a while: %v", c)
		}
	}
	for router, name := range map[string]string{"r1": "10.0.1.1", "r2": "10.0.2.1"} {
		n, err := s.router(router).neighbor(t, name)
		must(t, err)
		if n.Established != 1 {
			t.Errorf("the session with %s was up %d times, want once", router, n.Established)
		}
	}
}

// TestLastResort has a VIP that is demoted, not withdrawn, when its check
// fails: the routers keep it as the worst route, and the address stays.
func TestLastResort(t *testing.T) {
	s := newSite(t, files{"r1.conf": routerConf(64500, plainRouter), "herald/herald.yaml": twoPeers(`, onFailure: demote`)})
	s.readyz.SetAll(stub.Answer{Status: http.StatusInternalServerError})
	boot(t, s.Lab, "r1", "s")
	s.established(t, "r1", "10.0.1.1", "10.0.1.254")
	eventually(t, soon, func() error {
		status, err := s.status(t)
		if err == nil && status.Checks[0].State != "unhealthy" {
			err = fmt.Errorf("the check is %s", status.Checks[0].State)
		}
		return err
	})
	if paths, _, err := s.router("r1").paths(t, vip4); err != nil || len(paths) > 0 {
		t.Fatalf("announced before it was healthy: %v (%v)", paths, err)
	}

	s.readyz.SetAll(stub.Answer{Status: http.StatusOK})
	s.path(t, "r1", vip4)
	routes := record(t, s.Node("r1"))
	s.readyz.SetAll(stub.Answer{Status: http.StatusInternalServerError})
	stage := func(want string, med uint32) {
		t.Helper()
		eventually(t, soon, func() error {
			status, err := s.status(t)
			if err != nil {
				return err
			}
			paths, _, err := s.router("r1").paths(t, vip4)
			if err == nil && (status.VIPs[0].Stage != want || len(paths) != 1 || paths[0].MED != med) {
				err = fmt.Errorf("status says %s, r1 has %+v", status.VIPs[0].Stage, paths)
			}
			return err
		})
	}
	stage("demoted", 4294967295)
	s.hasAddress(t, vip4, true)
	s.readyz.SetAll(stub.Answer{Status: http.StatusOK})
	stage("announced", 0)
	for _, c := range routes.since() {
		if c.removed {
			t.Errorf("the route was withdrawn: %v", c)
		}
	}
}

// TestAttributesChange reloads a VIP with other attributes: FRR hears them in
// the same session, and its route is never away.
func TestAttributesChange(t *testing.T) {
	s := newSite(t, files{"r1.conf": routerConf(64500, plainRouter), "herald/herald.yaml": twoPeers("")})
	boot(t, s.Lab, "r1", "s")
	s.established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.path(t, "r1", vip4)
	routes := record(t, s.Node("r1"))
	inPlace(t, s.config, twoPeers(`, med: 30, communities: ["64512:7"], largeCommunities: ["64512:1:2"], prepend: 1`))
	want := path{From: "10.0.1.1", ASPath: "64512 64512", MED: 30, Communities: "64512:7", LargeCommunities: "64512:1:2", NextHop: ip("10.0.1.1")}
	eventually(t, soon, func() error {
		paths, _, err := s.router("r1").paths(t, vip4)
		if err == nil && (len(paths) != 1 || paths[0].MED != want.MED) {
			err = fmt.Errorf("r1 has %+v", paths)
		}
		return err
	})
	got := s.path(t, "r1", vip4)
	if got.LocalPref = 0; got != want {
		t.Errorf("r1 has %+v, want %+v", got, want)
	}
	n, err := s.router("r1").neighbor(t, "10.0.1.1")
	must(t, err)
	if n.Established != 1 {
		t.Errorf("the session was up %d times, want once", n.Established)
	}
	for _, c := range routes.since() {
		if c.removed {
			t.Errorf("the route was away: %v", c)
		}
	}
}
