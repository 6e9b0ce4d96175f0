package watch

import "time"

// Changed reports whether a file differs from what was loaded.
func (w *Watcher) Changed() bool { return w.changed() }

// SetRescan sets how long to wait at most before looking at the files again.
func (w *Watcher) SetRescan(d time.Duration) { w.rescan = d }
