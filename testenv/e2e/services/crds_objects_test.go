//go:build e2e

package services

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// testDefaults checks the default values, as the types read them.
func (a *crdAPI) testDefaults(t *testing.T) {
	const try = "?dryRun=All&fieldValidation=Strict"
	var pool v1alpha1.AddressPool
	a.Do(t, http.MethodPost, site.HeraldPath("addresspools")+try, site.HeraldObject("AddressPool", "{addresses: [10.1.0.0/24], bgp: {}}"), &pool)
	if diff := cmp.Diff(v1alpha1.AddressPoolSpec{
		Addresses:  []v1alpha1.AddressRange{"10.1.0.0/24"},
		AutoAssign: new(true),
		BGP:        &v1alpha1.PoolBGP{AggregationLength: 32, AggregationLengthV6: 128},
	}, pool.Spec); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
	var peer v1alpha1.BGPPeer
	a.Do(t, http.MethodPost, site.HeraldPath("bgppeers")+try, site.HeraldObject("BGPPeer", "{address: 10.0.1.254, asn: 64500, bfd: {}}"), &peer)
	if diff := cmp.Diff(v1alpha1.Peer{
		Address:  netip.MustParseAddr("10.0.1.254"),
		ASN:      64500,
		Port:     179,
		HoldTime: metav1.Duration{Duration: 3 * time.Second},
		BFD:      &v1alpha1.BFD{Interval: metav1.Duration{Duration: 50 * time.Millisecond}, Multiplier: 3},
	}, peer.Spec, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("peer (-want +got):\n%s", diff)
	}
	// A client of these types leaves unset fields to the server.
	least := v1alpha1.Peer{Address: netip.MustParseAddr("10.0.1.254"), ASN: 64500, BFD: &v1alpha1.BFD{}}
	for _, spec := range []v1alpha1.Peer{least, peer.Spec} {
		written, err := json.Marshal(spec)
		site.Must(t, err)
		if got := a.mistakes(t, "bgppeers", site.HeraldObject("BGPPeer", string(written))); got != nil {
			t.Errorf("the server refuses the object that the types write: %q\n%s", got, written)
		}
	}
}

// keep creates an object, and deletes it when the test is over.
func (a *crdAPI) keep(t *testing.T, resource string, object []byte) {
	t.Helper()
	a.Do(t, http.MethodPost, site.HeraldPath(resource)+"?fieldValidation=Strict", object, nil)
	t.Cleanup(func() { a.Do(t, http.MethodDelete, site.HeraldPath(resource)+"/a", nil, nil) })
}

// testStatus checks that a writer of the spec cannot write the status, and vice versa.
func (a *crdAPI) testStatus(t *testing.T) {
	a.keep(t, "addresspools", site.HeraldObject("AddressPool", "{addresses: [10.1.0.0/24]}"))
	path := site.HeraldPath("addresspools") + "/a"
	var pool, got, after v1alpha1.AddressPool
	a.Do(t, http.MethodGet, path, nil, &pool)
	pool.Spec.Priority = 7
	pool.Status.IPv4 = &v1alpha1.Usage{Capacity: "256", Used: 3}
	pool.Status.Usage = "3/256"

	written, err := json.Marshal(pool)
	site.Must(t, err)
	a.Do(t, http.MethodPut, path+"/status", written, &got)
	if got.Spec.Priority != 0 || got.Status.Usage != "3/256" || got.Status.IPv4 == nil || *got.Status.IPv4 != *pool.Status.IPv4 {
		t.Errorf("after the status was written: %+v", got)
	}
	if got.Generation != pool.Generation {
		t.Errorf("the status made a new generation, %d", got.Generation)
	}

	pool = got
	pool.Spec.Priority = 7
	pool.Status = v1alpha1.AddressPoolStatus{Usage: "9/256"}
	written, err = json.Marshal(pool)
	site.Must(t, err)
	a.Do(t, http.MethodPut, path, written, &after)
	if after.Spec.Priority != 7 || after.Status.Usage != "3/256" {
		t.Errorf("after the spec was written: %+v", after)
	}
}

// testOtherRouter checks that everything in a peer may change except its router.
func (a *crdAPI) testOtherRouter(t *testing.T) {
	a.keep(t, "bgppeers", site.HeraldObject("BGPPeer", "{address: 10.0.1.254, asn: 64500}"))
	path := site.HeraldPath("bgppeers") + "/a"
	var have v1alpha1.BGPPeer
	a.Do(t, http.MethodGet, path, nil, &have)
	for spec, want := range map[string][]string{
		"{address: 10.0.1.254, asn: 64501, port: 1179}": nil,
		"{address: 10.0.1.253, asn: 64500}":             {sameRouter},
		"{interface: eth1, asn: 64500}":                 {sameRouter},
		"{defaultGateway: ipv4, asn: 64500}":            {sameRouter},
	} {
		changed := fmt.Appendf(nil, "{apiVersion: herald.dev/v1alpha1, kind: BGPPeer, metadata: {name: a, resourceVersion: %q}, spec: %s}", have.ResourceVersion, spec)
		status, answer, err := a.API.Ask(t.Context(), http.MethodPut, path+"?dryRun=All", changed)
		site.Must(t, err)
		var got []string
		if status != http.StatusOK {
			got = a.mistakesIn(t, answer)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %d (-want +got):\n%s", spec, status, diff)
		}
	}
}

// testColumns checks the output of kubectl get.
func (a *crdAPI) testColumns(t *testing.T) {
	a.keep(t, "addresspools", site.HeraldObject("AddressPool", "{addresses: [10.1.0.0/24, 10.2.0.10-10.2.0.50], autoAssign: false}"))
	a.keep(t, "bgppeers", site.HeraldObject("BGPPeer", "{interface: eth1, asn: 64500, bfd: {}}"))
	for resource, want := range map[string][]string{
		"addresspools": {"Name: a", `Addresses: ["10.1.0.0/24","10.2.0.10-10.2.0.50"]`, "Auto-assign: false", "Used: <nil>", "Ready: <nil>"},
		"bgppeers":     {"Name: a", "Address: <nil>", "Interface: eth1", "ASN: 64500"},
	} {
		table, err := a.API.Table(t.Context(), site.HeraldPath(resource))
		site.Must(t, err)
		if len(table.Rows) != 1 {
			t.Fatalf("%s has %d rows, want 1", resource, len(table.Rows))
		}
		var got []string
		for i, column := range table.ColumnDefinitions {
			if column.Priority == 0 && column.Name != "Age" {
				got = append(got, fmt.Sprintf("%s: %v", column.Name, table.Rows[0].Cells[i]))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resource, diff)
		}
	}
}
