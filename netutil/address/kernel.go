package address

import "github.com/herald-vip/herald/netutil/rtnetlink"

// kernel is implemented by [host]. Calls do not overlap.
type kernel interface {
	Dump() ([]link, []address, error)
	Link(index int) (link, error)
	Add(address) error
	Refresh(...address) error
	Remove(...address) error
	// Watch subscribes to changes. It need not report the caller's own Add and Refresh.
	Watch() (watcher, error)
	Close()
}

// watcher is a subscription. After an error it has lost changes and cannot be used.
type watcher interface {
	// Ready receives when Take has changes or an error.
	Ready() <-chan struct{}
	// Take returns the changes since the last call.
	Take() ([]event, error)
	Close()
}

// host is the running kernel.
type host struct {
	*rtnetlink.Conn
	watcher *rtnetlink.Watcher
}

// Watch implements kernel.
func (h host) Watch() (watcher, error) { return h.watcher.Subscribe() }
