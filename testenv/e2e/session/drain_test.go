//go:build e2e

package session

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// TestDrain drains the speaker, ends the drain, and stops the process: the route is
// first marked with GRACEFUL_SHUTDOWN and then withdrawn, and the process ends the
// session with a reason.
func TestDrain(t *testing.T) {
	s := newPlainSession(t, site.PlainRouter, site.SpeakerConf([]string{site.VIP4}, "peers: [{address: 10.0.1.254, asn: 64500, med: 5}]"))
	s.HasAddress(t, site.VIP4, true)

	site.MustRun(t, s.Node("s"), "herald", "drain", "--reason", "kernel upgrade")
	s.HasAddress(t, site.VIP4, false)
	status, err := s.Status(t)
	site.Must(t, err)
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
		if n, err = s.Router("r1").Neighbor(t, "10.0.1.1"); err == nil && n.State == "Established" {
			err = errors.New("the session is still up")
		}
		return err
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
