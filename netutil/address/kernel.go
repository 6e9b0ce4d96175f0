package address

import "github.com/herald-vip/herald/netutil/rtnetlink"

// kernel is a [rtnetlink.Conn] and a watcher. Calls do not overlap.
type kernel interface {
	Dump() ([]link, []address, error)
	Link(index int) (link, error)
	Add(address) error
	Refresh(...address) error
	Remove(...address) error
	// Watch reports what changes from now on, but need not report the caller's own
	// Add and Refresh.
	Watch() (watcher, error)
	Close()
}

// watcher is a subscription. It is useless after an error, as changes were lost.
type watcher interface {
	// Ready receives when there is something to take.
	Ready() <-chan struct{}
	// Take returns the changes since the last call.
	Take() ([]event, error)
	Close()
}

// host is the kernel itself.
type host struct {
	*rtnetlink.Conn
	watcher *rtnetlink.Watcher
}

// Watch implements kernel.
func (h host) Watch() (watcher, error) { return h.watcher.Subscribe() }
