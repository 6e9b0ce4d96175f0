//go:build e2e

package machines

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// userDataFiles returns all user-data files.
func userDataFiles(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(cloudInit + "*.yaml")
	site.Must(t, err)
	if len(list) == 0 {
		t.Fatal("no user-data in " + cloudInit)
	}
	return list
}

// TestUserData checks every user-data with cloud-init, and checks the permissions of
// keys. Files with an owner from a package must be written after its installation.
func TestUserData(t *testing.T) {
	for _, file := range userDataFiles(t) {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), site.Soon)
			defer cancel()
			out, err := exec.CommandContext(ctx, "cloud-init", "schema", "--config-file", file).CombinedOutput()
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
	ctx, cancel := context.WithTimeout(t.Context(), site.Soon)
	defer cancel()
	out, err := exec.CommandContext(ctx, site.Part(t, "HERALD"), "run", "--config", filepath.Join(dir, heraldYAML)).CombinedOutput()
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
