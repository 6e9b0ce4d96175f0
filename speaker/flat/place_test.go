package flat

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/speaker"
)

var (
	addr   = netip.MustParseAddr("10.4.0.10")
	other  = netip.MustParseAddr("10.4.0.11")
	errNot = errors.New("no link has a subnet with it")
)

func TestPlaceVIPs(t *testing.T) {
	found := func(netip.Addr) (string, error) { return "eth0", nil }
	lost := func(netip.Addr) (string, error) { return "", errNot }
	for _, tt := range []struct {
		name   string
		link   string // in the file
		before []place
		find   func(netip.Addr) (string, error)
		want   place
	}{
		{"in the file", "eth1", []place{{addr: addr, link: "eth0"}}, lost, place{addr: addr, link: "eth1", fixed: true}},
		{"found", "", []place{{addr: addr, link: "eth1", fixed: true}}, found, place{addr: addr, link: "eth0"}},
		{"not found", "", nil, lost, place{addr: addr, lost: errNot}},
		{"not found again", "", []place{{addr: addr, lost: errNot}}, lost, place{addr: addr, lost: errNot}},
		{"found before", "", []place{{addr: other, link: "eth9"}, {addr: addr, link: "eth0"}}, lost, place{addr: addr, link: "eth0"}},
		{"in the file before the reload", "", []place{{addr: addr, link: "eth0", fixed: true}}, lost, place{addr: addr, lost: errNot}},
		{"a Service's before the reload", "", []place{{addr: addr, link: "eth0", service: true}}, lost, place{addr: addr, lost: errNot}},
	} {
		c := Config{VIPs: []speaker.VIP{{Name: "routed", Addresses: []netip.Addr{other}}, {Name: "cp", Interface: tt.link, Addresses: []netip.Addr{addr}, Flat: &speaker.Flat{}}}}
		if got := placeVIPs(c, tt.before, tt.find); len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: place %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	up, down := map[string]link.Link{"eth0": {Up: true}}, map[string]link.Link{"eth0": {}}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	at, yields := place{addr: addr, link: "eth0"}, place{addr: addr, link: "eth0", yield: true}
	for _, tt := range []struct {
		name  string
		place place
		links map[string]link.Link
		found *arp.Finding
		want  map[string]string
	}{
		{"lost", place{addr: addr, lost: errNot}, up, nil, map[string]string{"link of 10.4.0.10": "unhealthy: no link has a subnet with it"}},
		{"links not known yet", at, nil, nil, map[string]string{"link eth0": "unknown: state not known yet"}},
		{"no link", at, map[string]link.Link{}, nil, map[string]string{"link eth0": "unhealthy: there is no link eth0"}},
		{"port of a bridge", at, map[string]link.Link{"eth0": {Up: true, PortOf: "bridge"}}, nil,
			map[string]string{"link eth0": "unhealthy: port of a bridge, which receives its packets: put the subnet's address on the bridge"}},
		{"port of a VRF", at, map[string]link.Link{"eth0": {Up: true, PortOf: "vrf"}}, nil, map[string]string{"link eth0": "healthy: up"}},
		{"down", at, down, nil, map[string]string{"link eth0": "unhealthy: down or without carrier"}},
		{"up", at, up, nil, map[string]string{"link eth0": "healthy: up"}},
		{"defended", at, up, &arp.Finding{Link: "eth0", State: arp.Taken, MAC: mac}, map[string]string{"link eth0": "healthy: up"}},
		{"no finding yet", yields, up, nil, map[string]string{"link eth0": "healthy: up"}},
		{"finding of another link", yields, up, &arp.Finding{Link: "eth1", State: arp.Free}, map[string]string{"link eth0": "healthy: up"}},
		{"probing", yields, up, &arp.Finding{Link: "eth0"}, map[string]string{"link eth0": "healthy: up", "address 10.4.0.10": "unknown: probing whether another host uses it"}},
		{"free", yields, up, &arp.Finding{Link: "eth0", State: arp.Free}, map[string]string{"link eth0": "healthy: up", "address 10.4.0.10": "healthy: no other host uses it"}},
		{"taken", yields, up, &arp.Finding{Link: "eth0", State: arp.Taken, MAC: mac}, map[string]string{"link eth0": "healthy: up", "address 10.4.0.10": "unhealthy: in use by 02:00:00:00:00:01, which is no member"}},
	} {
		found := make(map[netip.Addr]arp.Finding)
		if tt.found != nil {
			found[addr] = *tt.found
		}
		got := make(map[string]string)
		for name, v := range verdictsOf([]place{tt.place}, tt.links, found) {
			got[name] = fmt.Sprintf("%v: %s", v.State, v.Reason)
			if v.Name != name || v.State == health.Healthy != strings.HasPrefix(got[name], "healthy") {
				t.Errorf("%s: verdict %+v has the key %s", tt.name, v, name)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A VIP on two links is returned once per link, with the checks of both.
func TestVIPsOfTwoLinks(t *testing.T) {
	c := Config{VIPs: []speaker.VIP{
		{Name: "routed", Interface: "lo", Addresses: []netip.Addr{netip.MustParseAddr("10.99.0.10")}},
		{Name: "cp", Checks: []string{"apiserver"}, Addresses: []netip.Addr{addr, other}, Flat: &speaker.Flat{}},
	}}
	got := describe(vips(c, []place{{addr: addr, link: "eth1"}, {addr: other, link: "eth0", yield: true}}))
	const checks = "[apiserver link eth1 link eth0 address 10.4.0.11]"
	if want := "10.99.0.10 on lo by [], 10.4.0.11 on eth0 by " + checks + ", 10.4.0.10 on eth1 by " + checks; got != want {
		t.Errorf("the VIPs are %s\nwant %s", got, want)
	}
}

// A node needs the lease that the address names to answer for it, as part of any VIP of a file and as a Service's. A
// file's VIP first takes the lease of its name, as earlier releases know no other.
func TestLeasesNameAddresses(t *testing.T) {
	low, high := addr, netip.MustParseAddr("fd00::10")
	for _, tt := range []struct {
		name  string
		addrs []netip.Addr
		want  []string
	}{
		{"cp", []netip.Addr{low}, []string{"cp", low.String()}},
		{"renamed", []netip.Addr{low}, []string{"renamed", low.String()}},
		{"cp", []netip.Addr{high, low}, []string{"cp", low.String(), high.String()}},
		{low.String(), []netip.Addr{high, low}, []string{low.String(), high.String()}},
		{"", []netip.Addr{low}, []string{low.String()}},
	} {
		if got := LeasesOf(tt.name, tt.addrs...); !slices.Equal(got, tt.want) {
			t.Errorf("%s with %v needs the leases %v, want %v", tt.name, tt.addrs, got, tt.want)
		}
	}
	service := vips(Config{}, []place{{addr: low, link: "eth0", service: true}})
	if len(service) != 1 || !slices.Equal(service[0].Flat.Leases, []string{low.String()}) {
		t.Errorf("a Service's address becomes %+v", service)
	}
}
