package bench

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/testenv/lab"
)

// herald is Herald with its defaults; with a bridge the masters know of each other by an
// election section, and nothing else differs.
type herald struct {
	binary    string // the path of bin/herald
	bridge    bool
	key       string                // of the election
	templates string                // the folder bench-bgp
	masters   map[string]heraldConf // by the name of the speaker's node
}

// heraldConf is how one master was configured.
type heraldConf struct {
	dir  string
	conf masterConf
}

func (h *herald) name() string {
	if h.bridge {
		return heraldBridge
	}
	return "herald"
}

// heraldBridge is the name of Herald with a bridge.
const heraldBridge = "herald, bridge"

func (h *herald) program() string  { return "herald" }
func (h *herald) image() lab.Image { return lab.Binary(h.binary) }

func (h *herald) configure(templates, dir string, m masterConf) error {
	h.templates = templates
	if h.bridge {
		if h.key == "" {
			var err error
			if h.key, err = election.NewKey(); err != nil {
				return err
			}
		}
		m.Others = masterNumbers()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "gossip.key"), []byte(h.key+"\n"), 0o600); err != nil {
			return err
		}
	}
	h.masters[speakerOf(m.Number)] = heraldConf{dir, m}
	return fill(templates, "herald.yaml.tmpl", dir, heraldFile, m, 0o644)
}

const heraldFile = "herald.yaml"

func (h *herald) drain(ctx context.Context, n *lab.Node) error {
	_, err := n.Run(ctx, "herald", "drain")
	return err
}

func (h *herald) undrain(ctx context.Context, n *lab.Node) error {
	_, err := n.Run(ctx, "herald", "undrain")
	return err
}

// alter puts another file in the place of the configuration and asks for a reload.
func (h *herald) alter(_ context.Context, n *lab.Node, altered bool) error {
	m := h.masters[n.Name()]
	m.conf.Altered = altered
	if err := fill(h.templates, "herald.yaml.tmpl", m.dir, heraldFile+".new", m.conf, 0o644); err != nil {
		return err
	}
	path := filepath.Join(m.dir, heraldFile)
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return n.Daemon("herald").Signal(unix.SIGHUP)
}

func (h *herald) stop(ctx context.Context, n *lab.Node) error { return n.Stop(ctx) }

func (h *herald) freeze(n *lab.Node) error { return n.Freeze() }
