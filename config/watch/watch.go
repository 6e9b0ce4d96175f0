// Package watch reports that a configuration file, or a file that it names, has changed.
package watch

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/wake"
)

const (
	// quiet is how long a changed file must stay unchanged: its writer may not have finished.
	quiet = 100 * time.Millisecond
	// rest is how long files must stay unchanged after an incomplete change.
	rest = 10 * time.Second
	// rescan is how often files are compared: the kernel reports no changes on network file systems, by mmap or by a mount.
	rescan = 10 * time.Second
	// maxLinks is the maximum of symbolic links on the way to a file, as in path_resolution(7).
	maxLinks = 40
)

// digest identifies the content of a file; it is zero for an unreadable file.
type digest [sha256.Size]byte

func digestOf(data []byte, err error) digest {
	if err != nil {
		return digest{}
	}
	return sha256.Sum256(data)
}

// Watcher loads a configuration and reports when loading it again would give another result. It compares with the
// content as loaded, so it misses no change between loading and watching.
type Watcher struct {
	path   string
	opts   []config.Option
	rescan time.Duration
	loaded chan struct{} // signals that a Load has finished
	held   atomic.Bool   // the last notify asked for another call once the files rest

	mu   sync.Mutex
	seen map[string]digest // of each file that the last Load read
}

// New returns a watcher of the configuration file at path, which it loads with opts.
func New(path string, opts ...config.Option) *Watcher {
	return &Watcher{
		path:   path,
		opts:   opts,
		rescan: rescan,
		loaded: make(chan struct{}, 1),
		seen:   map[string]digest{path: {}},
	}
}

// Load loads the watched file by [config.Load]. Even if it fails, later changes are relative to the content it read.
func (w *Watcher) Load() (*config.Config, error) {
	seen := map[string]digest{}
	read := config.ReadBy(func(name string) ([]byte, error) {
		data, err := config.ReadFile(name)
		seen[name] = digestOf(data, err)
		return data, err
	})
	c, err := config.Load(w.path, append(slices.Clip(w.opts), read)...)
	w.mu.Lock()
	w.seen = seen
	w.mu.Unlock()
	w.held.Store(false)
	wake.Up(w.loaded)
	return c, err
}

// Run calls notify each time the configuration file, a drop-in or a password file has changed and then stayed
// unchanged. A file may be written in place, renamed over, or swapped by symbolic links as in a Kubernetes ConfigMap.
// Run waits up to ten seconds for a process that has a file open for writing.
//
// Run waits for notify, which should call Load or cause it to be called; until then every further event is notified,
// too. If notify returns done = false, Run calls it once more, with rested = true, after ten seconds without an event,
// unless Load is called before. If nothing has been loaded yet, Run notifies at once. Run returns when ctx is done.
func (w *Watcher) Run(ctx context.Context, notify func(rested bool) (done bool)) {
	for ctx.Err() == nil {
		// A change may lead to other paths, so follow them anew each time. Do so before
		// comparing, so that no later change is missed.
		t := follow(w.files())
		w.notifyOnce(ctx, t, notify)
		t.close()
	}
}

// notifyOnce waits until the files rest, notifies if they have changed, and returns at the next event on their trail.
func (w *Watcher) notifyOnce(ctx context.Context, t *trail, notify func(rested bool) bool) {
	t.waitForRest(ctx, w.rescan, w.beingWritten)
	changed, held := w.changed(), w.held.Load()
	if held && !changed && (!t.wait(ctx, w.loaded, rest) || w.changed()) {
		return
	}
	if ctx.Err() == nil && (changed || held) {
		w.held.Store(!notify(!changed))
	}
	t.wait(ctx, w.loaded, w.rescan)
}

// beingWritten reports whether a process has one of the files open for writing: then the kernel refuses a
// read lease. Some network file systems always refuse it. Files of other users count as closed, as the
// kernel grants leases only to the owner.
func (w *Watcher) beingWritten() bool {
	files := w.files()
	for _, name := range files {
		if isFolder(name) {
			list, _ := config.ReadFile(name)
			files = append(files, config.Names(list)...) // includes new files
		}
	}
	return slices.ContainsFunc(files, func(name string) bool {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not wait for the writer of a FIFO
		if err != nil {
			return false
		}
		defer f.Close()
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		return errors.Is(err, unix.EAGAIN)
	})
}

// isFolder reports whether name is a folder of drop-ins.
func isFolder(name string) bool { return strings.HasSuffix(name, "/") }

func (w *Watcher) files() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.seen))
}

// changed reports whether a file differs from its loaded content.
func (w *Watcher) changed() bool {
	w.mu.Lock()
	seen := w.seen // replaced, never modified
	w.mu.Unlock()
	for name, old := range seen {
		if digestOf(config.ReadFile(name)) != old {
			return true
		}
	}
	return false
}

// trail watches all paths on the way to some files, including symbolic links.
type trail struct {
	paths  map[string]bool
	all    map[string]bool // folders; every entry in them counts
	events <-chan fsnotify.Event
	errors <-chan error
	close  func()
}

// follow watches the trail to files. If the kernel refuses a watch, the rescan finds changes.
func follow(files []string) *trail {
	t := &trail{paths: map[string]bool{}, all: map[string]bool{}, close: func() {}}
	watch := func(string) {}
	if fs, err := fsnotify.NewWatcher(); err == nil {
		t.events, t.errors = fs.Events, fs.Errors
		t.close = func() { _ = fs.Close() }
		watch = func(p string) { _ = fs.Add(p) } // the watch of its folder reports a path that does not exist yet
	}
	for _, file := range files {
		end := walk(file, func(step string) {
			t.paths[step] = true
			watch(filepath.Dir(step))
		})
		t.all[end] = isFolder(file)
		watch(end) // the folder of a file that is a mount point reports no events of it
	}
	return t
}

// walk resolves file as the kernel does and returns its final path. It visits each path on the way before reading it,
// so that a watch set by visit misses no change.
func walk(file string, visit func(step string)) (end string) {
	abs, err := filepath.Abs(file)
	if err != nil {
		abs = file
	}
	here, links := "/", 0
	for rest := strings.Split(abs, "/"); len(rest) > 0 && links <= maxLinks; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		step := filepath.Join(here, name)
		visit(step)
		target, err := os.Readlink(step)
		if err != nil { // not a link, or absent
			here = step
			continue
		}
		links++
		if filepath.IsAbs(target) {
			here = "/"
		}
		rest = slices.Concat(strings.Split(target, "/"), rest)
	}
	return here
}

// wait returns at an event, on loaded, or after limit. It reports whether limit has passed.
func (t *trail) wait(ctx context.Context, loaded <-chan struct{}, limit time.Duration) (rested bool) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-deadline.C:
			return true
		case <-loaded:
			return false
		case <-t.errors: // events were lost
			return false
		case event := <-t.events:
			if t.paths[event.Name] || t.all[filepath.Dir(event.Name)] {
				return false
			}
		}
	}
}

// waitForRest returns after a quiet period without events and writers, and after limit at the latest.
func (t *trail) waitForRest(ctx context.Context, limit time.Duration, beingWritten func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil && (!t.wait(ctx, nil, quiet) || beingWritten()) {
	}
}
