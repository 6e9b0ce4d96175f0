//go:build e2e

package machines

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
		if err := os.WriteFile(path, []byte(f.Content), 0o600); err != nil {
			return err
		}
		for _, command := range [][]string{{"chmod", cmp.Or(f.Permissions, "0644"), path}, {"chown", cmp.Or(f.Owner, "root:root"), path}} {
			if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%q: %w: %s", command, err, out)
			}
		}
	}
	return nil
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

// TestUserData checks every user-data with cloud-init, and checks the permissions of
// keys. Files with an owner from a package must be written after its installation.
func TestUserData(t *testing.T) {
	files, err := filepath.Glob(cloudInit + "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no user-data in %s: %v", cloudInit, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(site.Context(t), "cloud-init", "schema", "--config-file", file).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), "Valid ") {
				t.Errorf("cloud-init schema: %v\n%s", err, out)
			}
			u := readUserData(t, name, masterWords(t))
			for _, f := range u.Files {
				if strings.Contains(f.Path, "key") && f.Permissions != "0600" {
					t.Errorf("%s has the permissions %q", f.Path, f.Permissions)
				}
				if f.Owner != "" && !f.Defer {
					t.Errorf("%s is written before the installation of the packages that make its owner %s", f.Path, f.Owner)
				}
			}
		})
	}
}

// TestForgottenKey uses the user-data unchanged: Herald does not start with the
// placeholder for a key.
func TestForgottenKey(t *testing.T) {
	const key = "/etc/herald/gossip.key"
	dir := t.TempDir()
	u := readUserData(t, "master-arp.yaml", nil).replace(t, heraldYAML, key, filepath.Join(dir, key))
	site.Must(t, u.replace(t, heraldYAML, "\nvips:\n", "\nnodeName: m1\nvips:\n").write(dir))
	out, err := exec.CommandContext(site.Context(t), site.Part(t, "HERALD"), "run", "--config", filepath.Join(dir, heraldYAML)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "election.keyFile: line 1 is not base64") {
		t.Errorf("with a placeholder for a key: %v\n%s", err, out)
	}
}

// TestHeraldFetch runs the user-data's script on a machine without the binary: only a
// binary with the right sum is ever installed.
func TestHeraldFetch(t *testing.T) {
	const binary, script = "/usr/local/bin/herald", "/usr/local/sbin/herald-fetch"
	words := masterWords(t)
	words["HERALD_URL"] = "http://127.0.0.1:8080/herald"
	u := readUserData(t, "master-bgp.yaml", words)
	u.Commands = nil // nothing is started
	l := site.StartTopology(t, machinesFile, nil, map[string]lab.Image{"master": u.image(t), "router": u.image(t)})
	m := l.Node("m1-speaker")
	site.Boot(t, l, m.Name())
	site.MustRun(t, m, "rm", "-f", binary)

	if _, err := site.Run(t, m, script); err == nil {
		t.Fatal("without a server the script succeeds")
	}
	right := []byte(site.ReadFile(t, site.Part(t, "HERALD")))
	answers := make(chan []byte, 2)
	answers <- right[:len(right)/2]
	answers <- right
	var listener net.Listener
	site.Must(t, m.Do(func() (err error) { listener, err = net.Listen("tcp", "127.0.0.1:8080"); return err }))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "herald", time.Time{}, bytes.NewReader(<-answers))
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()

	if _, err := site.Run(t, m, script); err == nil || !strings.Contains(err.Error(), "is not the file with the SHA-256") {
		t.Errorf("half a file: %v", err)
	}
	if _, err := site.Run(t, m, "test", "!", "-e", binary); err != nil {
		t.Errorf("half a file is at %s", binary)
	}
	site.MustRun(t, m, script)
	site.MustRun(t, m, binary, "version")
	site.Must(t, server.Close())
	<-done
	if _, err := site.Run(t, m, script); err != nil {
		t.Errorf("with the right file in place, and no server: %v", err)
	}
}
