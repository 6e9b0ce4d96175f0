//go:build e2e

package session

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
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
		lost = old.Lost()
		return site.ErrorIf(lost.IsZero(), "r1 still has the route")
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
			return site.Check(err, status.VIPs[0].Stage != want || len(paths) != 1 || paths[0].MED != med, "status shows %s, r1 has %+v", status.VIPs[0].Stage, paths)
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
	var got site.Path
	site.Eventually(t, site.Soon, func() error {
		got = s.Path(t, "r1", site.VIP4)
		return site.ErrorIf(got.MED != want.MED, "r1 has %+v", got)
	})
	if got.LocalPref = 0; got != want {
		t.Errorf("r1 has %+v, want %+v", got, want)
	}
	for med, bgp := range map[uint32]string{ // of all peers, or of one
		7: "med: 7\npeers:\n- {address: 10.0.1.254, asn: 64500}",
		8: "peers:\n- {address: 10.0.1.254, asn: 64500, med: 8}",
	} {
		inPlace(t, s.Config, site.SpeakerConf([]string{site.VIP4}, bgp))
		site.Eventually(t, site.Soon, func() error {
			p := s.Path(t, "r1", site.VIP4)
			return site.ErrorIf(p.MED != med, "the MED is %d, want %d", p.MED, med)
		})
	}
	onceUp(t, s, "r1", "10.0.1.1")
	routes.Kept(t)
}

// TestDrain drains the speaker, ends the drain, and stops the process: the route is
// first marked with GRACEFUL_SHUTDOWN and then withdrawn, and the process ends the
// session with a reason.
func TestDrain(t *testing.T) {
	s := newPlainSession(t, site.PlainRouter, site.SpeakerConf([]string{site.VIP4}, "peers: [{address: 10.0.1.254, asn: 64500, med: 5}]"))
	s.HasAddress(t, site.VIP4, true)

	site.MustRun(t, s.Node("s"), "herald", "drain", "--reason", "kernel upgrade")
	s.HasAddress(t, site.VIP4, false)
	status := site.Get[admin.Status](t)(s.Status(t))
	if status.Draining != "kernel upgrade" || status.VIPs[0].Stage != "withdrawn" {
		t.Errorf("after the drain status shows draining %q, stage %q", status.Draining, status.VIPs[0].Stage)
	}
	if p := status.Peers[0]; p.State != "established" || len(p.Advertised) > 0 {
		t.Errorf("after the drain the session is %s with %v, want it up and empty", p.State, p.Advertised)
	}
	wantUpdates(t, s.Node("r1"),
		`rcvd UPDATE w/ attr: nexthop 10\.0\.1\.1, origin i, metric 5, path 64512`,
		`rcvd UPDATE w/ attr: nexthop 10\.0\.1\.1, origin i, metric 4294967295, community (graceful-shutdown|65535:0), path 64512`,
		`rcvd UPDATE about 10\.99\.0\.10/32 IPv4 unicast -- withdrawn`)

	site.MustRun(t, s.Node("s"), "herald", "undrain")
	if p := s.Path(t, "r1", site.VIP4); p.MED != 5 || p.Communities != "" {
		t.Errorf("after the drain the path is %+v, want MED 5 and no community", p)
	}

	site.WantLittleMemory(t, s.Node("s"))
	site.Must(t, s.Node("s").Stop(t.Context()))
	var n site.Neighbor
	site.Eventually(t, site.Soon, func() (err error) {
		n, err = s.Router("r1").Neighbor(t, "10.0.1.1")
		return site.Check(err, n.State == "Established", "the session is still up")
	})
	if !strings.Contains(n.LastNotification, "Administrative Shutdown") || n.LastShutdown != "s: herald is stopping" {
		t.Errorf("FRR received %q with the message %q", n.LastNotification, n.LastShutdown)
	}
	if n.Established != 1 {
		t.Errorf("the session was up %d times, want once", n.Established)
	}
}

// wantUpdates waits until a node has logged matches of all patterns, in this order.
func wantUpdates(t *testing.T, n *lab.Node, patterns ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		log, err := os.ReadFile(n.Log())
		if err != nil {
			return err
		}
		rest := log
		for _, pattern := range patterns {
			at := regexp.MustCompile(pattern).FindIndex(rest)
			if at == nil {
				return fmt.Errorf("%s has not logged %s, or not in order:\n%s", n.Name(), pattern, log)
			}
			rest = rest[at[1]:]
		}
		return nil
	})
}

