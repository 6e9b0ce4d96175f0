// Package watch tells when a configuration file, or a file that it names, has changed.
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
	// quiet is how long a changed file must rest: its writer may not be done.
	quiet = 100 * time.Millisecond
	// rest is how long files must rest whose change waits for it.
	rest = 10 * time.Second
	// rescan is for changes that the kernel does not tell of: on network file systems, by mmap or by a mount.
	rescan = 10 * time.Second
	// maxLinks is how many symbolic links lead to a file at most, as in path_resolution(7).
	maxLinks = 40
)

// digest stands for the content of a file; that of one that cannot be read is zero.
type digest [sha256.Size]byte

func digestOf(data []byte, err error) digest {
	if err != nil {
		return digest{}
	}
	return sha256.Sum256(data)
}

// Watcher loads a configuration and tells when loading it again would read
// something else. It knows the content as it was loaded, so no change falls
// between loading and watching.
type Watcher struct {
	path   string
	opts   []config.Option
	rescan time.Duration
	loaded chan struct{} // a Load has finished since Run last looked
	held   atomic.Bool   // what the last Load read is not acted on before it has rested

	mu   sync.Mutex
	seen map[string]digest // of every file the last Load read
}

// New makes a watcher of the configuration file at path, which is loaded with opts.
func New(path string, opts ...config.Option) *Watcher {
	return &Watcher{
		path:   path,
		opts:   opts,
		rescan: rescan,
		loaded: make(chan struct{}, 1),
		seen:   map[string]digest{path: {}},
	}
}

// Load is [config.Load] of the watched file. Successful or not, it sets what later changes are measured by.
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

// Run calls notify each time the content of the configuration file, of a drop-in to it or of a
// password file that it names, has changed and come to rest: written in place,
// renamed over, or swapped by symbolic links as Kubernetes does with a
// ConfigMap. A file that somebody has open for writing is given ten seconds to be
// closed. Run waits for notify, which should call Load or have it called; until then
// every further sign of change is notified, too. If notify says that it is not done,
// it is called once more, with rested, when there was no sign of change for ten seconds,
// unless Load has been called otherwise. Where nothing has been loaded yet, the first
// notification comes at once. Run returns when ctx is done.
func (w *Watcher) Run(ctx context.Context, notify func(rested bool) (done bool)) {
	for ctx.Err() == nil {
		// The trail is laid anew each time, since a change may have turned it
		// elsewhere, and before looking, so that what happens after is seen.
		t := follow(w.files())
		w.notifyOnce(ctx, t, notify)
		t.close()
	}
}

// notifyOnce notifies if the files have changed, once they rest, and returns on the next sign of change on their trail.
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

// beingWritten reports whether a process has one of the files open for writing: then the kernel grants no
// lease to read it. Some network file systems never grant one. Of a file of another user the kernel tells
// nothing, and it counts as closed.
func (w *Watcher) beingWritten() bool {
	files := w.files()
	for _, name := range files {
		if isFolder(name) {
			list, _ := config.ReadFile(name)
			files = append(files, config.Names(list)...) // those that are new
		}
	}
	return slices.ContainsFunc(files, func(name string) bool {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for its writer
		if err != nil {
			return false
		}
		defer f.Close()
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		return errors.Is(err, unix.EAGAIN)
	})
}

// isFolder reports whether a name that was read is that of a folder, of which the drop-ins are listed.
func isFolder(name string) bool { return strings.HasSuffix(name, "/") }

func (w *Watcher) files() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.seen))
}

// changed reports whether a file differs from what was loaded.
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

// trail is every path that is passed on the way to some files: a change to any of them may change what is read.
type trail struct {
	paths  map[string]bool
	all    map[string]bool // folders of which every entry counts
	events <-chan fsnotify.Event
	errors <-chan error
	close  func()
}

// follow watches the trail to files. Where the kernel refuses, there is still the rescan.
func follow(files []string) *trail {
	t := &trail{paths: map[string]bool{}, all: map[string]bool{}, close: func() {}}
	watch := func(string) {}
	if fs, err := fsnotify.NewWatcher(); err == nil {
		t.events, t.errors = fs.Events, fs.Errors
		t.close = func() { _ = fs.Close() }
		watch = func(p string) { _ = fs.Add(p) } // what does not exist is announced by what contains it
	}
	for _, file := range files {
		end := walk(file, func(step string) {
			t.paths[step] = true
			watch(filepath.Dir(step))
		})
		t.all[end] = isFolder(file)
		watch(end) // a file that is a mount of its own has its events elsewhere than its folder
	}
	return t
}

// walk resolves file as the kernel does and returns where it ends. It visits
// each path on the way before reading what is there, so that what changes
// after a visit may be noticed by the visitor.
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
		if err != nil { // not a link, or not there
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

// wait returns on a sign of change, on loaded, and after limit at the latest, which it reports.
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

// waitForRest returns once there has been no sign of change for the quiet period and nobody writes, and after
// limit at the latest.
func (t *trail) waitForRest(ctx context.Context, limit time.Duration, beingWritten func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil && (!t.wait(ctx, nil, quiet) || beingWritten()) {
	}
}
