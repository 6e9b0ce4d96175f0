//go:build e2e

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/services"
)

// TestLoadBalancerOutages takes away, one after the other, Herald's needs: processes,
// the API server and its data, the kinds, the rights.
func TestLoadBalancerOutages(t *testing.T) {
	b := startBalancers(t, nil)
	t.Run("speakers restart", b.testRestarts)
	t.Run("API server away", b.testAPIServerAway)
	t.Run("rights withdrawn", b.testRightsWithdrawn)
	t.Run("Lease of a stranger", b.testStrangersLease)
	t.Run("pools edited while in use", b.testPoolsEdited)
	t.Run("kinds deleted", b.testKindsDeleted)
	t.Run("etcd restored", b.testEtcdRestored)
}

// some creates Services of all sorts, and returns their addresses when the router has them.
func (b *balancers) some(t *testing.T, prefix string) map[string]netip.Addr {
	t.Helper()
	addrs := map[string]netip.Addr{
		prefix + "-cluster": b.led(t, balancer(prefix+"-cluster"), "n1"),
		prefix + "-local":   b.led(t, balancer(prefix+"-local", local), b.Members()...),
		prefix + "-asked":   b.led(t, balancer(prefix+"-asked", annotated("addresses", "10.99.5.5")), "n1"),
	}
	b.settled(t)
	b.routes.Mark()
	return addrs
}

// restored waits until Services have their routes, and checks that they have their addresses.
func (b *balancers) restored(t *testing.T, addrs map[string]netip.Addr) {
	t.Helper()
	for name, vip := range addrs {
		site.Eventually(t, 3*site.Soon, func() error { return b.check(vip, b.Members()...) })
		b.keeps(t, name, vip)
	}
}

// still checks that Services have their addresses, and have had their routes all along.
func (b *balancers) still(t *testing.T, addrs map[string]netip.Addr) {
	t.Helper()
	b.restored(t, addrs)
	for _, vip := range addrs {
		b.unmoved(t, vip)
	}
}

// testRestarts: restarts of the speakers, finally all at once, change no Service.
func (b *balancers) testRestarts(t *testing.T) {
	addrs := b.some(t, "restarts")
	before := b.settled(t)["patch services"]
	for _, node := range b.Members() {
		site.Kill(t, b.Speaker(node))
		site.Start(t, b.Speaker(node))
		b.leads(t, addrs["restarts-cluster"], b.Members()...)
	}
	for _, node := range b.Members() {
		site.Kill(t, b.Speaker(node))
	}
	b.leads(t, addrs["restarts-cluster"])
	for _, node := range b.Members() {
		site.Start(t, b.Speaker(node))
	}
	b.restored(t, addrs)
	b.create(t, balancer("afterwards"), "n1") // there is a writer again, which has read everything
	b.address(t, "afterwards")
	if wrote := b.settled(t)["patch services"] - before; wrote != 1 {
		t.Errorf("%d writes about Services, want 1 about the new one", wrote)
	}
}

// apiServer returns the nodes of the API server; etcd comes first.
func (b *balancers) apiServer() []*lab.Node {
	return []*lab.Node{b.Node("api-etcd"), b.Node("api-apiserver")}
}

// answering waits until the API server is ready.
func (b *balancers) answering(t *testing.T) {
	t.Helper()
	site.Eventually(t, 2*site.Soon, func() error { return b.API.Get(t.Context(), "/readyz", nil) })
}

// testAPIServerAway: nothing moves during an outage of the API server or afterwards;
// then it handles the requests made meanwhile.
func (b *balancers) testAPIServerAway(t *testing.T) {
	addrs := b.some(t, "away")
	server := b.Node("api-apiserver")
	site.Kill(t, server)
	site.Freeze(t, b.Node("api-etcd"))
	site.Start(t, server) // it does not come up like this
	site.Thaw(t, b.Node("api-etcd"))
	b.answering(t)
	b.led(t, balancer("asked-late"), "n1")
	b.still(t, addrs)
}

// testRightsWithdrawn: a speaker without rights changes nothing, and reports that; it
// continues when it has the rights again.
func (b *balancers) testRightsWithdrawn(t *testing.T) {
	addrs := b.some(t, "forbidden")
	const binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/herald"
	site.Must(t, b.API.Delete(t.Context(), binding))
	site.Kill(t, b.Node("api-apiserver")) // watches have to be requested again
	site.Start(t, b.Node("api-apiserver"))
	b.answering(t)
	b.create(t, balancer("unheard"), "n1")
	for _, node := range b.Members() {
		site.Eventually(t, 2*site.Soon, func() error {
			status, err := b.admin(node).Status(t.Context())
			if err != nil {
				return err
			}
			said := fmt.Sprint(status.Services.Kubernetes.Troubles)
			return site.ErrorIf(!strings.Contains(said, "forbidden"), "%s reports about the API: %s", node, said)
		})
	}
	b.left(t, "unheard")
	b.grant(t, "ClusterRoleBinding")
	site.Eventually(t, 3*site.Soon, func() error {
		return site.ErrorIf(len(addressesOf(b.get(t, "unheard"))) == 0, "unheard has no address")
	})
	b.still(t, addrs)
}

