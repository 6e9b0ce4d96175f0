// Package sandbox runs commands with few rights. Each runs as an unprivileged user, without
// capabilities and unable to gain any, in a session of its own, with only its output open.
//
// When a command ends, or its context does, the sandbox kills it and every process that it started, including daemons
// and other sessions. Orphans become children of this process, their subreaper (PR_SET_CHILD_SUBREAPER), so it finds
// them. Processes can remain only if this process itself is killed outside of a unit or a pod.
//
// This process needs CAP_SETUID and CAP_SETGID but not CAP_KILL: it kills as the command's user, so
// the kernel protects processes of other users.
package sandbox

import (
	"cmp"
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

	"github.com/herald-vip/herald/internal/wake"
)

// maxOutput is how many bytes of a command's output are kept; the rest is read and discarded.
const maxOutput = 4 << 10

// Command describes a program to run.
type Command struct {
	// Args are the absolute path of a program, and its arguments.
	Args []string
	// User is the name or the number of a user other than root.
	User string
	// Environment is the command's whole environment, each entry as in NAME=value.
	Environment []string
}

// Sandbox runs commands, several at a time. It kills every child of this process that runs as the user of one of its
// commands and that it did not start. So a process may have only one sandbox.
type Sandbox struct {
	mu      sync.Mutex // held while a command starts, so that a new child is never taken for an orphan
	started map[*os.Process]bool
}

// New returns an empty sandbox.
func New() *Sandbox { return &Sandbox{started: make(map[*os.Process]bool)} }

// Run runs a command until it ends, kills it at the end of ctx, and then kills all processes that it left. It returns
// the exit state and the first 4 KiB of the output, or an error if the command could not run.
func (s *Sandbox) Run(ctx context.Context, c Command) (state *os.ProcessState, output []byte, err error) {
	onOwnThread(func() { state, output, err = s.run(ctx, c) })
	return state, output, err
}

// run does the work of Run. It drops the privileges of its OS thread, so it needs a thread of its own.
func (s *Sandbox) run(ctx context.Context, c Command) (*os.ProcessState, []byte, error) {
	uid, gid, err := account(c.User)
	if err != nil {
		return nil, nil, err
	}
	if _, err := children(); err != nil { // fail before the command starts if its orphans could not be found
		return nil, nil, err
	}
	if err := confine(uid, gid); err != nil {
		return nil, nil, fmt.Errorf("cannot run as user %s: %w", c.User, err)
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
		state, _ := process.Wait() // fails only if the child does not exist
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
	_ = r.SetReadDeadline(time.Now().Add(time.Second)) // a process outside the sandbox may hold the other end
	output := <-said
	return state, output, err
}

// start starts a command; r reads its output.
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
	// This process is protected from the OOM killer; its checks are not.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", process.Pid), []byte("0"), 0)
	return r, process, nil
}

// sweep kills all orphans of this thread's user and returns when none is left.
func (s *Sandbox) sweep() error {
	pauses := wake.Backoff{Min: time.Millisecond, Max: 100 * time.Millisecond}
	for n := 1; ; n++ {
		if left, err := s.killOrphans(); err != nil || !left {
			return err
		}
		time.Sleep(pauses.After(n)) // until their own children are orphans
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
		// The kernel refuses to kill processes of users other than this thread's.
		if commands[pid] || unix.Kill(pid, unix.SIGKILL) != nil {
			continue
		}
		found = true
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
	return found, err
}

// children returns the process IDs of the children of this process.
func children() (pids []int, err error) {
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	if len(threads) == 0 {
		return nil, errors.New("the kernel does not list the children of a process: enable CONFIG_PROC_CHILDREN")
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

// account returns the IDs of a user, by name or number. A number without an account is used as the group ID as well.
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
		return 0, 0, fmt.Errorf("user %s does not exist", name)
	case uid <= 0 || uid > math.MaxInt32 || gid <= 0 || gid > math.MaxInt32: // -1 would mean no change
		return 0, 0, fmt.Errorf("user %s is root, in its group, or has an invalid ID: choose another user", name)
	}
	return uid, gid, nil
}

// confine makes this thread, and the processes it starts, irrevocably unprivileged, with normal scheduling.
func confine(uid, gid int) error {
	if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Policy != unix.SCHED_NORMAL {
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_NORMAL}, 0); err != nil {
			return err
		}
	}
	// Closes descriptors that this process inherited, on exec; since Linux 5.11.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	return cmp.Or(
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Setgroups(nil),
		setIDs(unix.SYS_SETRESGID, gid),
		setIDs(unix.SYS_SETRESUID, uid),
	)
}

// setIDs sets the real, effective and saved ID of this thread only; package unix would set them for all threads.
func setIDs(call uintptr, id int) error {
	if _, _, e := unix.RawSyscall(call, uintptr(id), uintptr(id), uintptr(id)); e != 0 {
		return e
	}
	return nil
}

// onOwnThread runs do on an OS thread that ends with it.
func onOwnThread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			do()
			return
		}
		onOwnThread(do) // the first thread cannot end; while it is locked, the goroutine gets another
		runtime.UnlockOSThread()
	}()
	<-done
}
