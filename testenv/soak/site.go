package soak

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

//go:embed herald.yaml.tmpl
var heraldTemplate string

// The names of bgp.clab.yml.
var (
	masters = []string{"m1", "m2", "m3"}
	routers = []string{"r1", "r2"}
)

// families are those of the VIP's addresses.
var families = []Family{4, 6}

// vip is the VIP's address of a family.
func vip(f Family) netip.Addr {
	if f == 6 {
		return netip.MustParseAddr("fd00:99::10")
	}
	return netip.MustParseAddr("10.99.0.10")
}

// speakerConfig is what varies in a speaker's configuration.
type speakerConfig struct {
	Index     int // of the master
	MED       int
	Community string
	BFD       time.Duration // the interval; none if it is zero
}

// change makes the change that a fault of this kind makes.
func (c *speakerConfig) change(k Kind) {
	switch k {
	case MEDRaised:
		c.MED = 100
	case Recoloured:
		c.Community = "64512:200"
	case BadFile:
		c.Community = "no community"
	}
}

// write writes the file.
func (c speakerConfig) write(path string) error {
	t, err := template.New("herald.yaml").Parse(heraldTemplate)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, c); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// site is the lab of a run: the bgp topology, or the flat one, with
// configurations of its own.
type site struct {
	*lab.Lab
	flat    bool
	bfd     time.Duration
	configs string // the folder of the speakers' configurations
}

// newSite lays out and boots the topology.
func newSite(ctx context.Context, log *slog.Logger, o Options) (*site, error) {
	topology, err := clab.Load(o.Topology)
	if err != nil {
		return nil, err
	}
	s := &site{bfd: o.BFD, configs: filepath.Join(o.Dir, "configs")}
	if err := os.MkdirAll(s.configs, 0o755); err != nil {
		return nil, err
	}
	for i := range topology.Nodes {
		if err := s.adapt(&topology.Nodes[i]); err != nil {
			return nil, fmt.Errorf("node %s: %w", topology.Nodes[i].Name, err)
		}
	}
	s.Lab, err = lab.Start(ctx, log, topology, lab.Options{Dir: o.Dir, Images: map[string]lab.Image{
		"quay.io/frrouting/frr": lab.FRR,
		"herald":                speaker(o.Herald),
		"herald-testenv":        lab.Binary(o.Testenv),
	}})
	return s, err
}

// speaker is the image of the binary under test, which runs when it answers
// its command line.
func speaker(path string) lab.Image {
	return func(n clab.Node) (lab.Program, error) {
		p, err := lab.Binary(path)(n)
		if err != nil {
			return p, err
		}
		p.Daemons[0].Socket = "/run/herald/herald.sock"
		return p, nil
	}
}

// adapt gives a speaker the configuration of the soak and lets it tell of data
// races in its log alone, and a router BFD if the speakers have it.
func (s *site) adapt(n *clab.Node) error {
	switch {
	case n.Image == "herald" || strings.HasPrefix(n.Image, "herald:"):
		dir := s.config(n.Base)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		n.Binds = []clab.Bind{{Source: dir, Target: "/etc/herald", ReadOnly: true}}
		n.Env = map[string]string{"GORACE": "exitcode=0"}
		return s.speakerConfig(n.Base).write(filepath.Join(dir, "herald.yaml"))
	case slices.Contains(routers, n.Name):
		for i, b := range n.Binds {
			if b.Target != "/etc/frr/frr.conf" {
				continue
			}
			n.Binds[i].Source = filepath.Join(s.configs, n.Name+".conf")
			if err := s.routerConfig(b.Source, n.Binds[i].Source); err != nil {
				return err
			}
		}
	}
	return nil
}

// config is the folder with the configuration of a master's speaker.
func (s *site) config(master string) string { return filepath.Join(s.configs, master) }

// speakerConfig is the configuration that a master's speaker starts with.
func (s *site) speakerConfig(master string) speakerConfig {
	return speakerConfig{Index: int(master[1] - '0'), Community: "64512:100", BFD: s.bfd}
}

// routerConfig copies a router's configuration and adds what a soak needs:
// routes that carry their next hops themselves, because zebra 8.4 loses track of
// the kernel's next hop objects when links come and go, and does not install a
// route again whose objects are gone; and BFD, if the speakers have it.
func (s *site) routerConfig(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("no zebra nexthop kernel enable\n")
	for line := range strings.Lines(string(data)) {
		b.WriteString(line)
		if f := strings.Fields(line); s.bfd > 0 && len(f) == 4 && f[0] == "neighbor" && f[2] == "remote-as" {
			fmt.Fprintf(&b, " neighbor %s bfd 3 %d %[2]d\n", f[1], s.bfd.Milliseconds())
		}
	}
	return os.WriteFile(to, []byte(b.String()), 0o644)
}
