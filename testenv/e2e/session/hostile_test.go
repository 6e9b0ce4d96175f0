//go:build e2e

package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/hostile"
	"github.com/herald-vip/herald/testenv/stub"
)

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
	site.Must(t, os.Mkdir(filepath.Join(dir, "herald"), 0o755))
	site.Must(t, os.WriteFile(filepath.Join(dir, "herald/herald.yaml"), []byte(site.SpeakerConf([]string{site.VIP4}, peers)), 0o644))
	site.Must(t, os.WriteFile(filepath.Join(dir, "r1.conf"), []byte(site.RouterConf(64500, site.PlainRouter)), 0o644))
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
		p, err := s.Peer(t, attacker(i))
		site.Must(t, err)
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
