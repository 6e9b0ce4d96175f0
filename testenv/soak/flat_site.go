package soak

import (
	"bytes"
	"context"
	_ "embed"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

//go:embed flat.yaml.tmpl
var flatTemplate string

// flatVIPs are the VIP's addresses in flat.clab.yml.
func flatVIPs() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.4.0.10"), netip.MustParseAddr("fd00:4::10")}
}

// newFlatSite lays out the flat topology with configurations of its own, and
// boots nothing.
func newFlatSite(ctx context.Context, log *slog.Logger, o FlatOptions) (*site, error) {
	s := &site{flat: true, configs: filepath.Join(o.Dir, "configs")}
	for i, m := range masters {
		if err := s.configureFlat(filepath.Dir(o.Topology), m, i+1, o.Lease); err != nil {
			return nil, err
		}
	}
	data, err := os.ReadFile(o.Topology)
	if err != nil {
		return nil, err
	}
	variables := map[string]string{"FLAT_DIR": s.configs}
	topology, err := clab.Parse(o.Topology, data, func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
	if err != nil {
		return nil, err
	}
	for i, n := range topology.Nodes {
		if strings.HasSuffix(n.Name, "-speaker") {
			topology.Nodes[i].Env = map[string]string{"GORACE": "exitcode=0"}
		}
	}
	s.Lab, err = lab.Start(ctx, log, topology, lab.Options{Hold: true, Dir: o.Dir, Images: map[string]lab.Image{
		"herald":         speaker(o.Herald),
		"herald-testenv": lab.Binary(o.Testenv),
	}})
	return s, err
}

// configureFlat writes a master's configuration, with the topology's key.
func (s *site) configureFlat(topologies, master string, index int, lease time.Duration) error {
	dir := s.config(master)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(topologies, "flat", master, "gossip.key"))
	if err != nil {
		return err
	}
	t, err := template.New("flat.yaml").Parse(flatTemplate)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, struct {
		Index int
		Lease time.Duration
	}{index, lease}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "gossip.key"), key, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "herald.yaml"), b.Bytes(), 0o644)
}
