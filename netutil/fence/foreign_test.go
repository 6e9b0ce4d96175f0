package fence

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herald-vip/herald/netutil/ruleset"
	namespace "github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/wait"
)

// foreign are tables of other programs, of the same families and with names like Herald's.
const foreign = `
table inet filter {
	set herald { type ipv4_addr; flags timeout; elements = { 10.9.0.100 timeout 1h } }
	chain input { type filter hook input priority 0; policy accept; ip saddr @herald counter accept comment "mine"; }
}
table arp filter {
	chain input { type filter hook input priority 0; policy accept; arp operation reply counter accept; }
}
table ip herald {
	set vips4 { type ipv4_addr; elements = { 10.9.0.100 } }
	chain output { type filter hook output priority 0; policy accept; ip daddr @vips4 counter accept; }
}
`

// others lists all tables except Herald's.
func (h *host) others() string {
	h.T.Helper()
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(h.Run("", "nft", "list", "tables")), "\n") {
		if line != "table arp herald" && line != "table inet herald" {
			out = append(out, h.Run("", "nft", append([]string{"--stateless", "--handle", "list"}, strings.Fields(line)...)...))
		}
	}
	return strings.Join(out, "")
}

// No method touches other programs' tables.
func TestOthersUntouched(t *testing.T) {
	h := newHost(t)
	h.NFT(foreign)
	before := h.others()
	f := h.fence()
	for name, do := range map[string]func() error{
		"Filter": func() error { return f.Filter(vip.addrs()...) },
		"Open":   func() error { h.open(f.Open, vip.addrs()...); return nil },
		"Accept": func() error { h.open(f.Accept, vip.addrs()...); return nil },
		"Close":  func() error { return f.Close(vip.addrs()...) },
		"Check":  f.Check,
		"New": func() error {
			_, err := NewOver(f.log, &nft{Socket: ruleset.Socket{NetNS: int(h.NS)}}, Options{})
			return err
		},
		"Remove": f.Remove,
	} {
		h.Must(f.Filter(vip.addrs()...))
		h.Must(do())
		if after := h.others(); after != before || !strings.Contains(after, "mine") {
			t.Errorf("%s changes other tables: before:\n%s\nafter:\n%s", name, before, after)
		}
	}
	h.Must(f.Remove())
	if got := h.Run("", "nft", "--stateless", "--handle", "list", "ruleset"); strings.Contains(got, "arp herald") || strings.Contains(got, "inet herald") {
		t.Errorf("Remove leaves:\n%s", got)
	}
	h.Must(f.Remove()) // again
}

// vandalism lists changes of Herald's tables by other programs.
var vandalism = []string{
	"flush ruleset",
	"delete table arp herald",
	"delete table inet herald",
	"add table arp herald { flags dormant; }",
	"add table inet herald { flags dormant; }",
	"flush table inet herald",
	"flush chain arp herald output",
	"flush chain inet herald output; delete chain inet herald output",
	"flush set arp herald vips4",
	"flush set inet herald vips6",
	"delete element inet herald vips4 { 10.9.0.100 }",
	"add element inet herald vips4 { 10.9.0.1 }",
	"insert rule inet herald output accept",
	"flush chain arp herald output; add rule arp herald output accept; add rule arp herald output accept",
}

// Check puts back changed tables, closes their addresses, and counts it. Without a change addresses stay open.
func TestVandals(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	s.node.Must(f.Filter(vip.addrs()...))
	var restored uint64
	for _, command := range vandalism {
		s.node.open(f.Open, vip.addrs()...)
		s.node.Must(f.Check())
		s.node.NFT(foreign)
		s.node.NFT(command)
		s.node.Must(f.Check())
		s.node.Must(f.Check()) // installs the filters of addresses that were open
		restored++
		if got := f.status(); got.Restored != restored {
			t.Fatalf("after %q: status %+v, want Restored %d", command, got, restored)
		}
		s.expect("after "+command, false, false)
	}
	s.node.open(f.Open, vip.addrs()...)
	s.expect("open again", true, true)
}

