package fence

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/testenv/wait"
)

// helperEnv makes the test binary run a helper; freezeEnv is the step at which it freezes.
const (
	helperEnv = "HERALD_TEST_FENCE"
	freezeEnv = "HERALD_TEST_FREEZE"
)

var helpers = map[string]func() error{
	"fresh":        func() error { return freezing(false) },
	"renewal":      func() error { return freezing(true) },
	"unprivileged": unprivileged,
}

// freezer stops the process in the middle of an opening: before or after a call of Apply, which renews a lock
// between two readings of the clock.
type freezer struct {
	*nft
	countdown int // steps until the freeze; each call has one before and one after it. Negative: none
}

func (f *freezer) Apply(changes []Change) error {
	f.step()
	defer f.step()
	return f.nft.Apply(changes)
}

func (f *freezer) step() {
	if f.countdown == 0 { // the signal goes to this thread, so that it stops here
		runtime.LockOSThread()
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
		runtime.UnlockOSThread()
	}
	f.countdown--
}

// freezing opens addresses and freezes on the way. It prints the end of the opening, and its result.
func freezing(renewal bool) error {
	step, err := strconv.Atoi(os.Getenv(freezeEnv))
	if err != nil {
		return err
	}
	k := &freezer{&nft{}, -1}
	f, err := NewOver(slog.New(slog.DiscardHandler), k, Options{})
	if err != nil {
		return err
	}
	if err := f.Filter(vip.addrs()...); err != nil {
		return err
	}
	start, now := monotonic(), time.Now()
	for renewal {
		err := f.Open(now.Add(500*time.Millisecond), vip.addrs()...)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrLate) { // a busy machine may be late
			return err
		}
		start, now = monotonic(), time.Now()
	}
	fmt.Println(int64(start + time.Second))
	k.countdown = step
	err = f.Open(now.Add(time.Second), vip.addrs()...)
	fmt.Println(errors.Is(err, ErrLate) || errors.Is(err, ruleset.ErrStuck), err)
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// monotonic returns the kernel's clock, which all processes share.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}

// helper is a helper process in a host's namespace.
type helper struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func (h *host) start(t *testing.T, name string, env ...string) *helper {
	t.Helper()
	exe, err := os.Executable()
	h.Must(err)
	p := &helper{t: t, cmd: exec.Command(exe), lines: make(chan string, 10)}
	p.cmd.Env = append(append(os.Environ(), helperEnv+"="+name), env...)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	h.Must(err)
	stdout, err := p.cmd.StdoutPipe()
	h.Must(err)
	h.In(func() { err = p.cmd.Start() })
	h.Must(err)
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = p.cmd.Process.Kill()
		for range p.lines {
		}
		_ = p.cmd.Wait()
	})
	return p
}

func (p *helper) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if ok {
			return line
		}
		p.t.Fatal("the process ended")
	case <-time.After(patience):
		p.t.Fatal("the process prints nothing")
	}
	panic("unreachable")
}

func (p *helper) frozen() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}

// If a process freezes at any step of an opening and continues after the end, the host never answers after
// the end.
func TestFrozenProcess(t *testing.T) {
	const stepsOfOpen = 4 // two locks, each before and after
	for _, kind := range []string{"fresh", "renewal"} {
		for step := range stepsOfOpen {
			t.Run(fmt.Sprintf("%s/%d", kind, step), func(t *testing.T) {
				t.Parallel()
				s := newWire(t)
				var p *helper
				var until time.Duration
				for frozen := false; !frozen; { // repeated if a busy machine was late
					p = s.node.start(t, kind, freezeEnv+"="+strconv.Itoa(step))
					ns, err := strconv.ParseInt(p.line(), 10, 64)
					s.node.Must(err)
					until = time.Duration(ns)
					wait.Until(t, "the process freezes or ends", func() bool { frozen = p.frozen(); return frozen || len(p.lines) > 0 })
				}
				answered := func() bool { return s.answers(vip[0].Addr()) || s.answers(vip[1].Addr()) }
				if opens := kind == "renewal" || step == stepsOfOpen-1; !opens && answered() {
					t.Error("node answers with only one lock open")
				}
				for monotonic() < until {
					answered() // takes a moment
				}
				if answered() {
					t.Error("node answers after the end, while the process is frozen")
				}
				s.node.Must(p.cmd.Process.Signal(unix.SIGCONT))
				for running := true; running; {
					select {
					case result := <-p.lines:
						running = false
						if !strings.HasPrefix(result, "true ") {
							t.Errorf("Open returned %q, want ErrLate or ErrStuck", result)
						}
					default:
					}
					if answered() {
						t.Fatal("node answers after the end, when the process continues")
					}
				}
			})
		}
	}
}

// Addresses that a killed process opened close in time, and stay filtered.
func TestKilledProcess(t *testing.T) {
	s := newWire(t)
	p := s.node.start(t, "renewal", freezeEnv+"=-1")
	p.line()
	p.line()
	s.node.Must(p.cmd.Process.Kill())
	wait.Until(t, "closed by the kernel", func() bool { return !s.answers(vip[0].Addr()) && !s.answers(vip[1].Addr()) })
	s.expect("killed", false, false)

	s.node.Must(clearTables(&nft{Socket: ruleset.Socket{NetNS: int(s.node.NS)}}))
	s.expect("cleared", true, true)
	s.node.Must(clearTables(&nft{Socket: ruleset.Socket{NetNS: int(s.node.NS)}})) // without tables
}

// unprivileged prints the error of New without capabilities.
func unprivileged() error {
	if err := syscall.Setuid(65534); err != nil {
		return err
	}
	_, err := New(slog.New(slog.DiscardHandler), Options{})
	fmt.Println(errors.Is(err, ErrUnsupported), err)
	return nil
}

func TestUnprivileged(t *testing.T) {
	got := newHost(t).start(t, "unprivileged").line()
	if !strings.HasPrefix(got, "true ") || !strings.Contains(got, "CAP_NET_ADMIN") {
		t.Errorf("New: %q, want an ErrUnsupported that names CAP_NET_ADMIN", got)
	}
	t.Log(got)
}
