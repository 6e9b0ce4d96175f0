//go:build e2e

package services

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/e2e/witness"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/services"
)

// flat is a cluster of five nodes, two of them without a vote. One node answers for
// each Service address, and an observer judges that to the end.
type flat struct {
	*services.Lab
	vips    []netip.Addr
	seen    *holders.Observer
	witness *witness.Witness
}

// newFlat boots the cluster, creates this many Services and waits until each has a holder.
func newFlat(t *testing.T, many int) *flat {
	t.Helper()
	f := &flat{Lab: startCluster(t, services.Options{Nodes: 5, Dir: t.TempDir()}, func(_, file string) string {
		return strings.Replace(file, "election:\n", "election:\n  lease: 3s\n", 1) // long enough to renew on a busy machine
	})}
	for _, n := range f.Members() {
		f.acquainted(t, n)
	}
	ctx := site.Context(t)
	for i := range many {
		name := fmt.Sprintf("flat-%d", i)
		site.Must(t, f.Create(ctx, services.Service{Name: name, Pool: services.PoolARP, Endpoints: f.Members()}))
		vip := site.Get[netip.Addr](t)(f.AddressOf(ctx, name))
		f.vips = append(f.vips, vip)
	}
	judge := &site.Flat{Lab: f.Lab.Lab, Blind: []holders.Rule{holders.Trespass}} // any node may accept packets to a Service
	judge.Observe(t, holders.On(f.Lab.Lab, f.Members(), f.vips, netip.MustParseAddr("10.5.0.128")))
	f.seen, f.witness = judge.Seen, site.StartWitness(t)
	f.held(t, f.Members()...)
	return f
}

// acquainted waits until a node knows all others: earlier, it may take addresses that
// others rank first for.
func (f *flat) acquainted(t *testing.T, node string) {
	t.Helper()
	site.Speaker{Node: f.Speaker(node)}.Shows(t, func(s admin.Status) error {
		alive := 0
		if s.Election != nil {
			for _, m := range s.Election.Members {
				if m.Alive {
					alive++
				}
			}
		}
		want := len(f.Members())
		return site.ErrorIf(alive != want, "%s knows of %d members that are alive, want %d", node, alive, want)
	})
}

// holders returns the answering nodes, in the order of the addresses; empty for none.
func (f *flat) holders() (list []string) {
	for _, vip := range f.vips {
		n, _ := f.seen.Holder(vip)
		list = append(list, n)
	}
	return list
}

// held waits until one of these nodes answers for each address, and returns these nodes.
func (f *flat) held(t *testing.T, nodes ...string) (list []string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		list = f.holders()
		return site.ErrorIf(slices.ContainsFunc(list, func(n string) bool { return !slices.Contains(nodes, n) }),
			"the addresses are answered for by %q, want %q to", list, nodes)
	})
	return list
}

// without returns the other members.
func (f *flat) without(node string) []string {
	return slices.DeleteFunc(f.Members(), func(n string) bool { return n == node })
}

// busiest returns the node that answers for most addresses.
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

// leaves takes a node out of service by do, and checks that its addresses go to
// others, and all other addresses stay. It returns the nodes that answer then, and ends by undo.
func (f *flat) leaves(t *testing.T, node string, do, undo func() error) (after []string) {
	t.Helper()
	defer func() { site.Must(t, undo()) }() // a test without a verdict ends early
	began, before := time.Now(), f.held(t, f.Members()...)
	site.Must(t, do())
	after = f.held(t, f.without(node)...)
	for i, n := range before {
		if n != node && after[i] != n {
			site.FailTiming(t, f.witness.Starved(began), "%s went from %s to %s, although no fault hit %s", f.vips[i], n, after[i], n)
		}
	}
	return after
}

// load connects to all addresses from c2, each every 20 ms, until none is called,
// which checks that no connection failed.
func (f *flat) load(t *testing.T) (none func()) {
	t.Helper()
	var probers []*probe.Prober
	for _, vip := range f.vips {
		probers = append(probers, &probe.Prober{
			Target: net.JoinHostPort(vip.String(), fmt.Sprint(services.Port)), Dial: f.Node("c2").DialContext,
			Interval: 20 * time.Millisecond, Timeout: 500 * time.Millisecond,
		})
	}
	began := time.Now()
	c := site.Connect(t, probers...)
	c.GoesOn(t, 100)
	return func() {
		t.Helper()
		c.GoesOn(t, 100)
		c.End()
		c.None(t, began)
	}
}

// herald returns a run of one of herald's commands on a node.
func (f *flat) herald(t *testing.T, node, command string) func() error {
	return func() error {
		_, err := site.Run(t, f.Speaker(node), "herald", command)
		return err
	}
}

