package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxOutput is how much of what a command writes is kept; what is beyond it is read and forgotten.
const maxOutput = 4 << 10

// sandbox runs the commands of checks. Each runs as a user of its own, without capabilities or a way to any, in a session
// of its own with nothing open but its output. When it ends, or at the end of its context, it is killed with all that it
// started, be that in another session or a daemon: this process is the one that orphans are given to (PR_SET_CHILD_SUBREAPER),
// so what remains of a command ends up as a child of this process. Only while this process is killed itself may something
// remain; the unit and the pod end with all of theirs.
type sandbox struct {
	mu      sync.Mutex // held while a command is started, so that each child is known to be one or an orphan
	started map[*os.Process]bool
}

func newSandbox() *sandbox { return &sandbox{started: make(map[*os.Process]bool)} }

// run runs a command to its end. What it needs of the kernel is said of a thread, which ends with it.
func (s *sandbox) run(ctx context.Context, check Exec) (out outcome) {
	onOwnThread(func() { out = s.runHere(ctx, check) })
	return out
}

func (s *sandbox) runHere(ctx context.Context, check Exec) outcome {
	uid, gid, err := account(check.User)
	if err != nil {
		return ownFailure(err.Error())
	}
	if err := confine(uid, gid); err != nil {
		return ownFailure(fmt.Sprintf("cannot run as the user %s: %v", check.User, err))
	}
	r, process, err := s.start(check)
	if err != nil {
		return ownFailure(pathError(check.Command[0], err).Error())
	}
	defer r.Close()
	said, ended := make(chan []byte, 1), make(chan *os.ProcessState, 1)
	go func() {
		head, _ := io.ReadAll(io.LimitReader(r, maxOutput))
		_, _ = io.Copy(io.Discard, r)
		said <- head
	}()
	go func() {
		state, _ := process.Wait() // it fails only where there is no such child
		ended <- state
	}()
	var state *os.ProcessState
	select {
	case state = <-ended:
	case <-ctx.Done():
		_ = process.Kill()
		state = <-ended
	}
	s.mu.Lock()
	delete(s.started, process)
	s.mu.Unlock()
	err = s.sweep()
	_ = r.SetReadDeadline(time.Now().Add(time.Second)) // the other end may have been handed to a stranger
	output := <-said
	if err != nil {
		return ownFailure(err.Error())
	}
	return judgeExit(state, output)
}

// start starts a command, whose output can be read from r.
func (s *sandbox) start(check Exec) (r *os.File, _ *os.Process, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	process, err := os.StartProcess(check.Command[0], check.Command, &os.ProcAttr{
		Dir: "/", Env: append([]string{}, check.Environment...), Files: []*os.File{null, w, w},
		Sys: &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	})
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	s.started[process] = true
	// This process is the last to be killed when memory runs out; its checks are not.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", process.Pid), []byte("0"), 0)
	return r, process, nil
}

// sweep kills what commands of this thread's user have left, until nothing is.
func (s *sandbox) sweep() error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if left, err := s.killOrphans(); err != nil || !left {
			return err
		}
		time.Sleep(pause) // for their own children to become orphans
	}
}

func (s *sandbox) killOrphans() (found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	commands := make(map[int]bool)
	for p := range s.started {
		commands[p.Pid] = true
	}
	all, err := children()
	for _, pid := range all {
		// The kernel refuses what is not this thread's user's.
		if commands[pid] || unix.Kill(pid, unix.SIGKILL) != nil {
			continue
		}
		found = true
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
	return found, err
}

// children are the children of this process.
func children() (pids []int, err error) {
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	if len(threads) == 0 {
		return nil, errors.New("the kernel does not tell the children of a process: it takes CONFIG_PROC_CHILDREN")
	}
	for _, file := range threads {
		list, _ := os.ReadFile(file) // a thread may have ended
		for _, field := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// account are the IDs of a user, by name or number. A number that nobody has is that of its group, too.
func account(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if n, notNumber := strconv.ParseUint(name, 10, 31); err != nil && notNumber == nil {
		if u, err = user.LookupId(name); err != nil {
			return int(n), int(n), nil
		}
	}
	if err != nil {
		return 0, 0, err
	}
	uid, err = strconv.Atoi(u.Uid)
	if err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	if err == nil && uid == 0 {
		err = fmt.Errorf("the user %s is root: give the check one of its own", name)
	}
	return uid, gid, err
}

// confine has this thread, and what it starts, be a user without privileges for good, and take no turns before others.
func confine(uid, gid int) error {
	if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Policy != unix.SCHED_NORMAL {
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_NORMAL}, 0); err != nil {
			return err
		}
	}
	// What this process was given open by its own parent; since Linux 5.11.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Setgroups(nil); err != nil {
		return err
	}
	// Not by package unix, which does it to all threads.
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return e
	}
	return nil
}

// onOwnThread runs do on a thread that ends with it.
func onOwnThread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			do()
			return
		}
		onOwnThread(do) // this is the first thread, which cannot end; while it is locked, another one is had
		runtime.UnlockOSThread()
	}()
	<-done
}
