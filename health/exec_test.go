package health_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/must"
)

// nobody is the default user of checks, by number.
const nobody = "65534"

// script writes a program of that name into a world-writable folder.
func script(t *testing.T, text string) string {
	t.Helper()
	dir := must.Get[string](t)(os.MkdirTemp("", "check"))
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	must.Do(t, os.Chmod(dir, 0o777))
	path := filepath.Join(dir, "check")
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	must.Do(t, os.Chmod(path, 0o755))
	return path
}

func TestExec(t *testing.T) {
	plain := must.Get[string](t)(filepath.Abs("exec_test.go"))
	for _, tt := range []struct {
		name        string
		text        string
		check       health.Exec
		passes, not bool
		reason      string
	}{
		{name: "fine", text: "exit 0", passes: true, reason: "check: exit status 0"},
		{name: "output", text: "echo; echo all well; echo more", passes: true, reason: "check: all well"},
		{name: "no", text: "echo replica >&2; exit 1", not: true, reason: "check: exit status 1: replica"},
		{name: "cannot tell", text: "exit 2", reason: "check: exit status 2"},
		{name: "no such command", text: "no-such-command", reason: "check: exit status 127: "},
		{name: "signal", text: "kill -SEGV $$", reason: "check: killed: segmentation fault"},
		{name: "control characters", text: `printf 'a\033[31m\001\377b'; exit 1`, not: true, reason: "exit status 1: a.[31m..b"},
		{name: "long line", text: "head -c 100000 /dev/zero | tr '\\0' x; exit 1", not: true, reason: "exit status 1: " + strings.Repeat("x", 119) + "…"},
		{name: "endless", text: "exec yes", reason: "did not end within 1s"},
		{name: "hangs", text: "sleep 1000", reason: "did not end within 1s"},
		{name: "arguments", text: `echo "$#: $1"`, check: health.Exec{Command: []string{"", "a b; c", "d"}}, passes: true, reason: "2: a b; c"},
		{name: "no environment", text: "exec /usr/bin/env", passes: true, reason: "PWD=/"}, // which the shell sets
		{name: "environment", text: `echo "$A-$B-$HERALD_TEST"`, check: health.Exec{Environment: []string{"A=1", "B=2 3"}}, passes: true, reason: "1-2 3-"},
		{name: "user", text: `echo "$(id -u) $(id -g) $(id -G)"`, passes: true, reason: "65534 65534 65534"},
		{name: "user by name", text: `id -un`, check: health.Exec{User: "daemon"}, passes: true, reason: "daemon"},
		{name: "user without an account", text: `echo "$(id -u) $(id -g)"`, check: health.Exec{User: "54321"}, passes: true, reason: "54321 54321"},
		{name: "no privileges", text: `sed -n '/NoNewPrivs\|CapEff\|CapPrm\|CapAmb/s/[^0-9a-f]*[A-Z][A-Za-z]*:.//p' /proc/self/status | tr '\n' ' '`, passes: true, reason: "0000000000000000 0000000000000000 0000000000000000 1"},
		{name: "nothing inherited", check: health.Exec{Command: []string{"/bin/ls", "-x", "/proc/self/fd"}}, passes: true, reason: "/bin/ls: 0 1 2 3"}, // 3 is the folder itself
		{name: "no such user", check: health.Exec{User: "no-such-user"}, reason: "check's own: user no-such-user does not exist"},
		{name: "user too large", check: health.Exec{User: "4294967295"}, reason: "check's own: user 4294967295 is root, in its group, or has an invalid ID"},
		{name: "negative user", check: health.Exec{User: "-1"}, reason: "check's own: user -1 is root, in its group, or has an invalid ID"},
		{name: "root", check: health.Exec{User: "root"}, reason: "check's own: user root is root, in its group, or has an invalid ID: choose another user"},
		{name: "missing program", check: health.Exec{Command: []string{"/no/such/check"}}, reason: "/no/such/check: check's own: no such file or directory"},
		{name: "not executable", check: health.Exec{Command: []string{plain}}, reason: "permission denied"},
		{name: "no interpreter", text: "\n", check: health.Exec{Command: []string{"/etc/passwd"}}, reason: "permission denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HERALD_TEST", "of the speaker")
			if tt.check.User == "" {
				tt.check.User = nobody
			}
			switch path := script(t, tt.text); {
			case len(tt.check.Command) == 0:
				tt.check.Command = []string{path}
			case tt.check.Command[0] == "":
				tt.check.Command[0] = path
			}
			for inverted, want := range map[bool]bool{false: tt.passes, true: tt.not} {
				passes, reason := probeOnce(t, health.Check{Exec: &tt.check, Not: inverted}, tt.reason)
				if passes != want || !strings.Contains(reason, tt.reason) {
					t.Errorf("not %v: %v %q, want %v …%q…", inverted, passes, reason, want, tt.reason)
				}
			}
		})
	}
}

