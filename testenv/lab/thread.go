package lab

import (
	"errors"
	"runtime"
	"sync"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// errThreadEnded is the result of a call that the thread did not finish.
var errThreadEnded = errors.New("the thread has ended")

// thread is an operating system thread that runs functions one at a time. Namespaces
// it enters and children it forks belong to it: a child's parent death signal comes
// when the thread ends, not the process.
type thread struct {
	calls chan func()
	quit  chan struct{}
	done  chan struct{}
	stops sync.Once
}

func newThread() *thread {
	t := &thread{calls: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
	t.start()
	return t
}

// start returns when the thread's goroutine has its thread. The goroutine stays locked
// to it, so that the runtime ends the thread with the goroutine.
func (t *thread) start() {
	locked := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end, and /proc shows it as the process: occupy it until
			// another thread is found, then hand it back.
			t.start()
			runtime.UnlockOSThread()
			close(locked)
			return
		}
		defer close(t.done)
		close(locked)
		for {
			select {
			case f := <-t.calls:
				f()
			case <-t.quit:
				return
			}
		}
	}()
	<-locked
}

// do runs f on the thread and returns its error.
func (t *thread) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case t.calls <- func() { result <- f() }:
	case <-t.done:
		return errThreadEnded
	}
	select {
	case err := <-result:
		return err
	case <-t.done: // f called runtime.Goexit, or returned just before stop
		select {
		case err := <-result:
			return err
		default:
			return errThreadEnded
		}
	}
}

// stop ends the thread after its current function.
func (t *thread) stop() {
	t.stops.Do(func() { close(t.quit) })
	<-t.done
}

// within runs f on a new thread inside the network namespace.
func within(ns netns.NsHandle, f func() error) error {
	t := newThread()
	defer t.stop()
	return t.do(func() error {
		if err := netns.Set(ns); err != nil {
			return err
		}
		return f()
	})
}

// newNetwork makes a network namespace and prepares it inside. Only the handle keeps
// it alive, until it is closed or the process ends.
func newNetwork(prepare func() error) (ns netns.NsHandle, err error) {
	t := newThread()
	defer t.stop()
	ns = netns.None()
	err = t.do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if ns, err = netns.Get(); err != nil {
			return err
		}
		return prepare()
	})
	if err != nil && ns.IsOpen() {
		err = errors.Join(err, ns.Close())
	}
	return ns, err
}
