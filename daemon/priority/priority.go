// Package priority asks the kernel to put this process before others when a
// node is busy: its processor ([Realtime]), its memory ([Realtime] and
// [Protect]). A speaker that is not run for some ten milliseconds looks dead to
// its BFD peers.
package priority

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// level is the lowest of real time: before all that is not, and behind the
	// kernel's own threads and processes that ask for more.
	level = 1
	// lastKilled is the lowest score but one: the lowest would exempt the
	// process altogether, even from a limit of its own cgroup.
	lastKilled = -999
	// lowEnough is what is left as it is: the kubelet gives -997 to node-critical pods,
	// which have no right to lower it.
	lowEnough = -900
)

// Realtime puts all threads of the process, and those it starts from now on,
// under the SCHED_RR policy, and keeps their memory from being paged out. It
// does what it can; the error says what the host does not permit. Both are
// bounded by the host: real time by /proc/sys/kernel/sched_rt_runtime_us.
func Realtime() error {
	var errs []error
	switch err := schedule(); {
	case errors.Is(err, unix.EPERM) && has(unix.CAP_SYS_NICE):
		errs = append(errs, fmt.Errorf("real-time scheduling: %w though the process has CAP_SYS_NICE: "+
			"give its cgroup time in cpu.rt_runtime_us, or run it outside of a user namespace", err))
	case err != nil:
		errs = append(errs, fmt.Errorf("real-time scheduling: %w: give the process CAP_SYS_NICE", err))
	}
	if err := lockMemory(); err != nil {
		errs = append(errs, fmt.Errorf("lock memory: %w: give the process CAP_IPC_LOCK", err))
	}
	return errors.Join(errs...)
}

// schedule makes every thread SCHED_RR. Under SCHED_FIFO a thread that waits for
// another of the process without sleeping, as Go's runtime does for moments, may keep it
// from ever running; in turns it cannot. A new thread inherits the policy of
// the one that starts it, so it is done when a pass over all of them finds
// nothing to change.
func schedule() error {
	for {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		changed := false
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			switch done, err := scheduleThread(tid); {
			case errors.Is(err, unix.ESRCH): // it has ended
			case err != nil:
				return err
			case done:
				changed = true
			}
		}
		if !changed {
			return nil
		}
	}
}

// scheduleThread reports whether there was anything to do.
func scheduleThread(tid int) (bool, error) {
	now, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return false, err
	}
	if now.Policy == unix.SCHED_RR {
		return false, nil
	}
	return true, unix.SchedSetAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_RR, Priority: level}, 0)
}

// lockMemory locks pages as they are first used. Without the capability it is
// not tried: under a limit the lock succeeds, and the first allocation beyond
// the limit ends the process.
func lockMemory() error {
	if !has(unix.CAP_IPC_LOCK) {
		return unix.EPERM
	}
	return unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
}

// has says whether the process has one of the first 32 capabilities.
func has(capability int) bool {
	var sets [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0])
	return err == nil && sets[0].Effective&(1<<capability) != 0
}

// Protect asks the kernel to end other processes first when memory runs out,
// unless it has been asked already: a score of -900 or lower stays. An error means
// that the host does not permit it.
func Protect() error { return protect("/proc/self/oom_score_adj") }

func protect(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("protect from the out-of-memory killer: %w", err)
	}
	var score int
	if _, err := fmt.Sscan(string(text), &score); err == nil && score <= lowEnough {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(lastKilled)), 0); err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return fmt.Errorf("protect from the out-of-memory killer: %w: give the process CAP_SYS_RESOURCE", err)
	}
	return nil
}
