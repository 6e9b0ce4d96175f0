package watch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/config/watch"
	"github.com/herald-vip/herald/testenv/must"
)

// patience is the maximum time for a condition on a busy machine.
const patience = 30 * time.Second

// base is a valid file.
const base = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- name: web
  addresses: [10.99.0.10]
  announce: bgp
  checks: [apiserver]
checks:
- name: apiserver
  http: {url: "https://127.0.0.1:6443/readyz"}
bgp:
  asn: 64512
  peers:
  - address: 10.0.1.254
    asn: 64500
`

// named returns a valid file for a node of that name.
func named(name string) string {
	return strings.Replace(base, "nodeName: m1", "nodeName: "+name, 1)
}

// reloader uses a Watcher and loads at each notification.
type reloader struct {
	t     *testing.T
	watch *watch.Watcher

	mu     sync.Mutex
	config *config.Config // nil if the last load failed
	loads  int
	event  chan struct{} // after each load
}

// startReloader loads file and watches it until the end of the test.
func startReloader(t *testing.T, file string) *reloader {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	r := &reloader{t: t, watch: watch.New(file), event: make(chan struct{}, 1)}
	r.watch.SetRescan(time.Hour) // a rescan would hide a missed event
	c, err := r.watch.Load()
	must.Do(t, err)
	r.config = c
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.watch.Run(ctx, func(bool) bool { r.reload(); return true })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

func (r *reloader) reload() {
	if !r.watch.Changed() {
		r.t.Error("notified of unchanged content")
	}
	c, err := r.watch.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config = c
	r.loads++
	if err != nil {
		r.t.Logf("load %d: %v", r.loads, err)
	}
	select {
	case r.event <- struct{}{}:
	default:
	}
}

// wait waits until the last loaded configuration satisfies a condition.
func (r *reloader) wait(what string, ok func(*config.Config) bool) {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		c := r.config
		r.mu.Unlock()
		if ok(c) {
			return
		}
		select {
		case <-r.event:
		case <-deadline:
			r.t.Fatalf("not loaded within %s: %s", patience, what)
		}
	}
}

func (r *reloader) waitNode(name string) {
	r.t.Helper()
	r.wait("node "+name, func(c *config.Config) bool { return c != nil && c.NodeName == name })
}

func (r *reloader) waitFailure(what string) {
	r.t.Helper()
	r.wait(what, func(c *config.Config) bool { return c == nil })
}

// swap atomically replaces name by a symbolic link.
func swap(t *testing.T, target, name string) {
	t.Helper()
	must.Do(t, os.Symlink(target, name+".tmp"))
	must.Do(t, os.Rename(name+".tmp", name))
}

// A file may be written in place, or another one renamed over it.
func TestWatchWrites(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, file, content string){
		"in place": write,
		"renamed over": func(t *testing.T, file, content string) {
			write(t, file+".new", content)
			must.Do(t, os.Rename(file+".new", file))
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "herald.yaml")
			put(t, file, named("m1"))
			r := startReloader(t, file)
			for _, name := range []string{"m2", "m3", "m4"} {
				put(t, file, named(name))
				r.waitNode(name)
			}
		})
	}
}

// The kubelet updates a ConfigMap like this: the file is a link through ..data, and that link is swapped.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	for i := 1; i < 5; i++ {
		must.Do(t, os.MkdirAll(fmt.Sprintf("%s/..v%d", dir, i), 0o700))
		write(t, fmt.Sprintf("%s/..v%d/herald.yaml", dir, i), named(fmt.Sprint("m", i)))
	}
	must.Do(t, os.Symlink("..v1", dir+"/..data"))
	must.Do(t, os.Symlink("..data/herald.yaml", dir+"/herald.yaml"))
	r := startReloader(t, dir+"/herald.yaml")
	for i := 2; i < 5; i++ {
		swap(t, fmt.Sprintf("..v%d", i), dir+"/..data")
		must.Do(t, os.RemoveAll(fmt.Sprintf("%s/..v%d", dir, i-1)))
		r.waitNode(fmt.Sprint("m", i))
	}
}

// Links elsewhere are followed: to a file in another folder, and through a folder that is a link.
func TestWatchLinks(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(dir+"/a", 0o700))
	must.Do(t, os.MkdirAll(dir+"/b", 0o700))
	must.Do(t, os.MkdirAll(dir+"/etc", 0o700))
	write(t, dir+"/a/real.yaml", named("m1"))
	write(t, dir+"/b/real.yaml", named("m2"))
	must.Do(t, os.Symlink("../a", dir+"/etc/current"))
	must.Do(t, os.Symlink(dir+"/etc/current/real.yaml", dir+"/herald.yaml"))
	r := startReloader(t, dir+"/herald.yaml")

	swap(t, dir+"/b", dir+"/etc/current")
	r.waitNode("m2")
	write(t, dir+"/b/real.yaml", named("m3"))
	r.waitNode("m3")
	write(t, dir+"/other.yaml", named("m4"))
	swap(t, "other.yaml", dir+"/herald.yaml")
	r.waitNode("m4")
}

func TestWatchFolderReplaced(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(dir+"/a/b", 0o700))
	write(t, dir+"/a/b/herald.yaml", named("m1"))
	r := startReloader(t, dir+"/a/b/herald.yaml")

	must.Do(t, os.Rename(dir+"/a", dir+"/old"))
	r.waitFailure("folder is gone")
	must.Do(t, os.MkdirAll(dir+"/a/b", 0o700))
	write(t, dir+"/a/b/herald.yaml", named("m2"))
	r.waitNode("m2")
	write(t, dir+"/a/b/herald.yaml", named("m3"))
	r.waitNode("m3")
}

// Drop-ins are added, changed and removed, including the first and the last. A bad one is noticed as well.
func TestWatchDropIns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "herald.yaml")
	write(t, file, named("m1"))
	r := startReloader(t, file)
	checks := func(want ...string) {
		t.Helper()
		r.wait(fmt.Sprint("checks ", want), func(c *config.Config) bool {
			var got []string
			if c != nil {
				for _, k := range c.Checks {
					got = append(got, k.Name)
				}
			}
			return slices.Equal(got, append([]string{"apiserver"}, want...))
		})
	}
	check := func(name string) string { return "checks: [{name: " + name + ", file: {path: /flag}}]\n" }
	must.Do(t, os.MkdirAll(file+".d", 0o700))
	checks()
	write(t, file+".d/b.yaml", check("b"))
	checks("b")
	write(t, file+".d/a.yaml.new", check("a"))
	must.Do(t, os.Rename(file+".d/a.yaml.new", file+".d/a.yaml"))
	checks("a", "b")
	write(t, file+".d/b.yaml", check("c"))
	checks("a", "c")
	write(t, file+".d/b.yaml", "bgp: {}\n")
	r.waitFailure("a section that a drop-in may not have")
	must.Do(t, os.Remove(file+".d/b.yaml"))
	checks("a")
	must.Do(t, os.RemoveAll(file+".d"))
	checks()
}

func TestWatchBadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "herald.yaml")
	write(t, file, named("m1"))
	r := startReloader(t, file)
	write(t, file, "vips: [")
	r.waitFailure("bad file")
	must.Do(t, os.Remove(file))
	write(t, file, named("m2"))
	r.waitNode("m2")
}

// A password file is watched from the load that names it.
func TestWatchPassword(t *testing.T) {
	dir := t.TempDir()
	file, passwordFile := filepath.Join(dir, "herald.yaml"), filepath.Join(dir, "password")
	content := strings.Replace(base, "asn: 64500", "asn: 64500\n    passwordFile: "+passwordFile, 1)
	write(t, passwordFile, "one")
	write(t, file, named("m0"))
	r := startReloader(t, file)
	write(t, file, content)
	hasPassword := func(want string) {
		t.Helper()
		r.wait("password "+want, func(c *config.Config) bool {
			return c != nil && len(c.BGP.Peers) > 0 && c.BGP.Peers[0].Password == want
		})
	}
	hasPassword("one")
	write(t, passwordFile, "two")
	hasPassword("two")
	must.Do(t, os.Remove(passwordFile))
	r.waitFailure("password is gone")
	write(t, passwordFile, "three")
	hasPassword("three")
}

// Writing the same content, or other files in the folder, is not notified. The reloader checks each notification.
func TestWatchUnchangedContent(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "herald.yaml")
	write(t, file, named("m1"))
	r := startReloader(t, file)
	for i := range 20 {
		write(t, file, named("m1"))
		write(t, file+".new", named("m1"))
		must.Do(t, os.Rename(file+".new", file))
		write(t, filepath.Join(dir, fmt.Sprint("other", i)), "x")
	}
	write(t, file, named("m2"))
	r.waitNode("m2")
}

// A change between loading and watching is not lost. Without events, a rescan finds changes: a file that has never been
// loaded counts as changed each time.
func TestWatchFromTheStart(t *testing.T) {
	for want, change := range map[int]func(w *watch.Watcher, file string){
		1: func(w *watch.Watcher, file string) {
			must.Get[*config.Config](t)(w.Load())
			write(t, file, named("m2"))
		},
		3: func(w *watch.Watcher, _ string) { w.SetRescan(10 * time.Millisecond) },
	} {
		file := filepath.Join(t.TempDir(), "herald.yaml")
		write(t, file, named("m1"))
		w := watch.New(file)
		change(w, file)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		notified := 0
		w.Run(ctx, func(bool) bool {
			if notified++; notified == want {
				cancel()
			}
			return true
		})
		if notified != want {
			t.Errorf("notified %d times within %s, want %d", notified, patience, want)
		}
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(content), 0o600))
}
