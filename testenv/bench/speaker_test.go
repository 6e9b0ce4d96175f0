package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/config"
)

// TestConfigurations wants every template to be filled in, and Herald to take
// its own.
func TestConfigurations(t *testing.T) {
	const templates = "../topologies/bench-bgp"
	for _, bfd := range []int{0, 50, 10} {
		for _, altered := range []bool{false, true} {
			t.Run(fmt.Sprintf("BFD %d altered %t", bfd, altered), func(t *testing.T) {
				m := masterConf{Number: 2, Routers: []int{1, 2}, BFD: bfd, Realtime: fast(bfd), Altered: altered}
				dir := t.TempDir()
				h := &herald{bridge: altered, masters: make(map[string]heraldConf)}
				for _, err := range []error{
					h.configure(templates, dir, m),
					(&frr{script: quick()}).configure(templates, dir, m),
					frrRouter{}.configure(templates, filepath.Join(dir, "r1"), routerConf{Masters: masterNumbers(), BFD: bfd}),
					birdRouter{}.configure(templates, filepath.Join(dir, "r2"), routerConf{Masters: masterNumbers(), BFD: bfd}),
				} {
					if err != nil {
						t.Fatal(err)
					}
				}
				text, err := os.ReadFile(filepath.Join(dir, heraldFile))
				if err != nil {
					t.Fatal(err)
				}
				cfg, err := config.Parse(heraldFile, text) // which does not look for the key
				if err != nil {
					t.Fatal(err)
				}
				if p := cfg.BGP.Peers; len(p) != 2 || (p[0].BFD != nil) != (bfd > 0) || cfg.Realtime != fast(bfd) {
					t.Errorf("peers %+v, real time %t", p, cfg.Realtime)
				}
				if (cfg.Election != nil) != h.bridge {
					t.Errorf("there is an election: %t", cfg.Election != nil)
				}
				for _, file := range []string{"frr.conf", "r1/frr.conf", "r2/bird.conf"} {
					text, err := os.ReadFile(filepath.Join(dir, file))
					if err != nil {
						t.Fatal(err)
					}
					if got := strings.Contains(string(text), "bfd"); got != (bfd > 0) {
						t.Errorf("%s speaks of BFD: %t:\n%s", file, got, text)
					}
				}
			})
		}
	}
}
