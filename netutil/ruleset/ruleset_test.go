package ruleset

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
)

// Fault logs a lasting error once, and its end once.
func TestFaultIsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	var fault Fault
	for _, err := range []error{nil, ErrStuck, ErrStuck, errors.New("other"), nil, nil} {
		fault.Log(log, err, "not refreshed", "refreshed again")
	}
	if n := strings.Count(text.String(), "level=ERROR"); n != 2 || strings.Count(text.String(), "refreshed again") != 1 {
		t.Errorf("the log is:\n%s", text.String())
	}
}

// decodeRule returns what encodeRule wrote: chain, comment, expressions and first counter.
func TestRule(t *testing.T) {
	rule := Rule{Comment: "what it does", Exprs: Join(
		Meta(expr.MetaKeyL4PROTO), Equal(6), []expr.Any{&Ct{Ct: expr.Ct{Key: expr.CtKeyPROTODST, Register: 1}, Reply: true}},
		[]expr.Any{&expr.Counter{Packets: 7}}, []expr.Any{&expr.Counter{Packets: 8}},
	)}
	b, err := encodeRule(&nftables.Table{Name: "t", Family: nftables.TableFamilyINet}, "c", rule)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRule(append(make([]byte, 4), b...))
	if err != nil || got.Chain != "c" || !got.Same(rule) || len(got.found) != 5 || got.Packets != 7 {
		t.Errorf("%+v, %v; want %+v", got, err, rule)
	}
}

// Two rules with one comment differ if any part of an expression does, set or not.
func TestSame(t *testing.T) {
	all := []Rule{
		NewRule("x"), NewRule("y"), NewRule("x", In("s")), NewRule("x", NotIn("s")), NewRule("x", In("other")), NewRule("x", Equal(0)), NewRule("x", Equal(1)),
		NewRule("x", NotEqual(1)), NewRule("x", Load(Network, 16, 4)), NewRule("x", Load(Network, 12, 4)), NewRule("x", Load(Network, 12, 4), Equal(1)),
		NewRule("x", []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}), NewRule("x", []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}),
		NewRule("x", []expr.Any{&Ct{Ct: expr.Ct{Key: expr.CtKeyPROTODST, Register: 1}}}), NewRule("x", []expr.Any{&Ct{Ct: expr.Ct{Key: expr.CtKeyPROTODST, Register: 1}, Reply: true}}),
	}
	for i, a := range all {
		b, err := encodeRule(&nftables.Table{Name: "t"}, "c", a)
		if err != nil {
			t.Fatal(err)
		}
		read, err := decodeRule(append(make([]byte, 4), b...))
		for j, other := range all {
			if err != nil || read.Same(other) != (i == j) || other.Same(read) != (i == j) {
				t.Errorf("rules %d and %d: same %t, error %v", i, j, read.Same(other), err)
			}
		}
	}
}

// decodeRule decodes or rejects any answer of the kernel.
func FuzzDecodeRule(f *testing.F) {
	for _, rule := range []Rule{{}, {Comment: "x", Exprs: Join(Load(Network, 16, 4), In("s"), []expr.Any{&expr.Counter{Packets: 1}})}} {
		b, err := encodeRule(&nftables.Table{Name: "t"}, "c", rule)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(make([]byte, 4), b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRule(b); err == nil && len(r.found) > len(b) {
			t.Errorf("%d expressions in %d bytes", len(r.found), len(b))
		}
	})
}

// Try calls f in a namespace with no link but lo, and returns its error.
func TestTry(t *testing.T) {
	failed := errors.New("failed")
	err := Try(func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, link := range links {
			if link.Flags&(net.FlagLoopback|net.FlagUp) != net.FlagLoopback {
				t.Errorf("the namespace has link %s with flags %s", link.Name, link.Flags)
			}
		}
		return failed
	})
	if err != failed {
		t.Errorf("error %v, want %v", err, failed)
	}
}

func TestTryWithoutRights(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has lost its capabilities
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			done <- err
			return
		}
		done <- try(func() error { t.Error("f was called"); return nil })
	}()
	if err := <-done; !errors.Is(err, ErrNotRoot) || !errors.Is(err, unix.EPERM) {
		t.Errorf("without capabilities: error %v, want ErrNotRoot", err)
	}
}

// ForwardDrops finds every chain that drops forwarded packets by policy, whether nft or iptables-nft made it.
func TestForwardDrops(t *testing.T) {
	h := nettest.NewHost(t)
	drops := func() string {
		t.Helper()
		var all []ChainID
		h.Must(netns.In(h.NS, func() (err error) { all, err = ForwardDrops(); return err }))
		return fmt.Sprint(all)
	}
	if got := drops(); got != "[]" {
		t.Errorf("without tables: %s, want no chains", got)
	}
	h.NFT(`
table inet harmless {
	chain forward { type filter hook forward priority 0; policy accept; drop; }
	chain input { type filter hook input priority 0; policy drop; }
	chain mine { drop; }
}
table bridge other {
	chain forward { type filter hook forward priority 0; policy drop; }
}
`)
	if got := drops(); got != "[]" {
		t.Errorf("without a dropping forward policy: %s, want no chains", got)
	}
	h.Run("", "iptables-nft", "-P", "FORWARD", "DROP")
	h.NFT(`
table ip6 six {
	chain pass { type filter hook forward priority 0; policy drop; }
}
table inet firewall {
	chain forward { type filter hook forward priority 10; policy drop; }
}
`)
	if got, want := drops(), "[inet firewall forward ip filter FORWARD ip6 six pass]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
