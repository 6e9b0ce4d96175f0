package tenants

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
)

// Domain is the suffix of all names that the gateway serves. Its certificate is for
// names with two more labels; the second is a tenant's.
const Domain = "lb.example.test"

// The paths of the Service before the gateway, and of the Gateway.
const (
	gatewayService = "/api/v1/namespaces/gateways/services/traefik"
	gateway        = "/apis/gateway.networking.k8s.io/v1/namespaces/gateways/gateways/shared"
)

const (
	// defineRoutes creates the kinds of gateway-api.
	defineRoutes = `kubectl apply --server-side -f gateway-api/standard
kubectl wait --for=condition=Established --timeout=60s -f gateway-api/standard
`
	// installGateway creates the objects for the programs that BootGateway boots.
	installGateway = `kubectl apply --server-side -f gateway-api/experimental
kubectl apply -f gateway
kubectl create secret tls -n gateways lb.example.test --cert=/etc/kubernetes/apiserver.crt --key=/etc/kubernetes/apiserver.key
`
)

func (l *Lab) hasGateway() bool { return l.options.GatewayAPI != "" }

// configureGateway writes the files of the gateway's machines.
func (l *Lab) configureGateway() (err error) {
	if l.dnsKey, err = election.NewKey(); err != nil {
		return err
	}
	errs := []error{os.CopyFS(l.path("admin", "gateway-api"), os.DirFS(l.options.GatewayAPI))}
	for src, dst := range map[string]string{"topology/dns": l.path("dns"), "topology/gateway": l.path("admin", "gateway")} {
		files, err := fs.Sub(files, src)
		errs = append(errs, err, os.CopyFS(dst, files))
	}
	key := fmt.Sprintf("key external-dns { algorithm hmac-sha256; secret %q; };\n", l.dnsKey)
	if l.hasPods() { // the tests connect to names of Gateways, where no route may be served
		zone, err := files.ReadFile("topology/dns/lb.example.test.zone")
		errs = append(errs, err, l.write(string(zone)+"*.acme	A 10.99.0.0\n", "dns", "lb.example.test.zone"))
	}
	errs = append(errs, l.write(key, "dns", "key.conf"), l.write("nameserver "+l.Balancing.Address("dns").String()+"\n", "conformance", "resolv.conf"))
	return errors.Join(errs...)
}

// gatewayNodes returns the nodes that Traefik runs on.
func (l *Lab) gatewayNodes() []string { return l.Balancing.Nodes()[:2] }

// BootGateway boots the gateway of the load-balancing cluster: Traefik on two nodes
// behind one VIP, and the name server dns, which external-dns updates with the names
// below Domain. It serves Ingresses of the class traefik, and the routes of the
// Gateway shared in the namespace gateways. It also creates the kinds of gateway-api
// in all clusters. It returns when everything is ready except the names.
//
// The VIP has the ports 80 and 443, and 9443 for TLSRoutes. It serves the routes of
// namespaces with the label herald.dev/tenant.
func (l *Lab) BootGateway(ctx context.Context) error {
	if !l.hasGateway() {
		return errors.New("this lab has no gateway: start it with Options.GatewayAPI")
	}
	return step.Run(func() {
		for _, c := range l.clusters() {
			step.Doing("cluster "+c.Name, c.Run(ctx, defineRoutes))
		}
		step.Do(l.Balancing.Run(ctx, installGateway))
		nodes := []string{"dns", "lb-external-dns"}
		for _, node := range l.gatewayNodes() {
			nodes = append(nodes, node+"-traefik")
		}
		step.Do(l.Boot(ctx, nodes...))
		step.Do(services.Eventually(ctx, func() error { return step.Run(func() { l.gatewayReady(ctx) }) }))
	})
}

// gatewayReady fails unless each Traefik listens and the Gateway has the VIP.
func (l *Lab) gatewayReady(ctx context.Context) {
	for _, node := range l.gatewayNodes() {
		step.Doing("traefik on "+node, l.Balancing.Node("api").Reaches(ctx, net.JoinHostPort(l.Balancing.Address(node).String(), "8000")))
	}
	vips := step.Get(l.GatewayVIPs(ctx))
	var g struct {
		Status struct {
			Addresses  []struct{ Value string }
			Conditions []metav1.Condition
		}
	}
	step.Do(l.Balancing.API.Get(ctx, gateway, &g))
	if len(vips) == 0 || len(g.Status.Addresses) != len(vips) || g.Status.Addresses[0].Value != vips[0].String() {
		step.Do(fmt.Errorf("the Gateway shared has the status %+v, and Traefik's Service the VIPs %v", g.Status, vips))
	}
}

// GatewayVIPs returns the addresses of the gateway.
func (l *Lab) GatewayVIPs(ctx context.Context) ([]netip.Addr, error) {
	var s corev1.Service
	err := l.Balancing.API.Get(ctx, gatewayService, &s)
	return service.StatusAddresses(&s), err
}

// Resolver returns a resolver that asks the lab's name server from the client c1.
func (l *Lab) Resolver() *net.Resolver {
	server := net.JoinHostPort(l.Balancing.Address("dns").String(), "53")
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return l.Node("c1").DialContext(ctx, network, server)
	}}
}

// DialName connects the client c1 to a port of a name that the lab's name server knows.
func (l *Lab) DialName(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	found, err := l.Resolver().LookupNetIP(ctx, "ip", host+".")
	if err != nil {
		return nil, err
	}
	return l.Node("c1").DialContext(ctx, network, net.JoinHostPort(found[0].Unmap().String(), port))
}
