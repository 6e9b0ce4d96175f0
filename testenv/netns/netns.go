// Package netns gives tests fresh network namespaces, and threads inside them.
package netns

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// New makes a network namespace with lo up, and a netlink handle in it. It lasts as
// long as the test. It needs root.
func New(t testing.TB) (netns.NsHandle, *netlink.Handle) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root for network namespaces: run with sudo")
	}
	var ns netns.NsHandle
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		var err error
		ns, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	admin, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatalf("reach the namespace's kernel: %v", err)
	}
	t.Cleanup(func() {
		admin.Close()
		_ = ns.Close()
	})
	lo, err := admin.LinkByName("lo")
	if err == nil {
		err = admin.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatalf("set lo up: %v", err)
	}
	return ns, admin
}

var errEnded = errors.New("the function in the network namespace did not return: it may have failed the test")

// In runs f on a separate thread inside ns. It returns an error if f ends its
// goroutine, as [testing.T.FailNow] does.
func In(ns netns.NsHandle, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock, as above
		err := errEnded
		defer func() { done <- err }()
		if failed := netns.Set(ns); failed != nil {
			err = failed
			return
		}
		err = f()
	}()
	return <-done
}

// ProtectSettings makes /proc/sys read-only for the calling thread, as in a pod. The thread must end with its goroutine.
func ProtectSettings() error {
	const settings = "/proc/sys"
	return errors.Join(
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(settings, settings, "", unix.MS_BIND, ""),
		unix.Mount("", settings, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
	)
}
