package watch

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/must"
)

func TestWaitForRest(t *testing.T) {
	const step = 80 * time.Millisecond // less than the quiet period
	for name, tt := range map[string]struct {
		events int // one per step
		file   string
		limit  time.Duration
		want   time.Duration
	}{
		"silence":         {0, "/f", time.Minute, quiet},
		"a burst":         {10, "/f", time.Minute, 10*step + quiet},
		"another's burst": {10, "/other", time.Minute, quiet},
		"without end":     {1000, "/f", 5 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := make(chan fsnotify.Event)
				tr := &trail{paths: map[string]bool{"/f": true}, events: events}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range tt.events {
						time.Sleep(step)
						select {
						case events <- fsnotify.Event{Name: tt.file}:
						case <-ctx.Done():
							return
						}
					}
				}()
				start := time.Now()
				tr.waitForRest(ctx, tt.limit, func() bool { return false })
				if got := time.Since(start); got != tt.want {
					t.Errorf("settled after %s, want %s", got, tt.want)
				}
				cancel()
				<-done
			})
		})
	}
}

func TestWait(t *testing.T) {
	for name, tt := range map[string]struct {
		cancelled, loaded, lost bool
		event                   string // the file of one
		want                    time.Duration
	}{
		"nothing":         {want: time.Minute},
		"cancelled":       {cancelled: true},
		"loaded":          {loaded: true},
		"events lost":     {lost: true},
		"event":           {event: "/f"},
		"another's event": {event: "/other", want: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				loaded, events, errors := make(chan struct{}, 1), make(chan fsnotify.Event, 1), make(chan error, 1)
				if tt.cancelled {
					cancel()
				}
				if tt.loaded {
					loaded <- struct{}{}
				}
				if tt.lost {
					errors <- fsnotify.ErrEventOverflow
				}
				if tt.event != "" {
					events <- fsnotify.Event{Name: tt.event}
				}
				tr := &trail{paths: map[string]bool{"/f": true}, events: events, errors: errors}
				start := time.Now()
				rested := tr.wait(ctx, loaded, time.Minute)
				if got := time.Since(start); got != tt.want || rested != (got == time.Minute) {
					t.Errorf("waited %s, want %s; rested: %t", got, tt.want, rested)
				}
			})
		})
	}
}

// Nothing is read while a process writes, up to the limit.
func TestBeingWritten(t *testing.T) {
	for name, tt := range map[string]struct{ closed, want time.Duration }{
		"no writer":           {0, quiet},
		"closed after a time": {4*time.Second + quiet/2, 4*time.Second + quiet},
		"never closed":        {time.Hour, rescan},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "herald.yaml")
			synctest.Test(t, func(t *testing.T) {
				f, err := os.Create(file)
				must.Do(t, err)
				closing := time.AfterFunc(tt.closed, func() { f.Close() })
				synctest.Wait()
				start := time.Now()
				new(trail).waitForRest(t.Context(), rescan, New(file).beingWritten)
				if got := time.Since(start); got.Round(quiet) != tt.want {
					t.Errorf("waited %s, want %s", got, tt.want)
				}
				if closing.Stop() {
					f.Close()
				}
			})
		})
	}
}

