// Package priority asks the kernel to prefer this process when a node is busy: for processor time ([Realtime]) and for
// memory ([Realtime] and [Protect]). BFD peers take a speaker for dead that does not run for some ten milliseconds.
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
	// level is the lowest real-time priority: above all normal processes, and below the kernel's own threads and
	// processes that ask for more.
	level = 1
	// lastKilled is the second lowest score: the lowest would exempt the process altogether, even from the limit of its
	// own cgroup.
	lastKilled = -999
	// lowEnough is the score that Protect leaves alone: the kubelet gives -997 to node-critical pods, which may not
	// lower it.
	lowEnough = -900
)

// Realtime puts all present and future threads of the process under the SCHED_RR policy, and locks their memory. It does
// as much as the host permits; the error names the rest. The kernel bounds real time by
// /proc/sys/kernel/sched_rt_runtime_us.
func Realtime() error {
	var errs []error
	switch err := schedule(); {
	case errors.Is(err, unix.EPERM) && present(unix.CAP_SYS_NICE):
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

// schedule makes every thread SCHED_RR. Under SCHED_FIFO, a thread that spins for another thread, as the Go runtime
// briefly does, may keep it from ever running; round robin prevents that. A new thread inherits the policy of its
// creator, so schedule ends when a pass over all threads changes nothing.
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

// scheduleThread reports whether it changed the thread.
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

// lockMemory locks pages at their first use. It requires the capability: under a limit the lock would succeed, and the
// first allocation beyond the limit would end the process.
func lockMemory() error {
	if !present(unix.CAP_IPC_LOCK) {
		return unix.EPERM
	}
	return unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
}

// present reports whether the process has one of the first 32 capabilities.
func present(capability int) bool {
	var sets [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0])
	return err == nil && sets[0].Effective&(1<<capability) != 0
}

// Protect asks the kernel to kill other processes first when memory runs out. It leaves a score of -900 or lower alone.
// It returns an error if the host does not permit it.
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
