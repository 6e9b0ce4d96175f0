//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Configurations that differ: one peer and one VIP, and more of both.
var (
	lean = speakerConf([]string{vip4}, "peers:\n- {address: 10.0.1.254, asn: 64500}")
	rich = speakerConf([]string{vip4, "10.99.0.11"}, "peers:\n- {address: 10.0.1.254, asn: 64500}\n- {address: 10.0.2.254, asn: 64500}")
)

// edit changes the configuration file in a way that people and programs do.
type edit func(t *testing.T, folder, content string)

// inPlace writes the file as an editor that keeps the inode does.
func inPlace(t *testing.T, folder, content string) {
	must(t, os.WriteFile(filepath.Join(folder, "herald.yaml"), []byte(content), 0o644))
}

// renamed puts a new file in the place of the old one.
func renamed(t *testing.T, folder, content string) {
	file := filepath.Join(folder, "herald.yaml")
	must(t, os.WriteFile(file+".new", []byte(content), 0o644))
	must(t, os.Rename(file+".new", file))
}

// projected is what a kubelet does with a ConfigMap: the file is a link into
// the folder ..data, which is a link to the folder of the current version.
func projected(t *testing.T, folder, content string) {
	version, err := os.MkdirTemp(folder, "..version-")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(version, "herald.yaml"), []byte(content), 0o644))
	data, file := filepath.Join(folder, "..data"), filepath.Join(folder, "herald.yaml")
	must(t, os.Symlink(filepath.Base(version), data+".new"))
	old, _ := os.Readlink(data)
	must(t, os.Rename(data+".new", data))
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(folder, old)))
		return
	}
	must(t, os.Remove(file))
	must(t, os.Symlink("..data/herald.yaml", file))
}

// TestReload adds a peer and an address while the speaker runs, breaks the
// file and mends it: the first peer's session and the first address's route
// are not touched by any of it.
func TestReload(t *testing.T) {
	for name, change := range map[string]edit{"in place": inPlace, "renamed": renamed, "symbolic link": projected} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, files{"r1.conf": routerConf(64500, plainRouter)})
			change(t, s.config, lean)
			boot(t, s.Lab, "r1", "r2", "s")
			s.established(t, "r1", "10.0.1.1", "10.0.1.254")
			s.path(t, "r1", vip4)
			_, version, err := s.router("r1").paths(t, vip4)
			must(t, err)
			routes := record(t, s.Node("r1"))
			untouched := func() {
				t.Helper()
				n, err := s.router("r1").neighbor(t, "10.0.1.1")
				must(t, err)
				if n.State != "Established" || n.Established != 1 {
					t.Errorf("the session was touched: up %d times, %s now", n.Established, n.State)
				}
				if _, now, err := s.router("r1").paths(t, vip4); err != nil || now != version {
					t.Errorf("FRR's path to %s changed: version %d, was %d (%v)", vip4, now, version, err)
				}
				for _, c := range routes.since() {
					if c.dst == hostPrefix(vip4) {
						t.Errorf("the kernel's route changed: %v", c)
					}
				}
			}

			change(t, s.config, rich)
			s.generation(t, 2, "")
			s.established(t, "r2", "10.0.2.1", "10.0.2.254")
			s.path(t, "r1", "10.99.0.11")
			s.path(t, "r2", "10.99.0.11")
			s.hasAddress(t, "10.99.0.11", true)
			untouched()

			bad := strings.Replace(rich, "asn: 64512", "asn: 0", 1)
			change(t, s.config, bad)
			line := 1 + strings.Count(bad[:strings.Index(bad, "asn: 0")], "\n")
			s.generation(t, 2, fmt.Sprintf("/etc/herald/herald.yaml:%d:", line))
			s.path(t, "r1", "10.99.0.11")
			s.path(t, "r2", "10.99.0.11")
			untouched()

			change(t, s.config, lean)
			s.generation(t, 3, "")
			s.hasAddress(t, "10.99.0.11", false)
			eventually(t, soon, func() error {
				paths, _, err := s.router("r1").paths(t, "10.99.0.11")
				if err == nil && len(paths) > 0 {
					err = fmt.Errorf("still announced: %+v", paths)
				}
				return err
			})
			eventually(t, soon, func() error {
				n, err := s.router("r2").neighbor(t, "10.0.2.1")
				if err == nil && n.State == "Established" {
					err = fmt.Errorf("the session of the removed peer is still up")
				}
				return err
			})
			untouched()
		})
	}
}

// TestReloadBySignal has SIGHUP load the file again: without a change it is
// applied and touches nothing, with a bad file it is refused.
func TestReloadBySignal(t *testing.T) {
	s := newSite(t, files{"r1.conf": routerConf(64500, plainRouter), "herald/herald.yaml": lean})
	boot(t, s.Lab, "r1", "s")
	s.established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.path(t, "r1", vip4)
	routes := record(t, s.Node("r1"))

	must(t, s.Node("s").Daemon("herald").Signal(unix.SIGHUP))
	s.generation(t, 2, "")
	inPlace(t, s.config, "vips: nonsense")
	must(t, s.Node("s").Daemon("herald").Signal(unix.SIGHUP))
	s.generation(t, 2, "/etc/herald/herald.yaml:1:")

	n, err := s.router("r1").neighbor(t, "10.0.1.1")
	must(t, err)
	if n.State != "Established" || n.Established != 1 {
		t.Errorf("the session was touched: up %d times, %s now", n.Established, n.State)
	}
	if changes := routes.since(); len(changes) > 0 {
		t.Errorf("the kernel's routes changed: %v", changes)
	}
}

// TestReloadAttributes changes what routes carry: they are sent again on the
// session that there is.
func TestReloadAttributes(t *testing.T) {
	s := newSite(t, files{"r1.conf": routerConf(64500, plainRouter), "herald/herald.yaml": lean})
	boot(t, s.Lab, "r1", "s")
	s.established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.path(t, "r1", vip4)

	for _, bgp := range []string{
		"med: 7\npeers:\n- {address: 10.0.1.254, asn: 64500}",
		"peers:\n- {address: 10.0.1.254, asn: 64500, med: 8}",
	} {
		inPlace(t, s.config, speakerConf([]string{vip4}, bgp))
		want := uint32(7)
		if strings.Contains(bgp, "med: 8") {
			want = 8
		}
		eventually(t, soon, func() error {
			if p := s.path(t, "r1", vip4); p.MED != want {
				return fmt.Errorf("the MED is %d, want %d", p.MED, want)
			}
			return nil
		})
	}
	n, err := s.router("r1").neighbor(t, "10.0.1.1")
	must(t, err)
	if n.Established != 1 {
		t.Errorf("the session was up %d times, want once", n.Established)
	}
}

// generation waits until status counts this many configurations, and has
// something against the file as it is now that begins like this, or nothing.
func (s *site) generation(t *testing.T, want int, complaint string) {
	t.Helper()
	eventually(t, soon, func() error {
		status, err := s.status(t)
		if err != nil {
			return err
		}
		c := status.Config
		if c.Generation != want || !strings.HasPrefix(c.Error, complaint) || (complaint == "") != (c.Error == "") {
			return fmt.Errorf("generation %d with error %q, want %d with %q", c.Generation, c.Error, want, complaint)
		}
		return nil
	})
}
