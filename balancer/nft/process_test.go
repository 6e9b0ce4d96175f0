package nft

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/fence"
)

// helperEnv names the environment variable that makes the test binary run a helper.
const helperEnv = "HERALD_TEST_BALANCER"

var helpers = map[string]func(args []string) error{"balance": balance, "guard": fenceOff, "confined": confined}

func TestMain(m *testing.M) {
	if name, args, ok := strings.Cut(os.Getenv(helperEnv), " "); ok {
		if err := helpers[name](strings.Fields(args)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("rapid.checks", "50"); err != nil { // the command line takes precedence
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// balance runs a data plane in the process's namespace until it is killed. Its service listens at the first address; the
// others are the backends.
func balance(args []string) error {
	p := New(slog.New(slog.NewTextHandler(os.Stderr, nil)), Options{Node: "node"})
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

// fenceOff closes the fence for addresses until stdin ends.
func fenceOff(args []string) error {
	f, err := fence.New(slog.New(slog.DiscardHandler), fence.Options{})
	if err != nil {
		return err
	}
	var addrs []netip.Addr
	for _, arg := range args {
		addrs = append(addrs, netip.MustParseAddr(arg))
	}
	if err := f.Filter(addrs...); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// confined balances and bridges an IPv4 and an IPv6 VIP with a read-only /proc/sys, as in a pod. IPv6 forwarding cannot be
// switched on there, and confined fails unless the errors say so.
func confined([]string) error {
	const settings = "/proc/sys"
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(settings, settings, "", unix.MS_BIND, ""),
		unix.Mount("", settings, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
	); err != nil {
		return err
	}
	p := New(slog.New(slog.DiscardHandler), Options{Node: "node"})
	service := func(name string, listen netip.AddrPort) balancer.Service {
		return balancer.Service{Name: name, Listen: []netip.AddrPort{listen}}
	}
	const fault = "read-only file system: on the host, sysctl -w net/ipv6/conf/all/forwarding=1"
	err := p.Apply([]balancer.Service{service("four", vip4), service("six", vip6)})
	if said := fmt.Sprint(err); !strings.HasPrefix(said, "balancer six serves this host's own clients only: ") || !strings.HasSuffix(said, fault) || strings.Contains(said, "four") {
		return fmt.Errorf("error of the balancer: %q", said)
	}
	err = p.Bridge().Prepare(map[netip.Addr][]netip.Addr{
		vip4.Addr(): {netip.MustParseAddr("10.9.0.3")}, vip6.Addr(): {netip.MustParseAddr("fd00:9::3")},
	})
	if said := fmt.Sprint(err); !strings.HasSuffix(said, fault) {
		return fmt.Errorf("error of the bridge: %q", said)
	}
	if len(p.owner.want.masters[vip4.Addr()]) != 1 || len(p.owner.want.masters[vip6.Addr()]) != 0 {
		return fmt.Errorf("masters of the bridge: %v", p.owner.want.masters)
	}
	fmt.Println("ready")
	return nil
}

// start starts a helper in the machine and waits until it is ready.
func (m *machine) start(name string, args ...string) (kill func()) {
	m.T.Helper()
	exe, err := os.Executable()
	m.Must(err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+name+" "+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS} // its mounts are private
	stdin, err := cmd.StdinPipe()
	m.Must(err)
	stdout, err := cmd.StdoutPipe()
	m.Must(err)
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
	m.T.Cleanup(kill)
	ready := time.AfterFunc(patience, kill)
	defer ready.Stop()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		m.T.Fatalf("output of the helper: %q, %v", line, err)
	}
	return kill
}
