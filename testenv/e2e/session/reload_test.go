//go:build e2e

package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

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
		if err == nil && n.State == "Established" {
			err = fmt.Errorf("the session of the removed peer is still up")
		}
		return err
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