// A flush on the holder breaks no connection: open addresses stay open until their locks are renewed.
func TestFlushCostsNothing(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	s.node.Must(f.Filter(vip.addrs()...))
	s.node.open(f.Open, vip.addrs()...)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		f.Keep(ctx, func() {
			for errors.Is(f.Open(time.Now().Add(time.Hour), vip.addrs()...), ErrLate) {
			}
		})
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	var l net.Listener
	var err error
	s.node.In(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(vip[0].Addr(), 0).String()) })
	s.node.Must(err)
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close() })

	var made, failed atomic.Int64
	running.Go(func() {
		for ctx.Err() == nil {
			err := namespace.In(s.neighbour.NS, func() error {
				c, err := net.DialTimeout("tcp", l.Addr().String(), 900*time.Millisecond) // less than the retransmission of a SYN
				if err == nil {
					c.Close()
				}
				return err
			})
			if made.Add(1); err != nil {
				failed.Add(1)
			}
		}
	})
	for judged, flushes := 0, uint64(1); judged < 30; flushes++ {
		lost, late := failed.Load(), f.status().Late
		s.node.NFT("flush ruleset")
		wait.Until(t, "the tables are back and no filter is pending", func() bool { return f.status().Restored == flushes && len(f.unfiltered()) == 0 })
		began := made.Load()
		wait.Until(t, "earlier connections have ended", func() bool { return made.Load() >= began+2 })
		switch lost = failed.Load() - lost; {
		case f.status().Late > late && flushes < 60: // the machine was too busy to renew a lock in time
			t.Logf("flush %d ignored: a renewal was late; %d connections failed", flushes, lost)
		case lost > 0:
			t.Errorf("flush %d: %d connections failed", flushes, lost)
			fallthrough
		default:
			judged++
		}
	}
	t.Logf("%d connections", made.Load())
	s.expect("after the flushes", true, true)
}

// ARP requests and answers are each filtered without the other chain.
func TestBothWays(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	for _, chain := range []string{"input", "output"} {
		s.node.Must(f.Filter(vip.addrs()...))
		s.node.NFT("flush chain arp herald " + chain)
		s.expect("without "+chain, false, false)
	}
}

// Methods that need the tables put them back.
func TestGoneTables(t *testing.T) {
	s := newWire(t)
	f := s.node.fence()
	filter := func() { s.node.Must(f.Filter(vip.addrs()...)) }
	filter()
	flush := func() { s.node.NFT("flush ruleset") }
	flush()
	s.node.open(f.Open, vip.addrs()...)
	s.expect("opened", true, true)
	flush()
	s.expect("flushed", true, true)
	s.node.open(f.Accept, vip.addrs()...)
	s.expect("accepting", false, true)
	flush()
	s.node.Must(f.Close(vip.addrs()...))
	s.expect("closed", false, false)
	flush()
	filter()
	s.expect("filtered", false, false)
	if got := f.status(); got.Filtered != 2 || got.Restored != 4 {
		t.Errorf("status %+v", got)
	}
}

// A new process adopts the tables of its predecessor: addresses are filtered and closed.
func TestPredecessor(t *testing.T) {
	s := newWire(t)
	before := s.node.fence()
	s.node.Must(before.Filter(vip.addrs()...))
	s.node.open(before.Open, vip.addrs()...)
	after := s.node.fence()
	s.expect("adopted", false, false)
	s.node.Must(after.Check())
	if got := after.status(); got.Filtered != 2 || got.Restored != 0 {
		t.Errorf("status %+v", got)
	}
	s.node.open(after.Open, vip.addrs()...)
	s.expect("opened", true, true)
	s.node.Must(after.Filter())
	s.expect("not filtered", true, true)
}
