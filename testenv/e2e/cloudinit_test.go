//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// userDataFiles are all there are.
func userDataFiles(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(cloudInit + "*.yaml")
	must(t, err)
	if len(list) == 0 {
		t.Fatal("no user-data in " + cloudInit)
	}
	return list
}

// TestUserData has cloud-init check every user-data, and looks at who may read
// the keys in it, and when files are written whose owners come with a package.
func TestUserData(t *testing.T) {
	for _, file := range userDataFiles(t) {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
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
					t.Errorf("%s is written before the packages are there that make its owner %s", f.Path, f.Owner)
				}
			}
		})
	}
}

// TestForgottenKey takes the user-data as it is: Herald does not start with the
// placeholder for a key.
func TestForgottenKey(t *testing.T) {
	const key = "/etc/herald/gossip.key"
	dir := t.TempDir()
	u := readUserData(t, "master-arp.yaml", nil).replace(t, heraldYAML, key, filepath.Join(dir, key))
	must(t, u.replace(t, heraldYAML, "\nvips:\n", "\nnodeName: m1\nvips:\n").write(dir))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	out, err := exec.CommandContext(ctx, parts["HERALD"], "run", "--config", filepath.Join(dir, heraldYAML)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "election.keyFile: line 1 is not base64") {
		t.Errorf("with a placeholder for a key: %v\n%s", err, out)
	}
}

// TestUserDataCopies compares what the user-data has of other files, which it
// cannot refer to, with those.
func TestUserDataCopies(t *testing.T) {
	for _, c := range []struct{ userData, path, source string }{
		{"master-bgp.yaml", "/etc/systemd/system/herald.service", "../../manifests/herald.service"},
		{"master-arp.yaml", "/etc/systemd/system/herald.service", "../../manifests/herald.service"},
		{"master-local.yaml", "/etc/systemd/system/herald.service", "../../manifests/herald.service"},
		{"worker.yaml", "/etc/systemd/system/herald.service", "../../manifests/herald.service"},
		{"router.yaml", "/etc/frr/frr.conf", routers + "frr.conf"},
		{"router.yaml", "/etc/frr/daemons", routers + "frr-daemons"},
		{"router.yaml", "/etc/sysctl.d/90-herald-router.conf", routers + "sysctl.conf"},
	} {
		want, err := os.ReadFile(c.source)
		must(t, err)
		if got := readUserData(t, c.userData, nil).file(t, c.path); got != string(want) {
			t.Errorf("%s in %s is not %s: copy it there", c.path, c.userData, c.source)
		}
	}
	bgp, arp := readUserData(t, "master-bgp.yaml", nil), readUserData(t, "master-arp.yaml", nil)
	// The unit's sandbox keeps Herald from setting this itself.
	const sysctls, setting = "/etc/sysctl.d/90-herald.conf", "net.ipv4.conf.all.arp_announce = 2\n"
	for name, u := range map[string]userData{"master-bgp.yaml": bgp, "master-arp.yaml": arp} {
		loaded := slices.ContainsFunc(u.Commands, func(c []string) bool { return slices.Equal(c, []string{"sysctl", "-p", sysctls}) })
		if !strings.Contains(u.file(t, sysctls), setting) || !loaded {
			t.Errorf("%s does not set %s", name, setting)
		}
	}
	for _, other := range []string{"master-arp.yaml", "master-local.yaml", "worker.yaml"} {
		u := readUserData(t, other, nil)
		for _, path := range []string{"/etc/herald/release", "/usr/local/sbin/herald-fetch", "/etc/systemd/system/herald.service.d/fetch.conf"} {
			if bgp.file(t, path) != u.file(t, path) {
				t.Errorf("%s differs between master-bgp.yaml and %s", path, other)
			}
		}
	}
}

// TestHeraldFetch runs the user-data's script on a machine without the binary:
// none but the one with the right sum is ever in its place.
func TestHeraldFetch(t *testing.T) {
	const binary, script = "/usr/local/bin/herald", "/usr/local/sbin/herald-fetch"
	words := masterWords(t)
	words["HERALD_URL"] = "http://127.0.0.1:8080/herald"
	u := readUserData(t, "master-bgp.yaml", words)
	u.Commands = nil // nothing is started
	l := startTopology(t, machinesFile, nil, map[string]lab.Image{"master": u.image(t), "router": u.image(t)})
	m := l.Node("m1-speaker")
	boot(t, l, m.Name())
	_, err := run(t, m, "rm", "-f", binary)
	must(t, err)

	if _, err := run(t, m, script); err == nil {
		t.Fatal("without a server the script succeeds")
	}
	right, err := os.ReadFile(parts["HERALD"])
	must(t, err)
	answers := make(chan []byte, 2)
	answers <- right[:len(right)/2]
	answers <- right
	var listener net.Listener
	must(t, m.Do(func() (err error) { listener, err = net.Listen("tcp", "127.0.0.1:8080"); return err }))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "herald", time.Time{}, bytes.NewReader(<-answers))
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()

	if _, err := run(t, m, script); err == nil || !strings.Contains(err.Error(), "is not the file with the SHA-256") {
		t.Errorf("half a file: %v", err)
	}
	if _, err := run(t, m, "test", "!", "-e", binary); err != nil {
		t.Errorf("half a file is at %s", binary)
	}
	_, err = run(t, m, script)
	must(t, err)
	_, err = run(t, m, binary, "version")
	must(t, err)
	must(t, server.Close())
	<-done
	if _, err := run(t, m, script); err != nil {
		t.Errorf("with the right file in place, and no server: %v", err)
	}
}
