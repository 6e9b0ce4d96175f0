package health

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/must"
)

// A command does not inherit the priority of the thread that starts it.
func TestPriorityIsNotInherited(t *testing.T) {
	var out outcome
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	onOwnThread(func() {
		if err := unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}, 0); err != nil {
			t.Error(err)
			return
		}
		out = newSandbox().runHere(ctx, Exec{Command: []string{"/usr/bin/cut", "-d", " ", "-f", "41", "/proc/self/stat"}, User: "65534"})
	})
	if out.kind != passed || out.reason != "0" {
		t.Errorf("%v, policy %q, want 0 (SCHED_OTHER)", out.kind, out.reason)
	}
}

// Nor is it the last to be killed when memory runs out, as Herald is.
func TestOOMScoreIsNotInherited(t *testing.T) {
	const file = "/proc/self/oom_score_adj"
	before := must.Get[[]byte](t)(os.ReadFile(file))
	must.Do(t, os.WriteFile(file, []byte("7"), 0))
	defer func() { must.Do(t, os.WriteFile(file, before, 0)) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out := newSandbox().run(ctx, Exec{Command: []string{"/bin/sh", "-c", `until [ "$(cat /proc/$$/oom_score_adj)" = 0 ]; do :; done`}, User: "65534"})
	if out.kind != passed {
		t.Errorf("%v %q", out.kind, out.reason)
	}
}

// Whatever a command writes, its reason is one bounded line.
func FuzzFirstLine(f *testing.F) {
	for _, s := range []string{"", "\n", "ok\n", "\n \n a\tb \r\nc", "\x1b[31m\x00\xff", strings.Repeat("long ", 1000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		line := firstLine(output)
		if len([]rune(line)) > maxText || strings.ContainsAny(line, "\r\n\x1b\x00") {
			t.Errorf("%q", line)
		}
	})
}
