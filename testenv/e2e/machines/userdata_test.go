//go:build e2e

package machines

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// The files under test.
const (
	cloudInit = "../../../manifests/cloud-init/"
	routers   = "../../../manifests/routers/"
	// machinesFile is the topology for their images.
	machinesFile = "testdata/machines.clab.yml"
)

// userData holds the cloud-init modules that these files use.
type userData struct {
	Packages []string
	Files    []userFile `yaml:"write_files"`
	Commands [][]string `yaml:"runcmd"`
}

// userFile is one entry of write_files.
type userFile struct {
	Path, Content string
	// Owner is user:group, and Permissions octal; by default root and 0644.
	Owner, Permissions string
	// Defer makes cloud-init write the file after the packages are installed.
	Defer bool
}

// fill replaces the placeholders of the user-data, as a sed script would.
type fill map[string]string

// readUserData reads one of the files of manifests/cloud-init as cloud-init does, with
// its placeholders in @ replaced. A placeholder without a value is an error.
func readUserData(t *testing.T, name string, words fill) userData {
	t.Helper()
	text := site.ReadFile(t, cloudInit+name)
	for word, value := range words {
		text = strings.ReplaceAll(text, "@"+word+"@", value)
	}
	var u userData
	site.Must(t, yaml.UnmarshalWithOptions([]byte(text), &u, yaml.Strict()))
	return u
}

// masterWords returns the values for a master that has this herald in its image.
func masterWords(t *testing.T) fill {
	t.Helper()
	sum := sha256.Sum256([]byte(site.ReadFile(t, site.Part(t, "HERALD"))))
	return fill{
		"HERALD_URL":    "http://nowhere.invalid/herald",
		"HERALD_SHA256": hex.EncodeToString(sum[:]),
		"GOSSIP_KEY":    "xZ++1GCzQm4nOPeHhRMNgmRXPCpGjkwCtMeDXEk/OYU=",
	}
}

// file returns the content of the file with this path.
func (u userData) file(t *testing.T, path string) string {
	t.Helper()
	i := slices.IndexFunc(u.Files, func(f userFile) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("the user-data writes no %s", path)
	}
	return u.Files[i].Content
}

// replace replaces old, which must occur, in a file.
func (u userData) replace(t *testing.T, path, old, new string) userData {
	t.Helper()
	if !strings.Contains(u.file(t, path), old) {
		t.Fatalf("%s has no %q", path, old)
	}
	u.Files = slices.Clone(u.Files)
	for i, f := range u.Files {
		if f.Path == path {
			u.Files[i].Content = strings.ReplaceAll(f.Content, old, new)
		}
	}
	return u
}

// write writes the files below a folder of the host.
func (u userData) write(dir string) error {
	for _, f := range u.Files {
		path := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := uint64(0o644)
		if f.Permissions != "" {
			var err error
			if mode, err = strconv.ParseUint(f.Permissions, 8, 32); err != nil {
				return fmt.Errorf("permissions of %s: %w", f.Path, err)
			}
		}
		if err := os.WriteFile(path, []byte(f.Content), 0o600); err != nil {
			return err
		}
		if err := os.Chmod(path, os.FileMode(mode)); err != nil {
			return err
		}
		if err := chown(path, f.Owner); err != nil {
			return err
		}
	}
	return nil
}

// chown gives the file to an owner of the form user:group, unless it is empty.
func chown(path, owner string) error {
	if owner == "" {
		return nil
	}
	name, _, _ := strings.Cut(owner, ":")
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return os.Chown(path, uid, gid)
}

// image returns the image of a machine set up by the user-data: at every boot it
// writes the files anew, and then runs the commands in order. For systemd's part it
// runs the unit's program.
func (u userData) image(t *testing.T) lab.Image {
	t.Helper()
	const seed = "/run/user-data"
	dir := t.TempDir()
	site.Must(t, u.write(dir))
	return func(n clab.Node) (lab.Program, error) {
		p := lab.Program{
			Binds:   []clab.Bind{{Source: dir, Target: seed, ReadOnly: true}},
			Prepare: [][]string{{"cp", "-a", seed + "/.", "/"}},
		}
		for _, argv := range u.Commands {
			if argv[0] != "systemctl" {
				p.Prepare = append(p.Prepare, argv)
				continue
			}
			unit, err := u.unit(n, dir, argv)
			if err != nil {
				return p, err
			}
			p.Binds = append(p.Binds, unit.Binds...)
			p.Prepare = append(p.Prepare, unit.Prepare...)
			p.Daemons = append(p.Daemons, unit.Daemons...)
			p.Finish = append(p.Finish, unit.Finish...)
		}
		return p, nil
	}
}

// unit returns the program that a call of systemctl starts: none, a router, or herald as in its
// unit.
func (u userData) unit(n clab.Node, dir string, systemctl []string) (lab.Program, error) {
	switch strings.Join(systemctl[1:], " ") {
	case "daemon-reload", "enable frr.service":
		return lab.Program{}, nil
	case "restart frr.service":
		n.Binds = append(slices.Clone(n.Binds), clab.Bind{Source: filepath.Join(dir, "/etc/frr/daemons"), Target: "/etc/frr/daemons"})
		return lab.FRR(n)
	case "restart bird.service":
		return lab.BIRD(n)
	case "enable --now --no-block herald.service":
		p, err := site.Images()["herald"](n)
		if err != nil {
			return p, err
		}
		p.Prepare = u.directives("herald.service", "ExecStartPre")
		start := u.directives("herald.service", "ExecStart")
		if len(start) != 1 {
			return p, fmt.Errorf("herald.service has %d times ExecStart", len(start))
		}
		p.Daemons = []lab.Daemon{{Name: "herald", Argv: start[0]}}
		return p, nil
	}
	return lab.Program{}, fmt.Errorf("the lab does not support the command %q", systemctl)
}

// directives returns the commands of a directive in a unit and its drop-ins.
func (u userData) directives(unit, key string) (list [][]string) {
	path := "/etc/systemd/system/" + unit
	for _, f := range u.Files {
		if f.Path != path && !strings.HasPrefix(f.Path, path+".d/") {
			continue
		}
		for line := range strings.Lines(f.Content) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && k == key {
				list = append(list, strings.Fields(strings.TrimLeft(v, "+-@!:")))
			}
		}
	}
	return list
}
