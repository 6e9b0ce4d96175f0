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

// lockName is the name, in the network namespace, of the socket that is the node's lock. The kernel
// frees it when the process ends, and no file can be removed to lift it.
const lockName = "@herald"

// lock makes this the only Herald of its network namespace, where two would take each other's addresses
// off, until unlock is called. Any user can take the name: only root's, or that of this user, is a lock.
func lock(log *slog.Logger) (unlock func(), err error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockName, Net: "unix"})
	if err == nil {
		var answering sync.WaitGroup
		answering.Go(func() { // those that ask whose the lock is must not fill its queue
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
		log.Warn("somebody keeps the name of the node's lock: herald runs without it", "name", lockName, "err", err)
	case owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		log.Warn("another user keeps the name of the node's lock: herald runs without it", "name", lockName, "process", owner.Pid, "user", owner.Uid)
	default:
		where := fmt.Sprintf("process %d", owner.Pid)
		if owner.Pid == 0 {
			where = "a process that this one cannot see"
		}
		return nil, fmt.Errorf("another herald runs on this node (%s), which runs only one: end that one first", where)
	}
	return func() {}, nil
}

// lockOwner is who listens on the lock. The process is 0 if this one cannot see it.
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
