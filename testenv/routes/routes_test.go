package routes

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
)

// TestFollow checks that the watch reports every change of a followed route once, and no other.
func TestFollow(t *testing.T) {
	topology := &clab.Topology{Name: "routes", Links: []clab.Link{{
		A: clab.Endpoint{Node: "a", Interface: "eth1"}, B: clab.Endpoint{Node: "b", Interface: "eth1"}, MTU: 1500,
	}}}
	for _, name := range []string{"a", "b"} {
		topology.Nodes = append(topology.Nodes, clab.Node{Name: name, Kind: clab.Linux, Image: "idle", Hostname: name})
	}
	l, err := lab.Start(t.Context(), slog.New(slog.DiscardHandler), topology, lab.Options{
		Dir: t.TempDir(), Images: map[string]lab.Image{"idle": func(clab.Node) (lab.Program, error) { return lab.Program{}, nil }},
	})
	must.Do(t, err)
	defer func() { must.Do(t, l.Close()) }()
	ip := func(command string) {
		t.Helper()
		must.Get[string](t)(l.Node("a").Run(t.Context(), append([]string{"ip"}, strings.Fields(command)...)...))
	}
	ip("addr add 10.0.0.1/24 dev eth1")
	ip("route add 10.99.0.1 via 10.0.0.2")

	w := must.Get[*Watch](t)(Follow(l.Node("a"), netip.MustParsePrefix("10.99.0.0/24"), nil))
	prefix := netip.MustParsePrefix("10.99.0.1/32")
	await := func(prefixes int, hops ...string) {
		t.Helper()
		var want []netip.Addr
		for _, h := range hops {
			want = append(want, netip.MustParseAddr(h))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Await(ctx, func(v View) bool { return slices.Equal(v.Hops(prefix), want) && v.Prefixes() == prefixes }); err != nil {
			t.Fatalf("%v is not over %v: %v", prefix, want, err)
		}
	}
	await(1, "10.0.0.2")
	ip("route add 10.98.0.1 via 10.0.0.2")
	ip("route replace 10.99.0.1 nexthop via 10.0.0.3 nexthop via 10.0.0.2")
	await(1, "10.0.0.2", "10.0.0.3")
	ip("route replace 10.99.0.1 nexthop via 10.0.0.2 nexthop via 10.0.0.3")
	ip("route del 10.99.0.1")
	await(0)
	must.Do(t, w.Sync(t.Context()))
	must.Do(t, w.Close())
	var got []string
	for _, c := range w.Changes() {
		got = append(got, fmt.Sprintf("%s: %v %t", c.Prefix, c.Now, c.Existing))
	}
	want := []string{"10.99.0.1/32: [10.0.0.2] true", "10.99.0.1/32: [10.0.0.2 10.0.0.3] false", "10.99.0.1/32: [] false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := w.through[netip.MustParseAddr("10.0.0.2")]; n != 0 {
		t.Errorf("%d routes lead over an unused next hop", n)
	}
}
