package config

import (
	"context"
	"crypto/sha256"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long a changed file must rest: whoever writes it may not be done.
	quiet = 100 * time.Millisecond
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
	opts   []Option
	rescan time.Duration
	loaded chan struct{} // a Load has finished since Run last looked

	mu   sync.Mutex
	seen map[string]digest // of every file the last Load read
}

// NewWatcher makes a watcher of the configuration file at path, which is loaded with opts.
func NewWatcher(path string, opts ...Option) *Watcher {
	return &Watcher{
		path:   path,
		opts:   opts,
		rescan: rescan,
		loaded: make(chan struct{}, 1),
		seen:   map[string]digest{path: {}},
	}
}

// Load is [Load] of the watched file. Successful or not, it sets what later changes are measured by.
func (w *Watcher) Load() (*Config, error) {
	seen := map[string]digest{}
	c, err := load(w.path, func(name string) ([]byte, error) {
		data, err := readFile(name)
		seen[name] = digestOf(data, err)
		return data, err
	}, w.opts...)
	w.mu.Lock()
	w.seen = seen
	w.mu.Unlock()
	select {
	case w.loaded <- struct{}{}:
	default:
	}
	return c, err
}

// Run calls notify each time the content of the configuration file, or of a
// password file that it names, has changed and come to rest: written in place,
// renamed over, or swapped by symbolic links as Kubernetes does with a
// ConfigMap. It waits for notify, which should call Load or have it called;
// until then every further sign of change is notified, too. Where nothing has
// been loaded yet, the first notification comes at once. Run returns when ctx
// is done.
func (w *Watcher) Run(ctx context.Context, notify func()) {
	for ctx.Err() == nil {
		// The trail is laid anew each time, since a change may have turned it
		// elsewhere, and before looking, so that what happens after is seen.
		t := follow(w.files())
		w.look(ctx, t, notify)
		t.close()
	}
}

// look notifies if the files have changed, once they rest, and returns on the next sign of change on their trail.
func (w *Watcher) look(ctx context.Context, t *trail, notify func()) {
	t.settle(ctx, w.rescan)
	if ctx.Err() == nil && w.changed() {
		notify()
	}
	t.wait(ctx, w.loaded, w.rescan)
}

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
		if digestOf(readFile(name)) != old {
			return true
		}
	}
	return false
}

// trail is every path that is passed on the way to some files: a change to any of them may change what is read.
type trail struct {
	paths  map[string]bool
	events <-chan fsnotify.Event
	errors <-chan error
	close  func()
}

// follow watches the trail to files. Where the kernel refuses, there is still the rescan.
func follow(files []string) *trail {
	t := &trail{paths: map[string]bool{}, close: func() {}}
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

// wait returns on a sign of change, on loaded, and after rescan at the latest.
func (t *trail) wait(ctx context.Context, loaded <-chan struct{}, rescan time.Duration) {
	deadline := time.NewTimer(rescan)
	defer deadline.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			return
		case <-loaded:
			return
		case <-t.errors: // events were lost
			return
		case event := <-t.events:
			if t.paths[event.Name] {
				return
			}
		}
	}
}

// settle returns once there has been no sign of change for the quiet period, and after limit at the latest.
func (t *trail) settle(ctx context.Context, limit time.Duration) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	rest := time.NewTimer(quiet)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			return
		case <-rest.C:
			return
		case <-t.errors:
		case event := <-t.events:
			if t.paths[event.Name] {
				rest.Reset(quiet)
			}
		}
	}
}