// TestServiceARP follows the addresses of Services over the nodes of a flat layer 2,
// as nodes are drained, excluded, frozen, cut off and lose their power. Two nodes
// never answer for one address.
func TestServiceARP(t *testing.T) {
	f := newFlat(t, 6)
	ctx := t.Context()
	t.Run("spread", func(t *testing.T) { // the nodes depend on which of them learns of a Service first
		if nodes := slices.Compact(slices.Sorted(slices.Values(f.holders()))); len(nodes) < 2 {
			t.Errorf("%d addresses are all with %q", len(f.vips), nodes)
		}
	})
	t.Run("only the Service is reached", func(t *testing.T) {
		for _, vip := range f.vips {
			site.Must(t, f.Node("c2").Reaches(ctx, netip.AddrPortFrom(vip, services.Port).String()))
			err := f.Node("c2").Reaches(ctx, netip.AddrPortFrom(vip, 8080).String())
			if err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("port 8080 of the holder of %s: %v, want it refused", vip, err)
			}
		}
	})
	t.Run("apart", f.testApart)
	t.Run("drain", func(t *testing.T) {
		n, none := f.busiest(t), f.load(t)
		after := f.leaves(t, n, f.herald(t, n, "drain"), f.herald(t, n, "undrain"))
		none()
		if now := f.held(t, f.Members()...); !slices.Equal(now, after) {
			t.Errorf("%q came back, and the addresses moved from %q to %q", n, after, now)
		}
	})
	t.Run("excluded", func(t *testing.T) {
		n, none := f.busiest(t), f.load(t)
		f.leaves(t, n, func() error { return f.Exclude(ctx, n, true) }, func() error { return f.Exclude(ctx, n, false) })
		none()
	})
	t.Run("frozen", func(t *testing.T) {
		n := f.busiest(t)
		f.leaves(t, n, f.Speaker(n).Freeze, f.Speaker(n).Thaw)
		f.held(t, f.without(n)...)
	})
	t.Run("parted", func(t *testing.T) {
		n := f.busiest(t)
		f.leaves(t, n, func() error { return f.Part(services.LAN, []string{n}, f.without(n)) }, func() error { return f.Part(services.LAN) })
		f.held(t, f.without(n)...)
	})
	t.Run("killed", func(t *testing.T) {
		n := f.busiest(t)
		f.leaves(t, n, f.Speaker(n).Kill, func() error { return f.Speaker(n).Boot(ctx) })
	})
	t.Run("API away", func(t *testing.T) {
		none := f.load(t)
		site.Must(t, f.Node("api-apiserver").Kill())
		defer func() { site.Must(t, f.Node("api-apiserver").Boot(ctx)) }()
		n := f.busiest(t)
		f.leaves(t, n, f.herald(t, n, "drain"), f.herald(t, n, "undrain"))
		none()
	})
	t.Run("power loss", func(t *testing.T) {
		n := f.busiest(t)
		f.leaves(t, n, f.Node(n).PowerOff, func() error { return f.Node(n).PowerOn(ctx) })
	})
}

// testApart: the two addresses of a Service are on different nodes, also after these
// have left one by one.
func (f *flat) testApart(t *testing.T) {
	ctx := t.Context()
	site.Must(t, f.API.Patch(ctx, pools+"/"+services.PoolARP, json.RawMessage(`{"spec": {"addresses": ["`+services.ByARP+`", "fd00:5::100-fd00:5::1ff"]}}`)))
	var names []string
	for i := range 6 {
		name := fmt.Sprintf("pair-%d", i)
		names = append(names, name)
		site.Must(t, f.Create(ctx, services.Service{
			Name: name, Pool: services.PoolARP, Endpoints: f.Members(), Edit: families(corev1.IPFamilyPolicyRequireDualStack),
		}))
		slice(t, f.Lab, name+"-ipv6", name, discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"fd00:5::1"}})
	}
	var pairs [][2]string // the holders of each Service's addresses
	apart := func(nodes ...string) {
		t.Helper()
		site.Eventually(t, site.Soon, func() error {
			pairs = nil
			bound := make(map[string]string)
			for _, n := range nodes {
				bound[n] = site.MustRun(t, f.Node(n), "ip", "-o", "addr")
			}
			for _, name := range names {
				s := new(corev1.Service)
				site.Must(t, f.API.Get(ctx, services.Services+"/"+name, s))
				var pair [2]string
				for j, vip := range addressesOf(s) {
					for _, n := range nodes {
						if strings.Contains(bound[n], " "+vip.String()+"/") {
							pair[j] += n
						}
					}
				}
				pairs = append(pairs, pair)
			}
			single := func(p [2]string) bool {
				return slices.Contains(nodes, p[0]) && slices.Contains(nodes, p[1]) && p[0] != p[1]
			}
			return site.ErrorIf(slices.ContainsFunc(pairs, func(p [2]string) bool { return !single(p) }), "the addresses are with %q, of %q", pairs, nodes)
		})
		t.Logf("of %q: %q", nodes, pairs)
	}
	apart(f.Members()...)
	for range 3 {
		n := pairs[0][1]
		site.Must(t, f.herald(t, n, "drain")())
		apart(f.without(n)...)
		site.Must(t, f.herald(t, n, "undrain")())
		f.acquainted(t, n)
	}
	site.Must(t, f.Remove(ctx, names...))
}
