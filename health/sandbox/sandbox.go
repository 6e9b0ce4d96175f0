// Package sandbox runs commands that are trusted with little. Each runs as a user of its own,
// without capabilities or a way to any, in a session of its own with nothing open but its output.
// When it ends, or at the end of its context, it is killed with all that it started, be that in
// another session or a daemon: this process is the one that orphans are given to
// (PR_SET_CHILD_SUBREAPER), so what remains of a command ends up as a child of this process. Only
// if this process is killed itself may something remain; a unit and a pod end with all of theirs.
//
// This process needs CAP_SETUID and CAP_SETGID, and no right to kill: it does that as the command's
// user, so that the kernel refuses what is not the command's.
package sandbox

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

// Command is what to run.
type Command struct {
	// Args are the absolute path of a program, and its arguments.
	Args []string
	// User is the name or the number of a user other than root.
	User string
	// Environment is all of the command's, each as in NAME=value.
	Environment []string
}

// Sandbox runs commands, several at a time. It kills every child of this process that runs as the user of one of its
// commands and was not started by it: a process has one sandbox.
type Sandbox struct {
	mu      sync.Mutex // held while a command is started, so that each child is known to be one or an orphan
	started map[*os.Process]bool
}

// New makes a sandbox, in which nothing runs.
func New() *Sandbox { return &Sandbox{started: make(map[*os.Process]bool)} }

// Run runs a command until it ends, or is killed at the end of ctx, and has left nothing. It returns how the command
// ended and the first 4 KiB that it wrote; or an error if it could not be run.
func (s *Sandbox) Run(ctx context.Context, c Command) (state *os.ProcessState, output []byte, err error) {
	onOwnThread(func() { state, output, err = s.run(ctx, c) })
	return state, output, err
}

// run is Run on a thread that ends with it, of which is said what the command is to have of the kernel.
func (s *Sandbox) run(ctx context.Context, c Command) (*os.ProcessState, []byte, error) {
	uid, gid, err := account(c.User)
	if err != nil {
		return nil, nil, err
	}
	if _, err := children(); err != nil { // before there are some that could not be found
		return nil, nil, err
	}
	if err := confine(uid, gid); err != nil {
		return nil, nil, fmt.Errorf("cannot run as the user %s: %w", c.User, err)
	}
	r, process, err := s.start(c)
	if err != nil {
		return nil, nil, err
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
	return state, output, err
}

// start starts a command, whose output can be read from r.
func (s *Sandbox) start(c Command) (r *os.File, _ *os.Process, err error) {
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
	process, err := os.StartProcess(c.Args[0], c.Args, &os.ProcAttr{
		Dir: "/", Env: append([]string{}, c.Environment...), Files: []*os.File{null, w, w},
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
func (s *Sandbox) sweep() error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if left, err := s.killOrphans(); err != nil || !left {
			return err
		}
		time.Sleep(pause) // for their own children to become orphans
	}
}

func (s *Sandbox) killOrphans() (found bool, err error) {
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
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			u = &user.User{Uid: name, Gid: name}
		}
	}
	uid, err = strconv.Atoi(u.Uid)
	if err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("there is no user %s", name)
	case uid <= 0 || uid > math.MaxInt32 || gid <= 0 || gid > math.MaxInt32: // -1 would stand for no change
		return 0, 0, fmt.Errorf("the user %s is root, of its group, or has no proper number: give the check another one", name)
	}
	return uid, gid, nil
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
	for _, err := range []error{
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Setgroups(nil),
		setIDs(unix.SYS_SETRESGID, gid),
		setIDs(unix.SYS_SETRESUID, uid),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// setIDs sets the real, effective and saved ID of this thread. Package unix would set those of all threads.
func setIDs(call uintptr, id int) error {
	if _, _, e := unix.RawSyscall(call, uintptr(id), uintptr(id), uintptr(id)); e != 0 {
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
