package nft

import (
	"bufio"
	"context"
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

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/fence"
)

// helperEnv makes the test binary one of the helpers.
const helperEnv = "HERALD_TEST_BALANCER"

var helpers = map[string]func(args []string) error{"balance": balance, "guard": fenceOff}

func TestMain(m *testing.M) {
	if name, args, ok := strings.Cut(os.Getenv(helperEnv), " "); ok {
		if err := helpers[name](strings.Fields(args)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("rapid.checks", "50"); err != nil { // the command line may say otherwise
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// balance carries the service of a site in the process's own namespace until it is killed:
// at the first address, to the others.
func balance(args []string) error {
	p, err := New(slog.New(slog.NewTextHandler(os.Stderr, nil)), Options{Node: "node"})
	if err != nil {
		return err
	}
	s := balancer.Service{Name: "apiserver", Listen: []netip.AddrPort{netip.MustParseAddrPort(args[0])}}
	for _, backend := range args[1:] {
		s.Backends = append(s.Backends, balancer.Backend{Addr: netip.MustParseAddrPort(backend), State: balancer.Serving})
	}
	if err := p.Apply([]balancer.Service{s}); err != nil {
		return err
	}
	fmt.Println("ready")
	p.Run(context.Background())
	return nil
}

// fenceOff closes the fence for addresses, until stdin ends.
func fenceOff(args []string) error {
	f, err := fence.New(slog.New(slog.DiscardHandler), fence.Options{})
	if err != nil {
		return err
	}
	var addrs []netip.Addr
	for _, arg := range args {
		addrs = append(addrs, netip.MustParseAddr(arg))
	}
	if err := f.Guard(addrs...); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// start starts a helper in the machine, and waits until it is ready. kill kills it.
func (m *machine) start(name string, args ...string) (kill func()) {
	m.t.Helper()
	exe, err := os.Executable()
	m.must(err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+name+" "+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	m.must(err)
	stdout, err := cmd.StdoutPipe()
	m.must(err)
	m.in(cmd.Start)
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = stdin.Close()
			_ = cmd.Wait()
		}
	}
	m.t.Cleanup(kill)
	ready := time.AfterFunc(patience, kill)
	defer ready.Stop()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		m.t.Fatalf("the helper says %q, %v", line, err)
	}
	return kill
}
