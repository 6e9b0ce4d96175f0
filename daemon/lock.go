package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// lockName is the abstract Unix socket, in the network namespace, that locks the node. The kernel frees it when the
// process ends, and there is no file to remove.
const lockName = "@herald"

// lock makes this the only Herald of its network namespace until unlock is called: two would remove each other's
// addresses. Any user can take the name, but only root or this user counts as a holder of the lock.
func lock(log *slog.Logger) (unlock func(), err error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockName, Net: "unix"})
	if err == nil {
		var answering sync.WaitGroup
		answering.Go(func() { // clients that ask for the owner must not fill the queue
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		})
		return func() { l.Close(); answering.Wait() }, nil
	}
	if !errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("lock the node: %w", err)
	}
	owner, err := lockOwner()
	switch {
	case err != nil:
		log.Warn("another process uses the name of the node's lock: herald runs without it", "name", lockName, "err", err)
	case owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		log.Warn("another user uses the name of the node's lock: herald runs without it", "name", lockName, "process", owner.Pid, "user", owner.Uid)
	default:
		where := fmt.Sprintf("process %d", owner.Pid)
		if owner.Pid == 0 {
			where = "a process that this one cannot see"
		}
		return nil, fmt.Errorf("another herald runs on this node (%s), which runs only one: end that one first", where)
	}
	return func() {}, nil
}

// lockOwner returns the process that listens on the lock. Its PID is 0 if it is in another PID namespace.
func lockOwner() (*unix.Ucred, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: lockName, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var owner *unix.Ucred
	asked := raw.Control(func(fd uintptr) { owner, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return owner, errors.Join(asked, err)
}
