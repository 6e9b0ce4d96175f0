package fence

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestMain(m *testing.M) {
	if end, ok := helpers[os.Getenv(helperEnv)]; ok {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("rapid.checks", "3000"); err != nil { // the command line may override it
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// host is a new network namespace for a fence.
type host struct{ *nettest.Host }

func newHost(t testing.TB) *host {
	t.Helper()
	return &host{nettest.NewHost(t)}
}

func (h *host) mac(name string) net.HardwareAddr { return h.Link(name).Attrs().HardwareAddr }

// fence makes the host's fence, and removes it at the end of the test.
func (h *host) fence() *Fence {
	h.T.Helper()
	return h.fenceWith(Options{})
}

func (h *host) fenceWith(o Options) *Fence {
	h.T.Helper()
	f, err := NewOver(slog.New(slog.DiscardHandler), &nft{Socket: ruleset.Socket{NetNS: int(h.NS)}, opts: o}, o)
	h.Must(err)
	h.T.Cleanup(func() {
		if err := f.Remove(); err != nil {
			h.T.Error(err)
		}
	})
	return f
}

// opening is the method Open or Accept.
type opening func(until time.Time, addrs ...netip.Addr) error

// open opens addresses for longer than any test.
func (h *host) open(open opening, addrs ...netip.Addr) {
	h.T.Helper()
	h.openFor(time.Hour, open, addrs...)
}

// openFor opens addresses for a time and returns its end. It retries when a busy machine is late.
func (h *host) openFor(long time.Duration, open opening, addrs ...netip.Addr) (until time.Time) {
	h.T.Helper()
	wait.Until(h.T, "opened in time", func() bool {
		until = time.Now().Add(long)
		err := open(until, addrs...)
		if !errors.Is(err, ErrLate) {
			h.Must(err)
		}
		return err == nil
	})
	return until
}

// patience bounds a test's wait for an immediate result.
const patience = 15 * time.Second
