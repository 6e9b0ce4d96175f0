//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/segment"
)

// TestARPHolderFails breaks the holder in every way there is. Another one takes
// the VIP, and keeps it when the first is well again: that costs nothing.
func TestARPHolderFails(t *testing.T) {
	f, holder := newElected(t)
	speaker := func(m string) *lab.Node { return f.Node(m + "-speaker") }
	apiserver := func(m string) *lab.Node { return f.Node(m + "-apiserver") }
	link := func(m string) *lab.Link { return f.Link(m, "lan") }
	boot := func(n *lab.Node) error {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		return n.Boot(ctx)
	}
	for _, fault := range []struct {
		name     string
		do, undo func(m string) error
	}{
		{"apiserver killed", func(m string) error { return apiserver(m).Kill() }, func(m string) error { return boot(apiserver(m)) }},
		{"apiserver frozen", func(m string) error { return apiserver(m).Freeze() }, func(m string) error { return apiserver(m).Thaw() }},
		{"speaker killed", func(m string) error { return speaker(m).Kill() }, func(m string) error { return boot(speaker(m)) }},
		{"speaker frozen", func(m string) error { return speaker(m).Freeze() }, func(m string) error { return speaker(m).Thaw() }},
		{"parted from the others", f.alone, func(string) error { return f.Part("lan") }},
		{"gossip cut", func(m string) error { return f.gossip(t, m, gossipCut) }, func(m string) error { return f.gossip(t, m, gossipWhole) }},
		{"link cut", func(m string) error { return link(m).Cut() }, func(m string) error { return link(m).Heal() }},
		{"link cut outwards", func(m string) error { return link(m).CutFrom(m) }, func(m string) error { return link(m).Heal() }},
		{"link cut inwards", func(m string) error { return link(m).CutFrom("lan") }, func(m string) error { return link(m).Heal() }},
		{"link without carrier", func(m string) error { return link(m).Down() }, func(m string) error { return link(m).Heal() }},
		{"power cut", func(m string) error { return f.Node(m).PowerOff() }, func(m string) error {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			return f.Node(m).PowerOn(ctx)
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			load := f.connect(t)
			broken := f.seen.Clock()
			must(t, fault.do(holder))
			next := f.held(t, f.others(holder)...)
			f.asked(t, 80) // longer than an attempt to connect may take
			moved := f.seen.Clock()
			outage := load.mark()
			must(t, fault.undo(holder))
			f.ready(t, holder)
			f.asked(t, 100)
			f.stays(t, next, moved)
			t.Logf("%s answered for both addresses %v later; the client was without for %v", next, f.since(broken), outage)
			load.none(t)
			holder = next
		})
	}
}

// TestARPLeftover kills the holder's speaker and flushes its nftables, and so leaves
// nobody and nothing to keep its kernel from answering. The address goes by itself.
func TestARPLeftover(t *testing.T) {
	f, holder := newElected(t)
	f.blind = []segment.Rule{segment.TwoHolders, segment.Trespass}
	must(t, f.speaker(holder).Kill())
	_, err := run(t, f.Node(holder), "nft", "flush", "ruleset")
	must(t, err)
	killed := f.seen.Clock()
	next := f.held(t, f.others(holder)...)
	eventually(t, soon, func() error {
		out, err := run(t, f.Node(holder), "ip", "address", "show", "dev", "eth1")
		for _, vip := range f.vips() {
			if err == nil && strings.Contains(out, vip.String()+"/") {
				err = fmt.Errorf("%v is left on %s", vip, holder)
			}
		}
		return err
	})
	gone := f.seen.Clock()
	f.asked(t, 100)
	f.stays(t, next, gone)
	t.Logf("both were gone %v after the kill; %s had answered for them from %v on",
		(gone - killed).Round(time.Millisecond), next, f.since(killed))
}

// TestARPPartOfThree parts one that is not the holder from the two others, and
// lets one of them hear the holder no more: nothing moves.
func TestARPPartOfThree(t *testing.T) {
	f, holder := newElected(t)
	lone, other := f.others(holder)[0], f.others(holder)[1]
	for _, fault := range []struct {
		name string
		do   func() error
	}{
		{"one of the others alone", func() error { return f.alone(lone) }},
		{"one does not hear the holder", func() error {
			return f.Link(lone, "lan").Deafen(lone, f.Link(holder, "lan").MAC(holder))
		}},
		{"the holder does not hear one", func() error {
			return f.Link(holder, "lan").Deafen(holder, f.Link(other, "lan").MAC(other))
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			load := f.connect(t)
			from := f.seen.Clock()
			must(t, fault.do())
			f.asked(t, int(5*lease/(10*time.Millisecond)))
			must(t, f.Part("lan"))
			f.ready(t, lone)
			f.asked(t, 100)
			f.stays(t, holder, from)
			load.none(t)
		})
	}
}

// TestARPFirewall lets a firewall drop the UDP of a master that is not the holder,
// and no TCP: it says so, once, and the VIP does not move.
func TestARPFirewall(t *testing.T) {
	f, holder := newElected(t)
	behind := f.others(holder)[0]
	from := f.seen.Clock()
	must(t, f.gossip(t, behind, udpCut))
	eventually(t, soon, func() error {
		e, err := f.election(t, behind)
		if err != nil {
			return err
		}
		for _, m := range e.Members {
			if !m.Self && (m.Alive || !strings.Contains(m.Reason, "UDP does not get through between this node and "+m.Name)) {
				return fmt.Errorf("%s says of %s, alive %v: %q", behind, m.Name, m.Alive, m.Reason)
			}
		}
		return nil
	})
	f.asked(t, 300)
	f.stays(t, holder, from)
	must(t, f.gossip(t, behind, gossipWhole))
	f.ready(t, behind)
	for _, m := range f.others(behind) {
		if n := f.logged(t, behind, "UDP does not get through .*member="+m+" "); n != 1 {
			t.Errorf("%s named %s %d times, want once", behind, m, n)
		}
	}
}

// since is how long after an instant the last new holder had answered for both addresses.
func (f *flat) since(instant time.Duration) (last time.Duration) {
	trace := f.seen.Trace()
	for _, vip := range f.vips() {
		reigns := trace.Reigns(vip, segment.DefaultLimits())
		last = max(last, reigns[len(reigns)-1].First.At-instant)
	}
	return last.Round(time.Millisecond)
}

// What may be done to a master's gossip.
const (
	gossipCut = `
add table inet lab
add chain inet lab in { type filter hook input priority 0; }
add chain inet lab out { type filter hook output priority 0; }
add rule inet lab in meta l4proto { tcp, udp } th dport 7946 drop
add rule inet lab out meta l4proto { tcp, udp } th dport 7946 drop`
	udpCut = `
add table inet lab
add chain inet lab in { type filter hook input priority 0; }
add rule inet lab in udp dport 7946 drop`
	gossipWhole = "delete table inet lab"
)

func (f *flat) gossip(t *testing.T, master, rules string) error {
	t.Helper()
	_, err := run(t, f.Node(master), "nft", rules)
	return err
}
