package netutil_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil"
)

// speakerEnv makes the test binary a process that keeps addresses, to be stopped and killed.
const speakerEnv = "HERALD_TEST_KEEP_ADDRESSES"

func TestMain(m *testing.M) {
	if addrs := os.Getenv(speakerEnv); addrs != "" {
		if err := keep(strings.Split(addrs, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("rapid.checks", "3000"); err != nil { // they take a millisecond or less; the command line may say otherwise
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// keep binds addresses to lo in the namespace of file descriptor 3, until stdin ends. It prints each status.
func keep(addrs []string) error {
	a, err := netutil.NewAddresses(slog.New(slog.NewTextHandler(os.Stderr, nil)), netutil.Options{Lifetime: 2 * time.Second, NetNS: 3})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for _, s := range addrs {
		if err := a.Bind("lo", netip.MustParseAddr(s)); err != nil {
			return err
		}
	}
	go func() {
		out := json.NewEncoder(os.Stdout)
		for range a.Changed() {
			_ = out.Encode(a.Status())
		}
	}()
	return a.Run(ctx)
}

// speaker is such a process.
type speaker struct {
	t        *testing.T
	cmd      *exec.Cmd
	log      lockedBuffer
	statuses chan []netutil.AddressStatus
}

func startSpeaker(h *host, t *testing.T, addrs ...netip.Addr) *speaker {
	t.Helper()
	exe, err := os.Executable()
	h.must(err)
	ns := os.NewFile(uintptr(dup(h)), "netns")
	defer ns.Close()
	s := &speaker{t: t, cmd: exec.Command(exe), statuses: make(chan []netutil.AddressStatus, 100)}
	var list []string
	for _, addr := range addrs {
		list = append(list, addr.String())
	}
	s.cmd.Env = append(os.Environ(), speakerEnv+"="+strings.Join(list, ","))
	s.cmd.ExtraFiles = []*os.File{ns}
	s.cmd.Stderr = &s.log
	stdin, err := s.cmd.StdinPipe()
	h.must(err)
	stdout, err := s.cmd.StdoutPipe()
	h.must(err)
	h.must(s.cmd.Start())
	go func() {
		defer close(s.statuses)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var status []netutil.AddressStatus
			if json.Unmarshal(lines.Bytes(), &status) == nil {
				s.statuses <- status
			}
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		s.signal(unix.SIGKILL)
		for range s.statuses {
		}
		_ = s.cmd.Wait()
	})
	return s
}

func dup(h *host) int {
	h.t.Helper()
	fd, err := unix.FcntlInt(uintptr(h.ns), unix.F_DUPFD_CLOEXEC, 0)
	h.must(err)
	return fd
}

func (s *speaker) signal(sig unix.Signal) { _ = s.cmd.Process.Signal(sig) }

// A frozen process loses its addresses to the kernel, and has them again when it goes on.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := startSpeaker(h, t, vip4, vip6)
	await := func(restored int) {
		t.Helper()
		for ok := false; !ok; {
			ok = true
			for _, status := range receive(t, s.statuses) {
				ok = ok && status.Bound && status.Restored == restored
			}
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("log of the process:\n%s", s.log.String())
		}
	}()
	await(0)

	s.signal(unix.SIGSTOP)
	eventually(t, "gone while it is frozen", func() bool { return h.find("lo", vip4) == nil && h.find("lo", vip6) == nil })
	s.signal(unix.SIGCONT)
	await(1)
	if h.find("lo", vip4) == nil || h.find("lo", vip6) == nil {
		t.Error("not really put back")
	}
	eventually(t, "it tells that both expired", func() bool { return strings.Count(s.log.String(), "it expired") == 2 })
}

// A killed process leaves nothing; one that takes over in time loses nothing.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	orphan := vip4.Next()
	s := startSpeaker(h, t, vip4, vip6, orphan)
	eventually(t, "bound", func() bool {
		return h.find("lo", vip4) != nil && h.find("lo", vip6) != nil && h.find("lo", orphan) != nil
	})
	changes := h.watch(vip4, vip6, orphan)
	s.signal(unix.SIGKILL)

	a, _ := start(h, netutil.Options{})
	h.must(a.Bind("lo", vip4))
	h.must(a.Bind("lo", vip6))
	for {
		c := receive(t, changes)
		if c.gone && c.addr == orphan {
			break // the kernel has removed what nobody wants any more
		}
		if c.gone {
			t.Fatalf("%s went although another process took it over", c.addr)
		}
	}
	for _, s := range a.Status() {
		if !s.Bound || s.Restored != 0 {
			t.Errorf("status %+v", s)
		}
	}
}
