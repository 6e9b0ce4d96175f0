package sandbox

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/must"
)

// A command does not inherit the priority of the thread that starts it.
func TestPriorityIsNotInherited(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	onOwnThread(func() {
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}, 0); err != nil {
			t.Error(err)
			return
		}
		state, output, err := New().run(ctx, Command{Args: []string{"/usr/bin/cut", "-d", " ", "-f", "41", "/proc/self/stat"}, User: "65534"})
		if err != nil || !state.Success() || string(output) != "0\n" {
			t.Errorf("%v, %v, policy %q, want 0 (SCHED_OTHER)", err, state, output)
		}
	})
}

// A command does not inherit Herald's protection from the OOM killer.
func TestOOMScoreIsNotInherited(t *testing.T) {
	const file = "/proc/self/oom_score_adj"
	before := must.Get[[]byte](t)(os.ReadFile(file))
	must.Do(t, os.WriteFile(file, []byte("7"), 0))
	defer func() { must.Do(t, os.WriteFile(file, before, 0)) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	state, output, err := New().Run(ctx, Command{Args: []string{"/bin/sh", "-c", `until [ "$(cat /proc/$$/oom_score_adj)" = 0 ]; do :; done`}, User: "65534"})
	if err != nil || !state.Success() {
		t.Errorf("%v, %v %q", err, state, output)
	}
}

// The first thread of a process cannot end, so the sandbox always confines another thread.
func TestOwnThread(t *testing.T) {
	for range 100 {
		onOwnThread(func() {
			if unix.Gettid() == unix.Getpid() {
				t.Error("it is the first thread")
			}
		})
	}
	if unix.Getuid() != 0 || unix.Geteuid() != 0 {
		t.Error("the process has become another user")
	}
}
