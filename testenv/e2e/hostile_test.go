//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/herald-vip/herald/testenv/hostile"
	"github.com/herald-vip/herald/testenv/stub"
)

// TestHostileRouter has one router run every attack there is, each as a peer of
// its own, while the other router's kernel route to the VIP does not change
// once. The sessions are opened by herald in one case, by the router in the other.
func TestHostileRouter(t *testing.T) {
	for name, incoming := range map[string]bool{"opened by herald": false, "opened by the router": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const (
				mostResident = 250 << 20 // bytes
				each         = 4 * time.Second
			)
			attacks := hostile.Attacks()
			peers := "peers:\n- {address: 10.0.1.254, asn: 64500}\n"
			if incoming {
				peers = "listen: {}\n" + peers
			}
			for i := range attacks {
				peers += fmt.Sprintf("- {address: %s, asn: 64501}\n", attacker(i))
			}
			dir := t.TempDir()
			must(t, os.Mkdir(filepath.Join(dir, "herald"), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "herald/herald.yaml"), []byte(speakerConf([]string{vip4}, peers)), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "r1.conf"), []byte(routerConf(64500, plainRouter)), 0o644))
			s := &site{Lab: startLab(t, "e2e-hostile.clab.yml", map[string]string{"HOSTILE_DIR": dir})}
			s.speaker = speaker{s.Node("s")}
			serve(t, s.Node("s"), ":6443", stub.APIServer("s"))
			boot(t, s.Lab, "r1", "r2", "s")
			for i := range attacks {
				_, err := run(t, s.Node("r2"), "ip", "addr", "add", attacker(i)+"/24", "dev", "eth1")
				must(t, err)
			}
			s.established(t, "r1", "10.0.1.1", "10.0.1.254")
			s.path(t, "r1", vip4)
			routes := record(t, s.Node("r1"))

			attack := func(i int, name string, limit time.Duration) (string, error) {
				argv := []string{"herald-testenv", "hostile", "--asn", "64501", "--id", attacker(i), "--attack", name, "--for", limit.String()}
				if incoming {
					argv = append(argv, "--connect", "10.0.2.1:179", "--local", attacker(i))
				} else {
					argv = append(argv, "--listen", attacker(i)+":179")
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit+soon)
				defer cancel()
				return s.Node("r2").Run(ctx, argv...)
			}
			herald := s.Node("s").Daemon("herald")
			for i, a := range attacks {
				out, err := attack(i, a.Name, each)
				if err != nil {
					t.Fatalf("%s: %v", a.Name, err)
				}
				p, err := s.peer(t, attacker(i))
				must(t, err)
				if strings.ContainsFunc(p.Reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%s: status gives a reason that does not suit a terminal: %q", a.Name, p.Reason)
				}
				t.Logf("%s%s: %s, %d drops: %s; %d MiB", out, a.Name, p.State, p.Drops, p.Reason, memory(t, herald.Pid(), "VmRSS")>>20)
				if !herald.Running() {
					t.Fatalf("herald died of %s", a.Name)
				}
			}
			if changes := routes.since(); len(changes) > 0 {
				t.Errorf("the route to the VIP was touched: %v", changes)
			}
			n, err := s.router("r1").neighbor(t, "10.0.1.1")
			must(t, err)
			if n.Established != 1 {
				t.Errorf("the healthy session was up %d times, want once", n.Established)
			}
			if peak := memory(t, herald.Pid(), "VmHWM"); peak > mostResident {
				t.Errorf("resident memory was up to %d MiB", peak>>20)
			}

			// The first attacker has learnt to behave, and is taken back.
			behaved := make(chan error, 1)
			go func() { _, err := attack(0, hostile.Behaved.Name, time.Minute); behaved <- err }()
			eventually(t, time.Minute, func() error {
				p, err := s.peer(t, attacker(0))
				if err == nil && p.State != "established" {
					err = fmt.Errorf("session is %s: %s", p.State, p.Reason)
				}
				return err
			})
		})
	}
}

// attacker is the address from which the i-th attack comes.
func attacker(i int) string { return fmt.Sprintf("10.0.2.%d", 100+i) }
