package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
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

// notifySystemd reports to systemd that the speaker is ready and then, if the unit has a watchdog, that it is alive,
// after each time that it could take every lock. Outside systemd it does nothing.
func (d *Daemon) notifySystemd(ctx context.Context) error {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd watchdog: %w", err)
	}
	notifyReady(d.log)
	if interval == 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(interval / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			notify(d.log, sd.SdNotifyWatchdog+"\nSTATUS="+statusLine(d.Status()))
		}
	}
}

// statusLine returns the line that systemctl status shows.
func statusLine(s admin.Status) string {
	announced := 0
	for _, v := range s.VIPs {
		if v.State == speaker.Announced {
			announced++
		}
	}
	text := fmt.Sprintf("%d of %d addresses announced", announced, len(s.VIPs))
	if len(s.Balancers) == 0 {
		return text
	}
	serving := 0
	for _, b := range s.Balancers {
		if b.Serving() > 0 {
			serving++
		}
	}
	return fmt.Sprintf("%s, %d of %d balancers have backends", text, serving, len(s.Balancers))
}

func notifyReady(log *slog.Logger)    { notify(log, sd.SdNotifyReady) }
func notifyStopping(log *slog.Logger) { notify(log, sd.SdNotifyStopping) }
func notifyReloading(log *slog.Logger) {
	notify(log, sd.SdNotifyReloading+"\n"+sd.SdNotifyMonotonicUsec())
}

func notify(log *slog.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("cannot tell systemd", "err", err)
	}
}
