package failover

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/must"
)

// written writes the files of the second master, and of routers, and returns their folder.
func written(t *testing.T, s speaker, topology string, bfd int, altered bool, routers ...file) (dir string) {
	t.Helper()
	site := site{speaker: s, bfd: bfd, templates: "../../topologies/" + topology, dir: t.TempDir()}
	must.Do(t, site.configure("m2", altered))
	for _, f := range routers {
		must.Do(t, site.fill(f, conf{Masters: numbers(), BFD: bfd}))
	}
	return site.dir
}

// taken returns a master's configuration, which Herald must accept.
func taken(t *testing.T, dir string) *config.Config {
	t.Helper()
	// In the node the folder is /etc/herald, so adapt the key's path.
	path := filepath.Join(dir, "m2", heraldFile)
	text := strings.ReplaceAll(read(t, path), "/etc/herald", filepath.Dir(path))
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return must.Get[*config.Config](t)(config.Load(path))
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get[[]byte](t)(os.ReadFile(path)))
}

// TestConfigurations fills in every template, and checks that Herald accepts its own.
func TestConfigurations(t *testing.T) {
	bridge := bridging("herald")
	for _, bfd := range []int{0, 50, 10} {
		for altered, h := range map[bool]speaker{false: herald("herald"), true: bridge} {
			cfg := taken(t, written(t, h, "bench-bgp", bfd, altered))
			if p := cfg.BGP.Peers; len(p) != 2 || (p[0].BFD != nil) != (bfd > 0) || cfg.Realtime != fast(bfd) {
				t.Errorf("BFD %d: peers %+v, real time %t", bfd, p, cfg.Realtime)
			}
			if (cfg.Election != nil) != altered {
				t.Errorf("%s: there is an election: %t", h.name, cfg.Election != nil)
			}
		}
		dir := written(t, frr(quick()), "bench-bgp", bfd, false, routerFiles()...)
		for _, file := range []string{"m2/frr.conf", "r1/frr.conf", "r2/bird.conf"} {
			if text := read(t, filepath.Join(dir, file)); strings.Contains(text, "bfd") != (bfd > 0) {
				t.Errorf("BFD %d: %s:\n%s", bfd, file, text)
			}
		}
	}
}

// TestRivals checks that Herald accepts the file used beside FRR, that FRR
// redistributes its route, and that ExaBGP's healthcheck has its defaults or Herald's.
func TestRivals(t *testing.T) {
	dir := written(t, heraldAndFRR("herald"), "bench-bgp", 0, false)
	if cfg := taken(t, dir); cfg.BGP != nil || cfg.VIPs[0].Announce != config.AnnounceKernel || cfg.VIPs[0].Kernel.Table != unix.RT_TABLE_MAIN {
		t.Errorf("the VIP is %+v, BGP %+v", cfg.VIPs[0], cfg.BGP)
	}
	if text := read(t, filepath.Join(dir, "m2/frr.conf")); !strings.Contains(text, " redistribute kernel route-map vip\n") || !strings.Contains(text, " match interface herald0\n") {
		t.Errorf("FRR has\n%s", text)
	}
	for c, own := range map[healthcheck]bool{asShipped(): false, asHerald(): true} {
		text := read(t, filepath.Join(written(t, exabgp(c), "bench-bgp", 0, false), "m2/exabgp.conf"))
		if strings.Contains(text, "--interval") != own || strings.Count(text, "neighbor 10.") != 2 {
			t.Errorf("ExaBGP has\n%s", text)
		}
	}
}

// TestFlatConfigurations checks that Herald accepts its generated file, and that each
// speaker's faults are named once.
func TestFlatConfigurations(t *testing.T) {
	parts := flatParts(suite.Options{Programs: map[string]string{"herald": "herald"}})
	if len(parts) != 4 {
		t.Fatalf("%d parts", len(parts))
	}
	for _, p := range parts {
		seen := make(map[string]bool)
		for _, f := range p.faults {
			if seen[f.name] || f.strike == nil || f.planned != slices.Contains(plannedFaults(), f.name) {
				t.Errorf("fault %q appears twice, or is unknown", f.name)
			}
			seen[f.name] = true
		}
		dir := written(t, p.speaker, "bench-arp", 0, false)
		if p.speaker.program != "herald" {
			continue
		}
		cfg := taken(t, dir)
		if own := heraldARP("herald", cfg.Election.Lease); own.name != p.speaker.name || cfg.Realtime != (cfg.Election.Lease == shortLease) {
			t.Errorf("a lease of %v, real time %t; want the values of %q", cfg.Election.Lease, cfg.Realtime, p.speaker.name)
		}
	}
}

// TestSessionUp counts the BFD sessions that routers show to be up.
func TestSessionUp(t *testing.T) {
	for _, shown := range []string{
		`[{"peer":"10.1.1.1","status":"up"},{"peer":"10.1.2.1","status":"down"},{"peer":"10.1.3.1","status":"up"}]`,
		`BIRD 2.0.12 ready.
bfd1:
IP address                Interface  State      Since         Interval  Timeout
10.2.1.1                  eth1       Up         12:00:00.000    0.050    0.150
10.2.2.1                  eth2       Down       12:00:00.000    1.000    0.000
10.2.3.1                  eth3       Up         12:00:00.000    0.050    0.150
`,
	} {
		if up := sessionUp.FindAllString(shown, -1); len(up) != 2 {
			t.Errorf("%q are up in:\n%s", up, shown)
		}
	}
}