// A change is notified when the files rest, but not if the watcher is stopped before. An incomplete one is notified again
// after ten seconds without events, unless it was loaded meanwhile.
func TestRested(t *testing.T) {
	type call struct {
		After  time.Duration
		Rested bool
	}
	const seconds = time.Second
	for name, tt := range map[string]struct {
		write time.Duration // when the rest of the file is written; if negative, without an event
		touch time.Duration // when an event occurs without a change
		load  time.Duration // when another caller loads it
		burst int           // of events, one per half a quiet period
		stop  time.Duration // when ctx is done; 30s by default
		want  []call
	}{
		"after a burst":       {burst: 3, want: []call{{3*quiet/2 + quiet, false}, {3*quiet/2 + 2*quiet + rest, true}}},
		"stopped in a burst":  {burst: 3, stop: quiet},
		"at rest":             {want: []call{{quiet, false}, {2*quiet + rest, true}}},
		"the rest follows":    {write: 4 * seconds, want: []call{{quiet, false}, {4*seconds + quiet, false}}},
		"the same once more":  {touch: 4 * seconds, want: []call{{quiet, false}, {4*seconds + quiet + rest, true}}},
		"loaded by a signal":  {load: 4 * seconds, want: []call{{quiet, false}}},
		"the rest, untold of": {write: -4 * seconds, want: []call{{quiet, false}, {2*quiet + rest + quiet, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "herald.yaml")
			put := func(content string) {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Error(err)
				}
			}
			put("whole")
			synctest.Test(t, func(t *testing.T) {
				w := New(file)
				_, _ = w.Load() // not a configuration, which does not matter here
				put("half")
				<-w.loaded
				events := make(chan fsnotify.Event, 3)
				at := func(when time.Duration, do func()) {
					if when != 0 {
						time.AfterFunc(max(when, -when), do)
					}
				}
				event := func() { events <- fsnotify.Event{Name: file} }
				at(tt.write, func() {
					put("whole, and more")
					if tt.write > 0 {
						event()
					}
				})
				at(tt.touch, event)
				for i := range tt.burst {
					at(time.Duration(i+1)*quiet/2, event)
				}
				at(tt.load, func() { _, _ = w.Load() })
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tt.stop, 30*time.Second))
				defer cancel()
				start := time.Now()
				var got []call
				for ctx.Err() == nil {
					w.notifyOnce(ctx, &trail{paths: map[string]bool{file: true}, events: events}, func(rested bool) bool {
						got = append(got, call{time.Since(start), rested})
						_, _ = w.Load()
						return rested || len(got) > 1
					})
				}
				if diff := gocmp.Diff(tt.want, got); diff != "" {
					t.Errorf("notified (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Every way to change a file causes an event on the trail.
func TestFollow(t *testing.T) {
	put := func(name, content string) {
		t.Helper()
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must.Do(t, os.WriteFile(name, []byte(content), 0o600))
	}
	for name, change := range map[string]func(dir, elsewhere string){
		"written":               func(dir, _ string) { put(dir+"/etc/..v1/file", "two") },
		"written elsewhere":     func(_, elsewhere string) { put(elsewhere+"/hard", "two") },
		"mode changed":          func(dir, _ string) { must.Do(t, os.Chmod(dir+"/etc/..v1/file", 0o640)) },
		"removed":               func(dir, _ string) { must.Do(t, os.Remove(dir+"/etc/..v1/file")) },
		"renamed over":          func(dir, elsewhere string) { must.Do(t, os.Rename(elsewhere+"/other", dir+"/etc/..v1/file")) },
		"link renamed over":     func(dir, elsewhere string) { must.Do(t, os.Rename(elsewhere+"/link", dir+"/etc/..data")) },
		"file's link renamed":   func(dir, elsewhere string) { must.Do(t, os.Rename(elsewhere+"/link", dir+"/etc/file")) },
		"folder moved":          func(dir, _ string) { must.Do(t, os.Rename(dir+"/etc", dir+"/old")) },
		"folder's folder moved": func(dir, _ string) { must.Do(t, os.Rename(dir, dir+".old")) },
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere, dir := t.TempDir(), t.TempDir()+"/dir"
			put(dir+"/etc/..v1/file", "one")
			put(elsewhere+"/other", "two")
			must.Do(t, os.Link(dir+"/etc/..v1/file", elsewhere+"/hard"))
			must.Do(t, os.Symlink("..v2", elsewhere+"/link"))
			must.Do(t, os.Symlink("..v1", dir+"/etc/..data"))
			must.Do(t, os.Symlink("..data/file", dir+"/etc/file"))
			tr := follow([]string{dir + "/etc/file"})
			defer tr.close()
			change(dir, elsewhere)
			deadline := time.After(30 * time.Second)
			for {
				select {
				case event := <-tr.events:
					if tr.paths[event.Name] {
						return
					}
				case err := <-tr.errors:
					t.Fatal(err)
				case <-deadline:
					t.Fatal("no event within 30s")
				}
			}
		})
	}
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{
		"file":   "./..data/file",
		"..data": "v1",
		"abs":    dir + "/v1/../v1/file",
		"loop":   "loop",
		"broken": "none/file",
	} {
		must.Do(t, os.Symlink(target, dir+"/"+name))
	}
	must.Do(t, os.Mkdir(dir+"/v1", 0o700))
	record := func(name string) (steps []string, end string) {
		end = walk(name, func(step string) { steps = append(steps, step) })
		return steps, end
	}
	above, _ := record(dir)
	for name, want := range map[string][]string{
		"file":   {"/file", "/..data", "/v1", "/v1/file"},
		"v1/x":   {"/v1", "/v1/x"},
		"broken": {"/broken", "/none", "/none/file"},
	} {
		got, end := record(dir + "/" + name)
		all := slices.Clone(above)
		for _, w := range want {
			all = append(all, dir+w)
		}
		if diff := gocmp.Diff(all, got); diff != "" {
			t.Errorf("steps to %s (-want +got):\n%s", name, diff)
		}
		if want := all[len(all)-1]; end != want {
			t.Errorf("%s ends at %s, want %s", name, end, want)
		}
	}
	if _, end := record(dir + "/abs"); end != dir+"/v1/file" {
		t.Errorf("abs ends at %s, want %s", end, dir+"/v1/file")
	}
	if steps, _ := record(dir + "/loop"); len(steps) > len(above)+maxLinks+1 {
		t.Errorf("%d steps around a loop", len(steps))
	}
}
