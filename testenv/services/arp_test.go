//go:build e2e

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/segment"
)

// flat is a cluster of five nodes, two of them without a vote, with Services whose addresses
// one node each answers for, and an observer who judges to the end who does.
type flat struct {
	*Lab
	vips []netip.Addr
	seen *segment.Observer
}

// newFlat boots the cluster, creates so many Services and waits until each has a holder.
func newFlat(t *testing.T, services int) *flat {
	t.Helper()
	o := options(t, &Herald{Binary: "../../bin/race/herald", CRDs: "../../manifests/crds"})
	o.Nodes = 5
	f := &flat{Lab: boot(t, o)}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for _, n := range f.Members() {
		must(t, Eventually(ctx, func() error { return f.acquainted(ctx, n) }))
	}
	for i := range services {
		name := fmt.Sprintf("flat-%d", i)
		must(t, f.Create(ctx, Service{Name: name, Pool: PoolARP, Endpoints: f.Members()}))
		vip, err := f.AddressOf(ctx, name)
		must(t, err)
		f.vips = append(f.vips, vip)
	}
	target := segment.Target{
		Link: "eth1", VIPs: f.vips, Senders: []netip.Addr{netip.MustParseAddr("10.5.0.128")}, Masters: make(map[string]net.HardwareAddr),
	}
	for _, n := range f.Members() {
		target.Masters[n] = f.Link(n, Segment).MAC(n)
	}
	var err error
	f.seen, err = segment.Observe(f.Node("o1"), target)
	must(t, err)
	t.Cleanup(func() {
		for _, v := range segment.Judge(f.seen.Trace(), segment.DefaultLimits()) {
			if v.Rule != segment.Trespass { // any node may take packets to a Service
				t.Errorf("%v\n%s", v, strings.Join(v.Around, "\n"))
			}
		}
		must(t, f.seen.Close())
	})
	f.held(t, f.Members()...)
	return f
}

// acquainted fails while a node has not heard of all others: what it is given then, it
// may take although another would have come first.
func (f *flat) acquainted(ctx context.Context, node string) error {
	out, err := f.Speaker(node).Run(ctx, "herald", "status", "-o", "json")
	if err != nil {
		return err
	}
	var s admin.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return err
	}
	if s.Election == nil {
		return fmt.Errorf("%s takes no part in an election", node)
	}
	alive := 0
	for _, m := range s.Election.Members {
		if m.Alive {
			alive++
		}
	}
	if want := len(f.Members()); alive != want {
		return fmt.Errorf("%s knows of %d members that are alive, want %d", node, alive, want)
	}
	return nil
}

// holders are the nodes that answer now, in the order of the addresses; empty for nobody.
func (f *flat) holders() (list []string) {
	for _, vip := range f.vips {
		n, _ := f.seen.Holder(vip)
		list = append(list, n)
	}
	return list
}

// held waits until each address is answered for by one of these nodes, and returns by which.
func (f *flat) held(t *testing.T, nodes ...string) (list []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must(t, Eventually(ctx, func() error {
		list = f.holders()
		if slices.ContainsFunc(list, func(n string) bool { return !slices.Contains(nodes, n) }) {
			return fmt.Errorf("the addresses are answered for by %q, want %q to", list, nodes)
		}
		return nil
	}))
	return list
}

// without are the members but for one.
func (f *flat) without(node string) []string {
	return slices.DeleteFunc(f.Members(), func(n string) bool { return n == node })
}

// busiest is the node that answers for most addresses.
func (f *flat) busiest(t *testing.T) string {
	t.Helper()
	count := make(map[string]int)
	best := ""
	for _, n := range f.held(t, f.Members()...) {
		if count[n]++; best == "" || count[n] > count[best] {
			best = n
		}
	}
	return best
}

// leaves has something happen to a node, and wants its addresses to go to others, and all else
// to stay. It returns how long the longest of them was answered for by nobody.
func (f *flat) leaves(t *testing.T, node string, do func() error) time.Duration {
	t.Helper()
	before, from := f.held(t, f.Members()...), f.seen.Clock()
	must(t, do())
	after := f.held(t, f.without(node)...)
	for i, n := range before {
		if n != node && after[i] != n {
			t.Errorf("%s went from %s to %s, though nothing happened to %s", f.vips[i], n, after[i], n)
		}
	}
	var longest time.Duration
	for _, vip := range f.vips {
		for _, s := range f.seen.Trace().Silences(vip, 3) {
			if s.To > from {
				longest = max(longest, s.To-s.From)
			}
		}
	}
	t.Logf("%s: %q, then %q, after %v", node, before, after, longest.Round(time.Millisecond))
	return longest
}