// family is a shell script that starts processes in many ways; each writes down its PID.
const family = `cd "${0%/*}"
trap '' TERM HUP INT
(trap '' TERM; echo $$ >main; exec sh -c 'echo $$ >child; exec sleep 1000') &
setsid sh -c 'trap "" TERM; echo $$ >session; sleep 1000 & echo $! >grandchild; wait' &
sh -c 'setsid sh -c "echo \$\$ >daemon; exec sleep 1000" >/dev/null 2>&1 </dev/null & exit 0'
while ! [ -s child ] || ! [ -s session ] || ! [ -s grandchild ] || ! [ -s daemon ]; do sleep 0.01; done
`

// A command is killed with all that it started, both at the deadline and at its end.
func TestExecIsKilledWithItsChildren(t *testing.T) {
	for _, tt := range []struct {
		name, last string
		passes     bool
		reason     string
	}{
		{"at its end", "echo done", true, "done"},
		{"at the deadline", ">ready; sleep 1000", false, "did not end within"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			other := exec.Command("sleep", "1000") // a child of this process that no check has started
			must.Do(t, other.Start())
			defer func() {
				if err := other.Process.Signal(syscall.Signal(0)); err != nil {
					t.Errorf("a process outside the sandbox was killed: %v", err)
				}
				must.Do(t, other.Process.Kill())
				_ = other.Wait()
			}()
			path := script(t, family+tt.last)
			probe, stop, err := health.Probe(health.Check{Exec: &health.Exec{Command: []string{path}, User: nobody}, Pace: health.Pace{Timeout: patience}}, new(net.Dialer).DialContext)
			must.Do(t, err)
			var watching sync.WaitGroup
			defer watching.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if !tt.passes {
				watching.Go(func() { // until all have started
					defer cancel()
					poll := time.NewTicker(10 * time.Millisecond)
					defer poll.Stop()
					for {
						if _, err := os.Stat(filepath.Join(filepath.Dir(path), "ready")); err == nil {
							return
						}
						select {
						case <-poll.C:
						case <-ctx.Done():
							return
						}
					}
				})
			}
			passes, reason := probe(ctx)
			if passes != tt.passes || !strings.Contains(reason, tt.reason) {
				t.Errorf("%v %q", passes, reason)
			}
			stop() // waits until the run is killed
			for _, name := range []string{"main", "child", "session", "grandchild", "daemon"} {
				data := must.Get[[]byte](t)(os.ReadFile(filepath.Join(filepath.Dir(path), name)))
				pid := must.Get[int](t)(strconv.Atoi(strings.TrimSpace(string(data))))
				if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
					t.Errorf("the %s, %d, still runs: %v", name, pid, err)
				}
			}
		})
	}
}

// Concurrent checks do not kill each other's commands, and leave no zombies.
func TestExecSideBySide(t *testing.T) {
	var checks []health.Check
	for i := range 8 {
		path := script(t, fmt.Sprintf("(sleep 1000 &); sleep 0.0%d; echo fine", i))
		checks = append(checks, health.Check{Name: fmt.Sprint(i), Exec: &health.Exec{Command: []string{path}, User: nobody},
			Pace: health.Pace{Interval: 10 * time.Millisecond, Timeout: patience, Rise: 10, Fall: 1}})
	}
	told := realMonitor(t, checks...)
	for range checks {
		next(t, told, health.Healthy, "fine")
	}
}
