package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// own starts a lab in dir with processes that would not die by themselves, prints a
// line and waits to be killed.
func own(dir string) error {
	topology, err := clab.Load("../topologies/small.clab.yml")
	if err != nil {
		return err
	}
	l, err := lab.Start(context.Background(), slog.New(slog.DiscardHandler), topology, lab.Options{Dir: dir})
	if err != nil {
		return err
	}
	for _, command := range []string{
		"exec setpriv --reuid=65534 --clear-groups sleep infinity", // a change of user clears the parent death signal
		"setsid sleep infinity & exec sleep infinity",              // a daemon has no parent to die with
	} {
		if _, err := l.Node("m1-app").Start(exec.Command("sh", "-c", command)); err != nil {
			return err
		}
	}
	fmt.Println("running")
	<-make(chan struct{})
	return nil
}

// TestKilledOwner kills a lab's owner without warning and checks that every process of
// the lab is gone. Only they hold its networks and links.
func TestKilledOwner(t *testing.T) {
	dir := t.TempDir()
	owner := exec.Command("/proc/self/exe", "own", dir)
	owner.Stderr = os.Stderr
	owner.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out := must.Get[io.ReadCloser](t)(owner.StdoutPipe())
	must.Do(t, owner.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "running" {
		_ = owner.Process.Kill()
		t.Fatalf("the owner printed %q and exited: %v", lines.Text(), owner.Wait())
	}
	pid := owner.Process.Pid
	wait.Until(t, "two more processes in m1-app", func() bool { return len(descendants(t, pid)) == 2*4+3 })
	processes := descendants(t, pid)

	must.Do(t, owner.Process.Kill())
	if err := owner.Wait(); err == nil {
		t.Error("the owner ended by itself")
	}
	for _, p := range processes {
		wait.Until(t, fmt.Sprintf("process %d is gone", p), func() bool {
			return errors.Is(syscall.Kill(p, 0), syscall.ESRCH)
		})
	}
	if left := must.Get[[]os.DirEntry](t)(os.ReadDir(filepath.Join(dir, "root"))); len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
}

// descendants returns the processes below pid.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	parents := make(map[int]int)
	for _, path := range must.Get[[]string](t)(filepath.Glob("/proc/[0-9]*/stat")) {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // state, parent, ...
		child := must.Get[int](t)(strconv.Atoi(filepath.Base(filepath.Dir(path))))
		parents[child] = must.Get[int](t)(strconv.Atoi(strings.Fields(rest)[1]))
	}
	var list []int
	for child := range parents {
		for p := child; p != 0; p = parents[p] {
			if parents[p] == pid {
				list = append(list, child)
				break
			}
		}
	}
	return list
}
