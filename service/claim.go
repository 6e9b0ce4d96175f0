// Package service decides which addresses a Kubernetes Service of type LoadBalancer asks for, and which nodes may
// announce them. It is pure: it sends nothing and has no state.
package service

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/pool"
)

// The annotations of a Service that Herald reads.
const (
	// AnnotationAddresses asks for an address, or for one of each family, separated by a comma.
	AnnotationAddresses = v1alpha1.Group + "/addresses"
	// AnnotationPool asks for a pool by name.
	AnnotationPool = v1alpha1.Group + "/pool"
	// AnnotationShare is a sharing key: Services with the same key get the same addresses
	// if they have the same policy and no port in common.
	AnnotationShare = v1alpha1.Group + "/share"
)

// AnnotationPrefer names the preferred holders of the addresses of a Service on a flat layer 2, most preferred first,
// separated by commas.
const AnnotationPrefer = v1alpha1.Group + "/prefer-nodes"

// AnnotationAssigned holds the addresses of a Service that cannot have them in its status. Herald writes it.
const AnnotationAssigned = v1alpha1.Group + "/assigned"

// ConditionAssigned is the type of the condition on a Service that reports whether
// it has the addresses that it asks for. Its reason is `Assigned` or a [pool.Reason].
const ConditionAssigned = v1alpha1.Group + "/AddressAssigned"

// ConditionAnnounced is the type of the condition on a Service that reports which nodes announce its addresses, or why
// no node does.
const ConditionAnnounced = v1alpha1.Group + "/Announced"

// mostNodes limits the nodes that a Service may prefer by name.
const mostNodes = 64

// longestName limits the name of a pool and a sharing key, in bytes.
const longestName = 253

// Scope selects Herald's Services and the annotations that count.
type Scope struct {
	// Class is their loadBalancerClass. Default includes Services without a class.
	Class   string
	Default bool
	// Compatibility names load balancers. Their annotations count where the equivalent annotation of Herald is absent.
	Compatibility []string
}

// Ours reports whether Herald serves a Service: it has the type LoadBalancer, and the
// class of c, or no class if c.Default is set.
func (c Scope) Ours(s *corev1.Service) bool {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	if s.Spec.LoadBalancerClass == nil {
		return c.Default
	}
	return *s.Spec.LoadBalancerClass == c.Class
}

// synonym is an annotation of another load balancer and its equivalent of Herald.
type synonym struct{ product, name, annotation string }

// synonyms returns all compatible annotations. If a product has two for the same purpose, the first takes precedence.
func synonyms() [11]synonym {
	return [...]synonym{
		{"metallb", "metallb.io/loadBalancerIPs", AnnotationAddresses},
		{"metallb", "metallb.universe.tf/loadBalancerIPs", AnnotationAddresses},
		{"metallb", "metallb.io/address-pool", AnnotationPool},
		{"metallb", "metallb.universe.tf/address-pool", AnnotationPool},
		{"metallb", "metallb.io/allow-shared-ip", AnnotationShare},
		{"metallb", "metallb.universe.tf/allow-shared-ip", AnnotationShare},
		{"kube-vip", "kube-vip.io/loadbalancerIPs", AnnotationAddresses},
		{"cilium", "lbipam.cilium.io/ips", AnnotationAddresses},
		{"cilium", "io.cilium/lb-ipam-ips", AnnotationAddresses},
		{"cilium", "lbipam.cilium.io/sharing-key", AnnotationShare},
		{"cilium", "io.cilium/lb-ipam-sharing-key", AnnotationShare},
	}
}

// find returns the name and value of an annotation, Herald's or a compatible one; Herald's name and no value if both are absent.
func (c Scope) find(s *corev1.Service, annotation string) (name, value string) {
	if value := strings.TrimSpace(s.Annotations[annotation]); value != "" {
		return annotation, value
	}
	for _, product := range c.Compatibility {
		for _, o := range synonyms() {
			if value := strings.TrimSpace(s.Annotations[o.name]); o.product == product && o.annotation == annotation && value != "" {
				return o.name, value
			}
		}
	}
	return annotation, ""
}

// Reads reports whether the annotation may matter to Herald: its own or a compatible one.
func Reads(annotation string) bool {
	all := synonyms()
	return strings.HasPrefix(annotation, v1alpha1.Group+"/") || slices.ContainsFunc(all[:], func(o synonym) bool { return o.name == annotation })
}

// ClaimOf returns the claim of a Service by its specification and annotations. The
// error is a [pool.Refusal]. The caller sets [pool.Claim.SelectedBy].
func (c Scope) ClaimOf(s *corev1.Service) (pool.Claim, error) {
	out := pool.Claim{Key: s.Namespace + "/" + s.Name, Policy: policyOf(s), Ports: portsOf(s)}
	out.Families, out.Partial = familiesOf(s)
	if err := known(s.Annotations); err != nil {
		return out, err
	}
	var err error
	if out.Pool, err = c.named(s, AnnotationPool, "the name of a pool"); err != nil {
		return out, err
	}
	if out.Share, err = c.named(s, AnnotationShare, "a sharing key"); err != nil {
		return out, err
	}
	if n := len(Prefers(s)); n > mostNodes {
		return out, invalid("%s names %d nodes: want %d at most", AnnotationPrefer, n, mostNodes)
	}
	out.Addresses, err = c.addressesOf(s)
	return out, err
}

