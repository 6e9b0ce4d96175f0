//go:build e2e

package session

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/stub"
)

// twoPeers returns the configuration of a speaker with sessions to r1 and r2, and
// these lines for its VIP.
func twoPeers(vip string) string {
	conf := site.SpeakerConf([]string{site.VIP4}, "peers:\n- {address: 10.0.1.254, asn: 64500}\n- {address: 10.0.2.254, asn: 64500}")
	return strings.Replace(conf, "checks: [apiserver]}", "checks: [apiserver]"+vip+"}", 1)
}

// TestMoveBetweenPeers moves a VIP from one peer to the other by a reload. The new
// peer has its route before the old one loses it, and the old one first gets a
// warning.
func TestMoveBetweenPeers(t *testing.T) {
	s := site.NewSession(t, site.Files{
		"r1.conf":            site.RouterConf(64500, site.PlainRouter),
		"r2.conf":            site.RouterConf(64500, strings.ReplaceAll(site.PlainRouter, "10.0.1.1", "10.0.2.1")),
		"herald/herald.yaml": twoPeers(`, peers: [10.0.1.254]`),
	})
	site.Boot(t, s.Lab, "r1", "r2", "s")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Established(t, "r2", "10.0.2.1", "10.0.2.254")
	s.Path(t, "r1", site.VIP4)
	if paths, _, err := s.Router("r2").Paths(t, site.VIP4); err != nil || len(paths) > 0 {
		t.Fatalf("r2 has %v (%v), which it must not have", paths, err)
	}
	old, next := site.WatchRoutes(t, s.Node("r1")), site.WatchRoutes(t, s.Node("r2"))

	inPlace(t, s.Config, twoPeers(`, peers: [10.0.2.254]`))
	s.Path(t, "r2", site.VIP4)
	var lost time.Time
	site.Eventually(t, site.Soon, func() error {
		for _, c := range old.Since() {
			if len(c.Now) == 0 {
				lost = c.At
				return nil
			}
		}
		return fmt.Errorf("r1 still has the route")
	})
	if got := next.First(site.IP("10.0.2.1")); got.IsZero() || got.After(lost) {
		t.Errorf("r1 lost the route at %v, r2 had it from %v", lost, got)
	}
	wantUpdates(t, s.Node("r1"),
		`rcvd UPDATE w/ attr: nexthop 10\.0\.1\.1, origin i, metric 4294967295, community (graceful-shutdown|65535:0), path 64512`,
		`rcvd UPDATE about 10\.99\.0\.10/32 IPv4 unicast -- withdrawn`)

	inPlace(t, s.Config, twoPeers(""))
	s.Path(t, "r1", site.VIP4)
	s.Path(t, "r2", site.VIP4)
	next.Kept(t)
	onceUp(t, s, "r1", "10.0.1.1")
	onceUp(t, s, "r2", "10.0.2.1")
}

// TestLastResort has a VIP that is demoted, not withdrawn, when its check fails: the
// routers keep it as the worst route, and the address stays.
func TestLastResort(t *testing.T) {
	s := site.NewSession(t, site.Files{"r1.conf": site.RouterConf(64500, site.PlainRouter), "herald/herald.yaml": twoPeers(`, onFailure: demote`)})
	s.Readyz.SetAll(stub.Answer{Status: http.StatusInternalServerError})
	site.Boot(t, s.Lab, "r1", "s")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Shows(t, func(status admin.Status) error {
		return site.ErrorIf(status.Checks[0].State != health.Unhealthy, "the check is %s", status.Checks[0].State)
	})
	if paths, _, err := s.Router("r1").Paths(t, site.VIP4); err != nil || len(paths) > 0 {
		t.Fatalf("announced before it was healthy: %v (%v)", paths, err)
	}

	s.Readyz.SetAll(stub.Answer{Status: http.StatusOK})
	s.Path(t, "r1", site.VIP4)
	routes := site.WatchRoutes(t, s.Node("r1"))
	s.Readyz.SetAll(stub.Answer{Status: http.StatusInternalServerError})
	stage := func(want speaker.Stage, med uint32) {
		t.Helper()
		s.Shows(t, func(status admin.Status) error {
			paths, _, err := s.Router("r1").Paths(t, site.VIP4)
			if err == nil && (status.VIPs[0].Stage != want || len(paths) != 1 || paths[0].MED != med) {
				err = fmt.Errorf("status shows %s, r1 has %+v", status.VIPs[0].Stage, paths)
			}
			return err
		})
	}
	stage("demoted", 4294967295)
	s.HasAddress(t, site.VIP4, true)
	s.Readyz.SetAll(stub.Answer{Status: http.StatusOK})
	stage("announced", 0)
	routes.Kept(t)
}

// TestAttributesChange reloads a VIP with other attributes: FRR receives them in the
// same session, and its route is never away.
func TestAttributesChange(t *testing.T) {
	s := newPlainSession(t, site.PlainRouter, twoPeers(""))
	routes := site.WatchRoutes(t, s.Node("r1"))
	inPlace(t, s.Config, twoPeers(`, med: 30, communities: ["64512:7"], largeCommunities: ["64512:1:2"], prepend: 1`))
	want := site.Path{From: "10.0.1.1", ASPath: "64512 64512", MED: 30, Communities: "64512:7", LargeCommunities: "64512:1:2", NextHop: site.IP("10.0.1.1")}
	site.Eventually(t, site.Soon, func() error {
		paths, _, err := s.Router("r1").Paths(t, site.VIP4)
		if err == nil && (len(paths) != 1 || paths[0].MED != want.MED) {
			err = fmt.Errorf("r1 has %+v", paths)
		}
		return err
	})
	got := s.Path(t, "r1", site.VIP4)
	if got.LocalPref = 0; got != want {
		t.Errorf("r1 has %+v, want %+v", got, want)
	}
	for med, bgp := range map[uint32]string{ // of all peers, or of one
		7: "med: 7\npeers:\n- {address: 10.0.1.254, asn: 64500}",
		8: "peers:\n- {address: 10.0.1.254, asn: 64500, med: 8}",
	} {
		inPlace(t, s.Config, site.SpeakerConf([]string{site.VIP4}, bgp))
		site.Eventually(t, site.Soon, func() error {
			if p := s.Path(t, "r1", site.VIP4); p.MED != med {
				return fmt.Errorf("the MED is %d, want %d", p.MED, med)
			}
			return nil
		})
	}
	onceUp(t, s, "r1", "10.0.1.1")
	routes.Kept(t)
}
