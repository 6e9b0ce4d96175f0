package priority_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/daemon/priority"
	"github.com/herald-vip/herald/testenv/must"
)

// The tests change the process for good, so a child does it and reports.
func TestMain(m *testing.M) {
	if os.Getenv("PRIORITY_CHILD") != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

func child() {
	before := threads(4) // some threads from before, and later some more
	realtime, protect := priority.Realtime(), priority.Protect()
	after := threads(8)
	defer before()
	defer after()

	list, err := os.ReadDir("/proc/self/task")
	fmt.Println("list:", err)
	for _, t := range list {
		tid, _ := strconv.Atoi(t.Name())
		attr, err := unix.SchedGetAttr(tid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		fmt.Println("policy:", attr.Policy, attr.Priority)
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmLck:") {
			fmt.Println("locked:", strings.TrimSpace(line) != "VmLck:	       0 kB")
		}
	}
	score, _ := os.ReadFile("/proc/self/oom_score_adj")
	fmt.Println("score:", strings.TrimSpace(string(score)))
	fmt.Println("realtime:", strings.ReplaceAll(fmt.Sprint(realtime), "\n", "; "))
	fmt.Println("protect:", protect)
}

// threads holds n threads until the function it returns is called.
func threads(n int) func() {
	release := make(chan struct{})
	var running, done sync.WaitGroup
	running.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			running.Done()
			<-release
		})
	}
	running.Wait()
	return func() { close(release); done.Wait() }
}

func runChild(t *testing.T, as *syscall.SysProcAttr) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "PRIORITY_CHILD=1")
	cmd.SysProcAttr = as
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v: %s", err, out)
	}
	return string(out)
}

func TestPermitted(t *testing.T) {
	out := runChild(t, nil)
	if n := strings.Count(out, "policy: 2 1\n"); n < 13 || n != strings.Count(out, "policy:") {
		t.Errorf("%d threads are in real time, want all, which are at least 13", n)
	}
	wants := []string{"locked: true", "realtime: <nil>"}
	if mayProtect(t) {
		wants = append(wants, "score: -999", "protect: <nil>")
	} else { // root of a container
		wants = append(wants, "score: 0", "give the process CAP_SYS_RESOURCE")
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func mayProtect(t *testing.T) bool {
	t.Helper()
	var capabilities [2]unix.CapUserData
	must.Do(t, unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &capabilities[0]))
	return capabilities[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func TestNotPermitted(t *testing.T) {
	out := runChild(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	for _, want := range []string{
		"policy: 0 0", "locked: false", "score: 0",
		"real-time scheduling: operation not permitted: give the process CAP_SYS_NICE; lock memory: operation not permitted: give the process CAP_IPC_LOCK",
		"protect from the out-of-memory killer: permission denied: give the process CAP_SYS_RESOURCE",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(out, "policy: 1") {
		t.Error("a thread is in real time")
	}
	if t.Failed() {
		t.Log(out)
	}
}

// Root of a user namespace has the capability, and is refused as by a cgroup without real-time time.
func TestNotPermittedDespiteCapability(t *testing.T) {
	root := []syscall.SysProcIDMap{{Size: 1}}
	out := runChild(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: root, GidMappings: root})
	const want = "realtime: real-time scheduling: operation not permitted though the process has CAP_SYS_NICE: " +
		"give its cgroup time in cpu.rt_runtime_us, or run it outside of a user namespace"
	if !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
}
