package address_test

import (
	"bufio"
	"bytes"
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

	"github.com/herald-vip/herald/netutil/address"

	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/recorder"
	"github.com/herald-vip/herald/testenv/wait"
)

// speakerEnv makes the test binary a process that keeps addresses.
const speakerEnv = "HERALD_TEST_KEEP_ADDRESSES"

func TestMain(m *testing.M) {
	if addrs := os.Getenv(speakerEnv); addrs != "" {
		if err := keep(strings.Split(addrs, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("rapid.checks", "3000"); err != nil { // each takes a millisecond or less; the command line may override it
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// keep binds addresses to lo in the namespace of file descriptor 3 until stdin ends. It prints each new status.
func keep(addrs []string) error {
	a, err := address.New(slog.New(slog.NewTextHandler(os.Stderr, nil)), address.Options{Lifetime: 2 * time.Second, NetNS: 3})
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
		var last []byte
		for range time.Tick(10 * time.Millisecond) {
			if now, err := json.Marshal(a.Status()); err == nil && !bytes.Equal(now, last) {
				_ = out.Encode(a.Status())
				last = now
			}
		}
	}()
	return a.Run(ctx)
}

// speaker is a process that runs keep.
type speaker struct {
	t        *testing.T
	cmd      *exec.Cmd
	log      recorder.Log
	statuses chan []address.Status
}

func startSpeaker(h *nettest.Host, t *testing.T, addrs ...netip.Addr) *speaker {
	t.Helper()
	exe, err := os.Executable()
	h.Must(err)
	ns := os.NewFile(uintptr(dup(h)), "netns")
	defer ns.Close()
	s := &speaker{t: t, cmd: exec.Command(exe), statuses: make(chan []address.Status, 100)}
	var list []string
	for _, addr := range addrs {
		list = append(list, addr.String())
	}
	s.cmd.Env = append(os.Environ(), speakerEnv+"="+strings.Join(list, ","))
	s.cmd.ExtraFiles = []*os.File{ns}
	s.cmd.Stderr = &s.log
	stdin, err := s.cmd.StdinPipe()
	h.Must(err)
	stdout, err := s.cmd.StdoutPipe()
	h.Must(err)
	h.Must(s.cmd.Start())
	go func() {
		defer close(s.statuses)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var status []address.Status
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

func dup(h *nettest.Host) int {
	h.T.Helper()
	fd, err := unix.FcntlInt(uintptr(h.NS), unix.F_DUPFD_CLOEXEC, 0)
	h.Must(err)
	return fd
}

func (s *speaker) signal(sig unix.Signal) { _ = s.cmd.Process.Signal(sig) }

// The kernel removes the addresses of a frozen process, which puts them back when it continues.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	s := startSpeaker(h, t, vip4, vip6)
	await := func(restored int) {
		t.Helper()
		for ok := false; !ok; {
			ok = true
			for _, status := range nettest.Receive(t, s.statuses) {
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
	wait.Until(t, "the addresses expire while it is frozen", func() bool { return h.Find("lo", vip4) == nil && h.Find("lo", vip6) == nil })
	s.signal(unix.SIGCONT)
	await(1)
	if h.Find("lo", vip4) == nil || h.Find("lo", vip6) == nil {
		t.Error("status says bound, but an address is missing")
	}
	wait.Until(t, "both expiries are logged", func() bool { return s.log.Count("it expired") == 2 })
}

// The addresses of a killed process expire unless another process adopts them in time.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	orphan := vip4.Next()
	s := startSpeaker(h, t, vip4, vip6, orphan)
	wait.Until(t, "bound", func() bool {
		return h.Find("lo", vip4) != nil && h.Find("lo", vip6) != nil && h.Find("lo", orphan) != nil
	})
	changes := watch(h, vip4, vip6, orphan)
	s.signal(unix.SIGKILL)

	a, _ := start(h, address.Options{})
	h.Must(a.Bind("lo", vip4))
	h.Must(a.Bind("lo", vip6))
	for {
		c := nettest.Receive(t, changes)
		if c.gone && c.addr == orphan {
			break // expired
		}
		if c.gone {
			t.Fatalf("%s was removed although another process adopted it", c.addr)
		}
	}
	for _, s := range a.Status() {
		if !s.Bound || s.Restored != 0 {
			t.Errorf("status %+v", s)
		}
	}
}
