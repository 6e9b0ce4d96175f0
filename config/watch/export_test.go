package watch

import "time"

// Changed reports whether a file differs from its loaded content.
func (w *Watcher) Changed() bool { return w.changed() }

// SetRescan sets the maximum time before the files are compared again.
func (w *Watcher) SetRescan(d time.Duration) { w.rescan = d }