// testStrangersLease: a Lease taken by a stranger with another clock, or none, is
// taken back when it has not been renewed for long enough by the local clock.
func (b *balancers) testStrangersLease(t *testing.T) {
	addrs := b.some(t, "stranger")
	for _, spec := range []string{
		`{"holderIdentity": "stranger", "renewTime": "2099-01-01T00:00:00.000000Z", "acquireTime": "1970-01-01T00:00:00.000000Z", "leaseDurationSeconds": 2147483647}`,
		`{"holderIdentity": null, "renewTime": null, "acquireTime": null, "leaseDurationSeconds": null, "leaseTransitions": null}`,
	} {
		b.patch(t, "/apis/coordination.k8s.io/v1/namespaces/herald-system/leases/herald-writer", `{"spec": `+spec+`}`)
		b.create(t, balancer("under-lease"), "n1")
		site.Eventually(t, 3*site.Soon, func() error {
			return site.ErrorIf(len(addressesOf(b.get(t, "under-lease"))) == 0, "no writer after the Lease was %s", spec)
		})
		site.Must(t, b.Remove(t.Context(), "under-lease"))
	}
	site.Must(t, b.API.Delete(t.Context(), "/apis/coordination.k8s.io/v1/namespaces/herald-system/leases/herald-writer"))
	b.create(t, balancer("without-lease"), "n1")
	b.address(t, "without-lease")
	b.still(t, addrs)
}

// testPoolsEdited: a Service keeps its address when pools change around it. Outside
// every pool the address is not announced, and no other Service gets it.
func (b *balancers) testPoolsEdited(t *testing.T) {
	addrs := b.some(t, "pools")
	vip := addrs["pools-asked"]
	all := `["` + services.ByBGP + `", "` + byBGP6 + `"]`
	addresses := func(list string) { t.Helper(); b.patch(t, bgpPool, `{"spec": {"addresses": `+list+`}}`) }

	// An overlapping pool is refused, and announced addresses stay.
	site.Must(t, b.API.Create(t.Context(), pools, []byte(`{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: overlaps}, spec: {addresses: [10.99.5.0/24], bgp: {}}}`)))
	b.settled(t)
	b.still(t, addrs)
	site.Must(t, b.API.Delete(t.Context(), pools+"/overlaps"))

	// Without its address.
	addresses(`["10.99.0.0-10.99.4.255", "10.99.6.0/24", "` + byBGP6 + `"]`)
	b.awaits(t, "pools-asked", "AddressNotInPool")
	b.keepsStatus(t, "pools-asked", vip)
	b.leads(t, vip)
	b.create(t, balancer("heir", annotated("addresses", vip.String())))
	b.awaits(t, "heir", "AddressNotInPool")
	addresses(all)
	b.leads(t, vip, b.Members()...)
	b.address(t, "pools-asked")
	b.awaits(t, "heir", "AddressConflict")
	site.Must(t, b.Remove(t.Context(), "heir"))

	// First not announced, then deleted, then replaced by another with the same addresses.
	b.patch(t, bgpPool, `{"spec": {"bgp": null, "arp": {}}}`)
	b.leads(t, vip)
	b.patch(t, bgpPool, `{"spec": {"bgp": {}, "arp": null}}`)
	b.leads(t, vip, b.Members()...)
	site.Must(t, b.API.Delete(t.Context(), bgpPool))
	b.leads(t, vip)
	site.Must(t, b.API.Create(t.Context(), pools, []byte(`{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: bgp}, spec: {addresses: `+all+`, bgp: {}}}`)))
	b.restored(t, addrs)
}

// testKindsDeleted: with the kind itself all pools are deleted. When both are back the
// Services are announced again, with their former addresses.
func (b *balancers) testKindsDeleted(t *testing.T) {
	addrs := b.some(t, "kinds")
	definition := services.Definitions + "/addresspools.herald.dev"
	site.Must(t, b.API.Delete(t.Context(), definition))
	for _, vip := range addrs {
		b.leads(t, vip)
	}
	site.Eventually(t, site.Soon, func() error {
		return site.ErrorIf(b.API.Get(t.Context(), definition, nil) == nil, "the kind is there still")
	})
	for name, vip := range addrs {
		b.keepsStatus(t, name, vip)
	}
	site.Must(t, b.API.Define(t.Context(), "../../../manifests/crds/herald.dev_addresspools.yaml"))
	site.Eventually(t, site.Soon, func() error {
		return b.API.Create(t.Context(), pools, []byte(`{apiVersion: herald.dev/v1alpha1, kind: AddressPool, metadata: {name: bgp}, spec: {addresses: [`+services.ByBGP+`, "`+byBGP6+`"], bgp: {}}}`))
	})
	b.restored(t, addrs)
}

// testEtcdRestored: Herald believes an API server that has forgotten objects, as after
// etcd was restored from a backup. Unknown Services are withdrawn, known ones
// announced, and no two Services have the same address.
func (b *balancers) testEtcdRestored(t *testing.T) {
	etcd, server := b.apiServer()[0], b.apiServer()[1]
	stop := func() { t.Helper(); site.Kill(t, server); site.Kill(t, etcd) }
	boot := func() { t.Helper(); site.Start(t, etcd); site.Start(t, server); b.answering(t) }
	addrs := b.some(t, "before")
	stop()
	site.MustRun(t, etcd, "cp", "-a", "/var/lib/etcd", "/var/lib/etcd.backup")
	boot()

	later := b.led(t, balancer("later"), "n1")
	site.Must(t, b.Remove(t.Context(), "before-cluster"))
	b.leads(t, addrs["before-cluster"])
	b.create(t, balancer("heir", annotated("addresses", addrs["before-cluster"].String())), "n1")
	b.address(t, "heir")
	b.update(t, "before-local", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster })
	b.settled(t)

	stop()
	site.MustRun(t, etcd, "sh", "-c", "rm -r /var/lib/etcd && mv /var/lib/etcd.backup /var/lib/etcd")
	boot()
	b.restored(t, addrs)
	site.Eventually(t, 3*site.Soon, func() error {
		if slices.Contains([]netip.Addr{addrs["before-cluster"], addrs["before-local"], addrs["before-asked"]}, later) {
			return nil
		}
		return b.check(later)
	})
	b.led(t, balancer("afterwards"), "n1")
}
