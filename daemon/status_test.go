package daemon

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/speaker/flat"
	"github.com/herald-vip/herald/status/admin"
)

// The addresses of Services are separate from the addresses of VIPs, even of a VIP named like an address.
func TestDivide(t *testing.T) {
	own, services := divide([]speaker.Status{{Name: "cp"}, {Name: "10.4.0.12"}, {Name: "10.4.0.13", Service: true}})
	if len(services) != 1 || services[0].Name != "10.4.0.13" || len(own) != 2 {
		t.Errorf("of Services are %v, own are %v", services, own)
	}
}

// The status has a row per pool, from the API and this node's announcer.
func TestPools(t *testing.T) {
	got := pools(
		[]announce.PoolStatus{{Name: "", Withdrawn: 1}, {Name: "a", Announced: 2, Draining: 3, Flat: 4}, {Name: "b", Error: "no such range"}},
		slices.Values([]*v1alpha1.AddressPool{
			{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1alpha1.AddressPoolStatus{
				IPv4: &v1alpha1.Usage{Capacity: "254", Used: 7}, IPv6: &v1alpha1.Usage{Capacity: "18446744073709551616"}, Conflicts: []string{"x"},
			}},
		}))
	want := []admin.Pool{
		{PoolStatus: announce.PoolStatus{Withdrawn: 1}},
		{PoolStatus: announce.PoolStatus{Name: "a", Announced: 2, Draining: 3, Flat: 4}, IPv4: &admin.Usage{Capacity: 254, Used: 7}, IPv6: &admin.Usage{Capacity: 1 << 64}, Conflicts: 1},
		{PoolStatus: announce.PoolStatus{Name: "b", Error: "no such range"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// routes accepts everything.
type routes struct{}

func (routes) Announce(...bgp.Route) error    { return nil }
func (routes) Withdraw(...netip.Prefix) error { return nil }

// The list of Services combines the announcer with speaker and election on a flat layer 2. The status has only totals.
func TestServicesStatus(t *testing.T) {
	s := newServices(slog.New(slog.DiscardHandler), &config.Config{NodeName: "m1", Services: &config.Services{DefaultClass: true}}, routes{}, nil)
	s.announcer.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m1"}})
	s.announcer.SetPool(&v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "flat"}, Spec: v1alpha1.AddressPoolSpec{
		Addresses: []v1alpha1.AddressRange{"10.4.0.0/24"}, ARP: &v1alpha1.PoolARP{},
	}})
	for _, name := range []string{"one", "two"} {
		o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: map[string]string{"one": "10.4.0.1", "two": "10.4.0.2"}[name]}}
		s.announcer.SetService(o)
	}
	s.announcer.Synced()
	here := speaker.Status{
		Name: "10.4.0.1", Address: netip.MustParseAddr("10.4.0.1"), Interface: "eth0", Announce: speaker.ByARP,
		Stage: speaker.Announced, Reason: "link eth0 up", Error: "no such range",
	}
	var got []admin.ServiceAddress
	for _, first := range s.list([]speaker.Status{here}, map[string]string{"10.4.0.1": "m1", "10.4.0.2": "m2"}, nil) {
		got = append(got, first.Addresses...)
	}
	for i := range got {
		got[i].Since = here.Since
	}
	want := []admin.ServiceAddress{
		{AddressStatus: announce.AddressStatus{Address: here.Address, Pool: "flat", Stage: "withdrawn", Flat: true, Error: "no such range"}, Holder: "m1", Link: "eth0", FlatStage: "announced", FlatReason: "link eth0 up"},
		{AddressStatus: announce.AddressStatus{Address: netip.MustParseAddr("10.4.0.2"), Pool: "flat", Stage: "withdrawn", Flat: true}, Holder: "m2"},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	short := s.status([]peering.LeftOut{{Peer: "rack", Reason: "no Secret"}}, errors.New("no such range"), []speaker.Status{here}, nil)
	if short.Total != 2 || short.Stands != 1 || short.Held != 1 || short.Obstructed != 1 || len(short.LeftOut) != 1 || short.Unpeered == "" || short.Synced {
		t.Errorf("in short: %+v", short)
	}
}

// The status of a Service that was derived for a tenant names the tenant and the Service there.
func TestServicesStatusOfTenants(t *testing.T) {
	s := newServices(slog.New(slog.DiscardHandler), &config.Config{NodeName: "m1", Services: &config.Services{DefaultClass: true}}, routes{}, nil)
	s.announcer.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant-acme", Name: "web-default-4f2a", Labels: map[string]string{v1alpha1.LabelTenant: "acme"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "TCPLoadBalancer", Name: "default.web", Controller: new(true)}},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	})
	want := []admin.Service{{Name: "tenant-acme/web-default-4f2a", Origin: service.Origin{Tenant: "acme", Service: "default/web"}, Addresses: []admin.ServiceAddress{}}}
	if diff := cmp.Diff(want, s.list(nil, nil, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without the section there is nothing, and nothing to fail.
func TestNoServices(t *testing.T) {
	s := newServices(slog.New(slog.DiscardHandler), &config.Config{}, routes{}, nil)
	if s != nil || s.status(nil, nil, nil, nil) != nil || len(s.list(nil, nil, nil)) != 0 || s.drain("")(t.Context()) != nil || s.stop() != nil || s.flat() != nil {
		t.Error("there are Services")
	}
	s.undrain()
}

func TestLeasesOfAllVIPs(t *testing.T) {
	known := []lease.LeaseStatus{
		{Lease: "held", Holder: "m2", Needed: 2},
		{Lease: "stood-for", Why: "being elected", Needed: 2, Campaigning: true},
		{Lease: "free", Why: "no member campaigns for it", Needed: 2},
	}
	got := adminLeases(time.Now(), known, []speaker.Status{
		{Name: "stood-for", Announce: speaker.ByARP, Reason: "no holder: being elected"},
		{Name: "new", Announce: speaker.ByARP, Reason: "apiserver: connection refused"},
		{Name: "new", Announce: speaker.ByARP, Reason: "its other address"},
		{Name: "free", Announce: speaker.ByARP, Reason: "herald drain"},
		{Name: "held", Announce: speaker.ByARP, Reason: "apiserver: connection refused"},
		{Name: "routed", Reason: "apiserver: connection refused"},
	}, election.New(slog.New(slog.DiscardHandler), nil).Lease)
	const none = "no election: the file of this node has no election section"
	want := []admin.Lease{
		{LeaseStatus: known[2], Reason: "no member campaigns for it; here herald drain"},
		{LeaseStatus: known[0]},
		{LeaseStatus: lease.LeaseStatus{Lease: "new", Why: none}, Reason: none + "; here apiserver: connection refused"},
		{LeaseStatus: known[1], Reason: "being elected"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A VIP has a holder if one member may hold the leases of its name and of its address.
func TestLeasesTogether(t *testing.T) {
	soon := time.Now()
	name := func(holder string, held bool) lease.LeaseStatus {
		return lease.LeaseStatus{Lease: "vip", Holder: holder, Held: held, Epoch: 3, Until: soon.Add(time.Second), Votes: []string{"m1"}}
	}
	addr := func(holder string, held bool, why string) lease.LeaseStatus {
		return lease.LeaseStatus{Lease: "10.0.0.1", Holder: holder, Held: held, Until: soon, Why: why}
	}
	free, earlier := lease.LeaseStatus{Lease: "vip", Why: "no quorum"}, name("m1", false)
	both, waits := name("m1", true), lease.LeaseStatus{Lease: "vip", Why: "w1 holds the lease of 10.0.0.1"}
	both.Until = soon
	earlier.Until = soon
	for _, tt := range []struct{ name, addr, want lease.LeaseStatus }{
		{free, addr("m1", false, ""), free},
		{name("m1", true), name("m1", true), name("m1", true)},
		{name("m1", true), addr("m1", true, ""), both},
		{name("m1", false), addr("m1", false, ""), earlier},
		{name("m1", false), addr("", false, "being elected"), name("m1", false)}, // m1 may be of an earlier release
		{name("m1", true), addr("", false, "being elected"), lease.LeaseStatus{Lease: "vip", Why: "being elected"}},
		{name("m1", true), addr("w1", false, ""), waits},
		{name("m1", false), addr("w1", false, ""), waits},
		{name("m1", true), addr("m1", false, ""), lease.LeaseStatus{Lease: "vip", Why: "m1 holds the lease of 10.0.0.1"}}, // an earlier member
	} {
		if diff := cmp.Diff(tt.want, together(tt.name, tt.addr)); diff != "" {
			t.Errorf("%+v and %+v (-want +got):\n%s", tt.name, tt.addr, diff)
		}
	}
}

// An address that a predecessor held by a lease is not adopted.
func TestBindingsToAdopt(t *testing.T) {
	routed, flat := netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("10.4.0.10")
	got := bindingsOf(&config.Config{VIPs: []config.VIP{
		{Name: "routed", Interface: "lo", Addresses: []netip.Addr{routed}},
		{Name: "flat", Interface: "eth0", Announce: config.AnnounceARP, Addresses: []netip.Addr{flat}},
	}})
	if len(got) != 1 || got[0].Addr != routed || got[0].Interface != "lo" {
		t.Errorf("bindings are %v, want %v on lo only", got, routed)
	}
}

// A new VIP must not wait for a node that holds its address for a Service.
func TestUntaken(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	subject := func(a config.Announce) *config.Config {
		return &config.Config{VIPs: []config.VIP{{Name: "cp", Announce: a, Addresses: []netip.Addr{addr}}}}
	}
	held := []flat.Address{{Addr: addr, Service: "default/web", Pool: "lan"}}
	for _, tt := range []struct {
		name     string
		old, new *config.Config
		held     []flat.Address
		want     string
	}{
		{name: "free", old: new(config.Config), new: subject(config.AnnounceARP)},
		{name: "it was there before", old: subject(config.AnnounceARP), new: subject(config.AnnounceARP), held: held},
		{name: "by BGP", old: new(config.Config), new: subject(config.AnnounceBGP), held: held},
		{
			name: "a Service's", old: new(config.Config), new: subject(config.AnnounceARP), held: held,
			want: "vips: 10.0.0.1 is the address of Service default/web, for which a node may answer already: take it out of pool lan and from the Service first",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := untaken(tt.old, tt.new, tt.held); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
