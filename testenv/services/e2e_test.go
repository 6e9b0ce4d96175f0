//go:build e2e

// These tests need FRR, etcd and nftables on the host, kube-apiserver in
// testenv/realparts/bin and the binaries in bin, as `make e2e` installs and builds them.

package services

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// soon is for whatever is to come about in a while.
const soon = 60 * time.Second

func start(t *testing.T, a Announcer) *Lab {
	t.Helper()
	return boot(t, options(t, a))
}

func options(t *testing.T, a Announcer) Options {
	return Options{
		Announcer: a,
		APIServer: cmp.Or(os.Getenv("KUBE_APISERVER"), "../realparts/bin/kube-apiserver"),
		Etcd:      cmp.Or(os.Getenv("ETCD"), "/usr/bin/etcd"),
		Testenv:   "../../bin/herald-testenv",
		Dir:       t.TempDir(),
		Log:       slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func boot(t *testing.T, o Options) *Lab {
	t.Helper()
	l, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestHerald shows that the lab's parts play together.
func TestHerald(t *testing.T) {
	l := start(t, &Herald{Binary: "../../bin/herald", CRDs: "../../manifests/crds"})
	t.Run("BGP", l.testBGP)
	t.Run("ARP", l.testARP)
}

// testBGP follows a Service's endpoint from node to node.
func (l *Lab) testBGP(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	routes, err := l.WatchRoutes()
	must(t, err)
	defer func() { must(t, routes.Close()) }()
	must(t, l.Create(ctx, Service{Name: "local", Pool: PoolBGP, Local: true, Endpoints: []string{"n1"}}))
	vip, err := l.AddressOf(ctx, "local")
	must(t, err)
	n1, n2 := l.Address("n1"), l.Address("n2")
	for _, step := range []struct {
		do   func() error
		hops []netip.Addr
	}{
		{func() error { return nil }, []netip.Addr{n1}},
		{func() error { return l.SetEndpoint(ctx, "local", "n2", Ready()) }, []netip.Addr{n1, n2}},
		{func() error { return l.SetEndpoint(ctx, "local", "n1", NotReady()) }, []netip.Addr{n2}},
	} {
		must(t, step.do())
		_, err := routes.AwaitHops(ctx, vip, step.hops...)
		must(t, err)
		must(t, connect(ctx, l.Node("c1"), vip))
	}
	must(t, l.Remove(ctx, "local"))
	_, err = routes.AwaitHops(ctx, vip)
	must(t, err)
}

// testARP reaches a Service on the segment.
func (l *Lab) testARP(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	must(t, l.Create(ctx, Service{Name: "flat", Pool: PoolARP, Endpoints: l.Members()}))
	vip, err := l.AddressOf(ctx, "flat")
	must(t, err)
	must(t, Eventually(ctx, func() error { return connect(ctx, l.Node("c2"), vip) }))
	must(t, l.Remove(ctx, "flat"))
}

// connect opens a connection to a Service.
func connect(ctx context.Context, from *lab.Node, vip netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", vip, Port))
	if err != nil {
		return err
	}
	return c.Close()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