// Configurations that differ: one peer and one VIP, and more of both.
var (
	lean = site.SpeakerConf([]string{site.VIP4}, "peers:\n- {address: 10.0.1.254, asn: 64500}")
	rich = site.SpeakerConf([]string{site.VIP4, "10.99.0.11"}, "peers:\n- {address: 10.0.1.254, asn: 64500}\n- {address: 10.0.2.254, asn: 64500}")
)

// inPlace writes the file as an editor does that keeps the inode.
func inPlace(t *testing.T, folder, content string) {
	site.Must(t, os.WriteFile(filepath.Join(folder, "herald.yaml"), []byte(content), 0o644))
}

// TestReload adds a peer and an address while the speaker runs, breaks the file and
// mends it. The first peer's session and the first address's route are untouched.
// SIGHUP loads the file again, good or bad. The tests of config.Watch cover other ways
// to change a file.
func TestReload(t *testing.T) {
	s := site.NewSession(t, site.Files{"r1.conf": site.RouterConf(64500, site.PlainRouter)})
	inPlace(t, s.Config, lean)
	site.Boot(t, s.Lab, "r1", "r2", "s")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Path(t, "r1", site.VIP4)
	_, version, err := s.Router("r1").Paths(t, site.VIP4)
	site.Must(t, err)
	routes := site.WatchRoutes(t, s.Node("r1"))
	untouched := func() {
		t.Helper()
		onceUp(t, s, "r1", "10.0.1.1")
		if _, now, err := s.Router("r1").Paths(t, site.VIP4); err != nil || now != version {
			t.Errorf("FRR's path to %s changed: version %d, was %d (%v)", site.VIP4, now, version, err)
		}
		for _, c := range routes.Since() {
			if c.Prefix == site.HostPrefix(site.VIP4) {
				t.Errorf("the kernel's route changed: %v", c)
			}
		}
	}

	hangup := func() { t.Helper(); site.Must(t, s.Node("s").Daemon("herald").Signal(unix.SIGHUP)) }
	hangup()
	generation(t, s, 2, "")
	untouched()

	inPlace(t, s.Config, rich)
	generation(t, s, 3, "")
	s.Established(t, "r2", "10.0.2.1", "10.0.2.254")
	s.Path(t, "r1", "10.99.0.11")
	s.Path(t, "r2", "10.99.0.11")
	s.HasAddress(t, "10.99.0.11", true)
	untouched()

	bad := strings.Replace(rich, "asn: 64512", "asn: 0", 1)
	inPlace(t, s.Config, bad)
	line := 1 + strings.Count(bad[:strings.Index(bad, "asn: 0")], "\n")
	complaint := fmt.Sprintf("/etc/herald/herald.yaml:%d:", line)
	generation(t, s, 3, complaint)
	hangup()
	site.Eventually(t, site.Soon, func() error {
		log, err := os.ReadFile(s.Node("s").Log())
		refused := regexp.MustCompile(`configuration refused.* because=SIGHUP`).Match(log)
		return errors.Join(err, site.ErrorIf(!refused, "the log does not say that SIGHUP loaded the bad file"))
	})
	generation(t, s, 3, complaint)
	s.Path(t, "r1", "10.99.0.11")
	s.Path(t, "r2", "10.99.0.11")
	untouched()

	inPlace(t, s.Config, lean)
	generation(t, s, 4, "")
	s.HasAddress(t, "10.99.0.11", false)
	s.NoPath(t, "r1", "10.99.0.11")
	site.Eventually(t, site.Soon, func() error {
		n, err := s.Router("r2").Neighbor(t, "10.0.2.1")
		return site.Check(err, n.State == "Established", "the session of the removed peer is still up")
	})
	untouched()
}

// generation waits until status counts this many configurations, and has a complaint
// about the current file that begins like this, or none.
func generation(t *testing.T, s *site.Session, want int, complaint string) {
	t.Helper()
	s.Shows(t, func(status admin.Status) error {
		c := status.Config
		return site.ErrorIf(c.Generation != want || !strings.HasPrefix(c.Error, complaint) || (complaint == "") != (c.Error == ""),
			"generation %d with error %q, want %d with %q", c.Generation, c.Error, want, complaint)
	})
}