// load connects to all addresses from c2, each every 20 ms, until failed is called.
func (f *flat) load(t *testing.T) (failed func() int) {
	t.Helper()
	var mu sync.Mutex
	attempts, failures := 0, 0
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, vip := range f.vips {
		p := &probe.Prober{
			Target: net.JoinHostPort(vip.String(), fmt.Sprint(Port)), Dial: f.Node("c2").DialContext, Keep: -1,
			Interval: 20 * time.Millisecond, Timeout: 500 * time.Millisecond,
			OnEvent: func(e probe.Event) {
				mu.Lock()
				defer mu.Unlock()
				if attempts++; e.Attempt.Outcome.Failed() {
					failures++
				}
			},
		}
		running.Go(func() {
			if _, err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	made := func() int { mu.Lock(); defer mu.Unlock(); return attempts }
	more := func() { // a hundred connections more
		want := made() + 100
		must(t, Eventually(t.Context(), func() error {
			if n := made(); n < want {
				return fmt.Errorf("%d connections were made, want %d", n, want)
			}
			return nil
		}))
	}
	more()
	return func() int {
		more()
		stop()
		t.Logf("%d of %d connections failed", failures, attempts)
		return failures
	}
}

// herald runs herald's command line on a node.
func (f *flat) herald(t *testing.T, node string, args ...string) error {
	_, err := f.Speaker(node).Run(t.Context(), append([]string{"herald"}, args...)...)
	return err
}

// TestARP follows the addresses of Services over the nodes of a flat layer 2, as nodes are
// drained, excluded, frozen, cut off and lose their power: never do two answer for one.
func TestARP(t *testing.T) {
	f := newFlat(t, 6)
	ctx := t.Context()
	t.Run("spread", func(t *testing.T) {
		if nodes := slices.Compact(slices.Sorted(slices.Values(f.holders()))); len(nodes) < 3 {
			t.Errorf("%d addresses are all with %q", len(f.vips), nodes)
		}
	})
	t.Run("only the Service is reached", func(t *testing.T) {
		for _, vip := range f.vips {
			must(t, connect(ctx, f.Node("c2"), vip))
			c, err := f.Node("c2").DialContext(ctx, "tcp", netip.AddrPortFrom(vip, serverPort).String())
			if err == nil {
				c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("port %d of the holder of %s: %v, want it refused", serverPort, vip, err)
			}
		}
	})
	t.Run("drain", func(t *testing.T) {
		n, failed := f.busiest(t), f.load(t)
		f.leaves(t, n, func() error { return f.herald(t, n, "drain") })
		after := f.held(t, f.without(n)...)
		must(t, f.herald(t, n, "undrain"))
		if n := failed(); n > 0 {
			t.Errorf("%d connections failed", n)
		}
		if now := f.held(t, f.Members()...); !slices.Equal(now, after) {
			t.Errorf("%q came back, and the addresses moved from %q to %q", n, after, now)
		}
	})
	t.Run("excluded", func(t *testing.T) {
		n, failed := f.busiest(t), f.load(t)
		f.leaves(t, n, func() error { return f.Exclude(ctx, n, true) })
		must(t, f.Exclude(ctx, n, false))
		if n := failed(); n > 0 {
			t.Errorf("%d connections failed", n)
		}
	})
	t.Run("frozen", func(t *testing.T) {
		n := f.busiest(t)
		f.leaves(t, n, f.Speaker(n).Freeze)
		must(t, f.Speaker(n).Thaw())
		f.held(t, f.without(n)...)
	})
	t.Run("parted", func(t *testing.T) {
		n := f.busiest(t)
		f.leaves(t, n, func() error { return f.Part(Segment, []string{n}, f.without(n)) })
		must(t, f.Part(Segment))
		f.held(t, f.without(n)...)
	})
	t.Run("killed", func(t *testing.T) {
		n := f.busiest(t)
		f.leaves(t, n, f.Speaker(n).Kill)
		must(t, f.Speaker(n).Boot(ctx))
	})
	t.Run("API away", func(t *testing.T) {
		failed := f.load(t)
		must(t, f.Node("api-apiserver").Kill())
		n := f.busiest(t)
		f.leaves(t, n, func() error { return f.herald(t, n, "drain") })
		must(t, f.herald(t, n, "undrain"))
		must(t, f.Node("api-apiserver").Boot(ctx))
		if n := failed(); n > 0 {
			t.Errorf("%d connections failed", n)
		}
	})
	t.Run("power loss", func(t *testing.T) {
		n := f.busiest(t)
		f.leaves(t, n, f.Node(n).PowerOff)
		must(t, f.Node(n).PowerOn(ctx))
	})
}