// familiesOf returns the families of the Service, and whether one of two is enough. Only
// Services from early Kubernetes versions lack families.
func familiesOf(s *corev1.Service) (families []pool.Family, partial bool) {
	for _, f := range s.Spec.IPFamilies {
		family := pool.IPv4
		if f == corev1.IPv6Protocol {
			family = pool.IPv6
		}
		if !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	if len(families) == 0 {
		families = []pool.Family{pool.IPv4}
		if addr, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
			families[0] = pool.FamilyOf(addr)
		}
	}
	return families, s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
}

// policyOf returns the policy of a claim: which nodes accept the traffic of an address. These are all nodes, or the
// nodes with endpoints, which are equal for Services of one namespace that select the same pods.
func policyOf(s *corev1.Service) string {
	switch {
	case s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal:
		return string(corev1.ServiceExternalTrafficPolicyCluster)
	case len(s.Spec.Selector) == 0: // another controller writes its endpoints
		return fmt.Sprintf("%s %s/%s", corev1.ServiceExternalTrafficPolicyLocal, s.Namespace, s.Name)
	}
	return fmt.Sprintf("%s %s %s", corev1.ServiceExternalTrafficPolicyLocal, s.Namespace, labels.Set(s.Spec.Selector))
}

func portsOf(s *corev1.Service) []pool.Port {
	var ports []pool.Port
	for _, p := range s.Spec.Ports {
		ports = append(ports, pool.Port{Protocol: string(cmp.Or(p.Protocol, corev1.ProtocolTCP)), Number: uint16(p.Port)})
	}
	return ports
}

// known returns a refusal for an annotation with Herald's prefix that does not exist: a
// mistyped annotation must not be ignored.
func known(annotations map[string]string) error {
	read := []string{AnnotationAddresses, AnnotationPool, AnnotationShare, AnnotationPrefer}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(name, v1alpha1.Group+"/") && !slices.Contains(read, name) && name != AnnotationAssigned {
			return invalid("there is no annotation %s: want one of %s", short(name), strings.Join(read, ", "))
		}
	}
	return nil
}

// named returns the value of an annotation that is a name. want describes it for the error.
func (c Scope) named(s *corev1.Service, annotation, want string) (string, error) {
	annotation, value := c.find(s, annotation)
	if len(value) > longestName {
		return "", invalid("%s is %d bytes long: want %s of %d at most", annotation, len(value), want, longestName)
	}
	if !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", invalid("%s has unprintable characters: want %s", annotation, want)
	}
	return value, nil
}

// addressesOf returns the addresses that the Service asks for by value.
func (c Scope) addressesOf(s *corev1.Service) ([]netip.Addr, error) {
	var addrs []netip.Addr
	const field = "spec.loadBalancerIP"
	if asked := strings.TrimSpace(s.Spec.LoadBalancerIP); asked != "" {
		addr, err := parse(field, asked)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	annotation, list := c.find(s, AnnotationAddresses)
	if list == "" {
		return addrs, nil
	}
	var annotated []netip.Addr
	for part := range strings.SplitSeq(list, ",") {
		addr, err := parse(annotation, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(annotated, addr) {
			annotated = append(annotated, addr)
		}
		if len(annotated) > 2 {
			return nil, invalid("%s has more than two addresses: want one of each family at most", annotation)
		}
	}
	if len(addrs) > 0 && !slices.Contains(annotated, addrs[0]) {
		return nil, invalid("%s asks for %s, but %s asks for other addresses: remove one of the two", field, addrs[0], annotation)
	}
	return annotated, nil
}

// Prefers returns the nodes that a Service prefers.
func Prefers(s *corev1.Service) []string {
	var out []string
	for name := range strings.SplitSeq(s.Annotations[AnnotationPrefer], ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// StatusAddresses returns the addresses in a Service's status, in the same order.
func StatusAddresses(s *corev1.Service) []netip.Addr {
	var addrs []netip.Addr
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if addr, err := netip.ParseAddr(ingress.IP); err == nil && addr.Zone() == "" {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs
}

func parse(where, value string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(value)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, invalid("%s has %q: want an address such as 10.1.0.1 or fd00::1", where, short(value))
	}
	return addr.Unmap(), nil
}

// short returns the beginning of a long value.
func short(value string) string {
	const most = 50
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}

func invalid(format string, args ...any) error {
	return &pool.Refusal{Reason: pool.InvalidClaim, Message: fmt.Sprintf(format, args...)}
}
