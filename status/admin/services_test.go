package admin_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
)

// services returns a Service with an announced and a withdrawn address, one without addresses, and two of a tenant.
func services() []admin.Service {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return []admin.Service{
		{Name: "shop/one", Addresses: []admin.ServiceAddress{
			{AddressStatus: announce.AddressStatus{Address: netip.MustParseAddr("10.1.0.1"), Pool: "public", Stage: "announced", Since: at, Route: netip.MustParsePrefix("10.1.0.1/32")}, Sent: []string{"r1"}},
			{AddressStatus: announce.AddressStatus{Address: netip.MustParseAddr("10.3.0.100"), Pool: "flat", Stage: "withdrawn", Flat: true, Reason: "pool flat is not announced by BGP"}, Link: "eth0", FlatStage: "withdrawn", FlatReason: "no holder:\nbeing elected"},
		}},
		{Name: "shop/other", Addresses: []admin.ServiceAddress{}},
		{Name: "tenant-acme/web-default-4f2a", Origin: service.Origin{Tenant: "acme", Service: "default/web"}, Addresses: []admin.ServiceAddress{
			{AddressStatus: announce.AddressStatus{Address: netip.MustParseAddr("10.1.0.2"), Pool: "public", Stage: "announced", Since: at}, Sent: []string{"r1"}},
		}},
		{Name: "tenant-acme/blog-default-09c1", Origin: service.Origin{Tenant: "acme", Service: "default/blog"}, Addresses: []admin.ServiceAddress{}},
	}
}

func TestWriteTextOfServices(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := admin.Status{Node: "m1", Version: "v1.2.3", Started: at, Config: admin.Config{File: "/etc/herald/herald.yaml", Generation: 1}}
	s.Services = &admin.Services{
		Kubernetes: admin.Kubernetes{
			Unconnected: "no such file",
			Health:      kube.Health{Troubles: []kube.Trouble{{About: "addresspools", Reason: "apply Herald's\nCRDs", Since: at}}},
		},
		Writer: &assign.Status{Writes: true, Refused: map[string]int{"PoolExhausted": 2, "NoPool": 1}}, Counts: announce.Counts{Total: 3, Routes: 2, Failing: 1}, Held: 5, Obstructed: 1, Unpeered: "no router ID",
		LeftOut: []peering.LeftOut{{Peer: "rack-a", Reason: "there is no Secret a/b"}},
		Pools: []admin.Pool{
			{PoolStatus: announce.PoolStatus{Withdrawn: 1}},
			{PoolStatus: announce.PoolStatus{Name: "public", Announced: 2, Draining: 1}, IPv4: &admin.Usage{Capacity: 254, Used: 3}, IPv6: &admin.Usage{Capacity: 1 << 60}, Conflicts: 2},
			{PoolStatus: announce.PoolStatus{Name: "typo", Error: "no range"}},
		},
	}
	want := `herald v1.2.3 on m1, up 1m0s, configuration /etc/herald/herald.yaml generation 1

NO CONNECTION TO KUBERNETES: no such file
KUBERNETES DOES NOT ANSWER about addresspools for 1m0s: apply Herald's CRDs
SERVICES NOT KNOWN YET: nothing is announced for them
BGPPEERS NOT IN FORCE: no router ID
BGPPEER NOT IN FORCE: rack-a: there is no Secret a/b
ROUTES REFUSED: 1
ADDRESSES OBSTRUCTED on a flat layer 2: 1, see herald status --services
3 Services, 2 routes, 5 addresses held on a flat layer 2; addresses given by this node, NoPool: 1, PoolExhausted: 2
POOL         USED                     ANNOUNCED   DRAINING   WITHDRAWN   FLAT   WHY
in no pool   -                        0           0          1           0      -
public       3/254, 0/1.1529215e+18   2           1          0           0      2 conflicts: kubectl describe addresspool public
typo         -                        0           0          0           0      no range
`
	wantText(t, s, at.Add(time.Minute), want)
	var out strings.Builder
	const lease = "herald-system/herald-writer"
	for who, w := range map[string]*assign.Status{
		"another node":                 nil,
		"n2 (Lease " + lease + ")":     {Holder: "n2", Lease: lease},
		"nobody known (Lease " + lease: {Lease: lease},
	} {
		out.Reset()
		if s.Services.Writer = w; s.WriteText(&out, at) != nil || !strings.Contains(out.String(), "addresses given by "+who) {
			t.Errorf("with %+v: %s", w, out.String())
		}
	}
}

func TestWriteServices(t *testing.T) {
	var out strings.Builder
	must.Do(t, admin.WriteServices(&out, services(), time.Date(2026, 11, 20, 12, 1, 0, 0, time.UTC)))
	want := `SERVICE                                                     ADDRESS      POOL     BGP         FLAT       FOR    WHY
shop/one                                                    10.1.0.1     public   announced   -          1m0s   -
shop/one                                                    10.3.0.100   flat     -           not held   -      no holder: being elected
shop/other                                                  -            -        -           -          -      it has been given no address
tenant-acme/web-default-4f2a (tenant acme: default/web)     10.1.0.2     public   announced   -          1m0s   -
tenant-acme/blog-default-09c1 (tenant acme: default/blog)   -            -        -           -          -      it has been given no address
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for want, a := range map[string]admin.ServiceAddress{
		" held on eth0 ": {AddressStatus: announce.AddressStatus{Flat: true}, Link: "eth0", FlatStage: "announced", Holder: "m1"},
		" lingering ":    {FlatStage: "lingering"},
		" held by m2 ":   {AddressStatus: announce.AddressStatus{Flat: true}, FlatStage: "withdrawn", Holder: "m2"},
		" fit ":          {AddressStatus: announce.AddressStatus{Flat: true}},

		" blocked on eth0 ":      {AddressStatus: announce.AddressStatus{Flat: true, Error: "no right"}, Link: "eth0", FlatStage: "announced"},
		" announced to no peer ": {AddressStatus: announce.AddressStatus{Stage: "announced"}},
	} {
		out.Reset()
		err := admin.WriteServices(&out, []admin.Service{{Addresses: []admin.ServiceAddress{a}}}, time.Now())
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%+v: no %q in %s", a, want, out.String())
		}
	}
}

func TestServicesTravelWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "herald.sock")
	serve(t, path, &daemon{services: services()})
	got := must.Get[[]admin.Service](t)(admin.NewClient(path).Services(t.Context()))
	if diff := cmp.Diff(services(), got, addresses); diff != "" {
		t.Errorf("(-sent +received):\n%s", diff)
	}
}
