package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

// own starts a lab in dir with processes that would not die by themselves, says
// so and waits to be killed.
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

// TestKilledOwner kills the process that owns a lab without warning and wants
// every process and network of the lab gone, the links with them.
func TestKilledOwner(t *testing.T) {
	// A network that has a link to each of the lab's shows when they are gone:
	// the kernel removes a veth pair with the network of either end.
	witness := start(t, parse(t, "name: w\ntopology: {nodes: {w: {kind: linux, entrypoint: sleep, cmd: infinity}}}\n"), lab.Options{})
	h := must[*netlink.Handle](t)(witness.Node("w").Handle())
	defer h.Close()

	dir := t.TempDir()
	owner := exec.Command("/proc/self/exe", "own", dir)
	owner.Stderr = os.Stderr
	owner.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out := must[interface{ Read([]byte) (int, error) }](t)(owner.StdoutPipe())
	do(t, owner.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "running" {
		_ = owner.Process.Kill()
		t.Fatalf("the owner said %q and exited: %v", lines.Text(), owner.Wait())
	}
	pid := owner.Process.Pid
	eventually(t, "two more processes in m1-app", func() bool { return len(descendants(t, pid)) == 2*4+3 })
	processes := descendants(t, pid)
	networks := networksOf(t, append(processes, pid))
	if len(networks) != 4 { // c1, r1, m1 and the wires
		t.Errorf("the lab has %d networks, want 4", len(networks))
	}
	i := 0
	for _, ns := range networks {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprintf("witness%d", i)
		do(t, h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "witness", PeerNamespace: netlink.NsFd(ns)}))
		do(t, ns.Close())
		i++
	}

	do(t, owner.Process.Kill())
	if err := owner.Wait(); err == nil {
		t.Error("the owner ended by itself")
	}
	for _, p := range processes {
		eventually(t, fmt.Sprintf("process %d is gone", p), func() bool {
			return errors.Is(syscall.Kill(p, 0), syscall.ESRCH)
		})
	}
	for range networks {
		i--
		eventually(t, fmt.Sprintf("network %d is gone", i), func() bool {
			_, err := h.LinkByName(fmt.Sprintf("witness%d", i))
			return errors.As(err, new(netlink.LinkNotFoundError))
		})
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(dir, "root"))); len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
}

// descendants are the processes below pid.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	parents := make(map[int]int)
	for _, path := range must[[]string](t)(filepath.Glob("/proc/[0-9]*/stat")) {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // state, parent, ...
		child := must[int](t)(strconv.Atoi(filepath.Base(filepath.Dir(path))))
		parents[child] = must[int](t)(strconv.Atoi(strings.Fields(rest)[1]))
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

// networksOf are the network namespaces that the processes live in or hold
// open, other than the test's own, by their identity.
func networksOf(t *testing.T, pids []int) map[string]netns.NsHandle {
	t.Helper()
	own := must[string](t)(os.Readlink("/proc/self/ns/net"))
	found := make(map[string]netns.NsHandle)
	for _, pid := range pids {
		paths := must[[]string](t)(filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)))
		for _, path := range append(paths, fmt.Sprintf("/proc/%d/ns/net", pid)) {
			name, err := os.Readlink(path)
			if err != nil || !strings.HasPrefix(name, "net:") || name == own || found[name] != 0 {
				continue
			}
			found[name] = must[netns.NsHandle](t)(netns.GetFromPath(path))
		}
	}
	return found
}
