package tenant

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// annotationDerived has a hash of all that was derived, by which what is no more derived is known.
const annotationDerived = v1alpha1.Group + "/derived"

// mostBytes is how large the specification of a route may be: many of the largest would fill the API server's store.
const mostBytes = 100_000

// annotationIssuer has cert-manager issue the certificates of an Ingress.
const annotationIssuer = "cert-manager.io/cluster-issuer"

// DomainOf is the domain of a tenant's own names, given that of the load-balancing cluster.
func DomainOf(tenant, domain string) string { return tenant + "." + domain }

// DomainsOf are those that a tenant's hostnames may be in, its own first.
func DomainsOf(t *v1alpha1.Tenant, domain string) []string {
	out := []string{DomainOf(t.Name, domain)}
	for _, d := range t.Spec.Domains {
		out = append(out, string(d))
	}
	return out
}

// within reports whether a hostname, which may be a wildcard, is in a domain.
func within(host, domain string) bool {
	return host == domain || strings.HasSuffix(host, "."+domain)
}

// Names are the hostnames that Ingresses and Gateways have of their own, and whose they are.
type Names map[string]string

// Claim is the name of an HTTPLoadBalancer in a tenant's domain: the one that it has, or the first label that nobody has of its origin's name,
// that with the namespace, and that with a hash.
func (n Names) Claim(lb *v1alpha1.HTTPLoadBalancer, domain string) string {
	key := lb.Namespace + "/" + lb.Name
	o := lb.Spec.Origin
	candidates := []string{label(o.Name, 63), label(o.Name+"-"+o.Namespace, 63), label(o.Name, 36) + "-" + hashOf(lb.Name)}
	for i := range candidates {
		candidates[i] += "." + domain
	}
	if len(lb.Status.Hostnames) > 0 && slices.Contains(candidates, lb.Status.Hostnames[0]) {
		candidates = slices.Insert(candidates, 0, lb.Status.Hostnames[0])
	}
	for _, host := range candidates {
		if whose, taken := n[host]; !taken || whose == key {
			n[host] = key
			return host
		}
	}
	return "" // others were given such names
}

// Release gives up what an HTTPLoadBalancer has, by its namespace and name with a slash between.
func (n Names) Release(key string) {
	maps.DeleteFunc(n, func(_, whose string) bool { return whose == key })
}

// label makes a label of DNS of a name.
func label(name string, longest int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprintf("%.*s", longest, name), ".", "-"), "-")
}

// DerivedRoute is what an HTTPLoadBalancer makes of itself in its namespace.
type DerivedRoute struct {
	// Object is the Ingress or the route; of a Gateway there is none.
	Object *unstructured.Unstructured
	// Hostnames are those that it is served at.
	Hostnames []string
	// Backends are the TCPLoadBalancers that it needs, by the names of what is derived of those.
	Backends map[string]string
	// Lacks are sentences about what it is served without.
	Lacks []string
}

// DeriveRoute makes what a tenant is served by name: domains are those of its hostnames, and own are the names of the HTTPLoadBalancer itself
// or of its Gateways. The error is a [pool.Refusal].
func DeriveRoute(t *v1alpha1.Tenant, lb *v1alpha1.HTTPLoadBalancer, domains, own []string) (DerivedRoute, error) {
	d := DerivedRoute{Hostnames: slices.Clone(own), Backends: make(map[string]string)}
	origin := lb.Spec.Origin
	switch want := RouteName(lb.Spec.Kind, origin.Namespace, origin.Name); {
	case lb.Name != want:
		return d, refuse(ReasonRefused, "its name is not that of its origin: want %s", want)
	case lb.Spec.Kind == KindIngress && t.Spec.Ingress.ClassName == "":
		return d, refuse(ReasonRefused, "the Tenant has no ingress, so Ingresses are not served")
	case (lb.Spec.Kind == KindIngress || lb.Spec.Kind == KindGateway) && len(own) == 0:
		return d, refuse(ReasonRefused, "all names that it could have are others': give it another name")
	case lb.Spec.Kind != KindIngress && t.Spec.Gateway.Name == "":
		return d, refuse(ReasonRefused, "the Tenant has no gateway, so Gateways and routes are not served")
	case lb.Spec.Kind == KindGateway:
		return d, nil
	case lb.Spec.Object == nil || len(lb.Spec.Object.Raw) > mostBytes:
		return d, refuse(ReasonRefused, "its object is missing, or has more than %d bytes", mostBytes)
	}
	var spec map[string]any
	if err := utiljson.Unmarshal(lb.Spec.Object.Raw, &spec); err != nil { // with whole numbers, as apimachinery wants them
		return d, refuse(ReasonRefused, "its object is none: %v", err)
	}
	err := eachBackend(lb.Spec.Kind, "", spec, func(ref map[string]any, refused error) error {
		asked := LoadBalancerName(origin.Namespace + "/" + text(ref["name"]))
		ref["name"] = derivedName(asked)
		d.Backends[derivedName(asked)] = asked
		return refused
	})
	if err != nil {
		return d, err
	}
	var asked []string // hostnames
	annotations := make(map[string]string)
	if lb.Spec.Kind == KindIngress {
		spec, asked, d.Lacks, err = deriveIngress(t, lb, spec, own[0], annotations)
	} else {
		asked = sets.List(sets.New(append(convert[[]string](spec["hostnames"]), own...)...))
		if len(asked) == 0 {
			err = refuse(ReasonRefused, "it has no hostname, and its Gateway has no name yet")
		}
		spec = map[string]any{
			"parentRefs": []any{map[string]any{"namespace": t.Spec.Gateway.Namespace, "name": t.Spec.Gateway.Name}},
			"hostnames":  convert[[]any](asked), "rules": spec["rules"],
		}
	}
	if err != nil {
		return d, err
	}
	for _, host := range asked {
		if err := permitted(host, domains); err != nil {
			return d, err
		}
		if !slices.Contains(d.Hostnames, host) {
			d.Hostnames = append(d.Hostnames, host)
		}
	}
	annotations[annotationDerived] = hashOf(fmt.Sprint(spec, annotations))
	kinds := RouteKinds()
	d.Object = &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	d.Object.SetGroupVersionKind(kinds[slices.IndexFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Kind == lb.Spec.Kind })])
	d.Object.SetNamespace(lb.Namespace)
	d.Object.SetName(DerivedRouteName(lb.Name))
	d.Object.SetAnnotations(annotations)
	d.Object.SetLabels(map[string]string{v1alpha1.LabelTenant: t.Name})
	d.Object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: "HTTPLoadBalancer", Name: lb.Name, UID: lb.UID, Controller: new(true),
	}})
	return d, nil
}

// AskedBackends are the names of the Services that an HTTPLoadBalancer sends requests to.
func AskedBackends(lb *v1alpha1.HTTPLoadBalancer) []string {
	if lb.Spec.Object == nil {
		return nil
	}
	return backendsOf(lb.Spec.Kind, "", convert[map[string]any](lb.Spec.Object))
}

// DerivedRouteName is that of the object that is derived from an HTTPLoadBalancer, of whatever kind.
func DerivedRouteName(loadBalancer string) string { return derivedName(loadBalancer) }

// permitted is nil if a hostname is in one of the domains. The empty one is in none: it would be everybody's.
func permitted(host string, domains []string) error {
	bare := strings.TrimPrefix(host, "*.")
	switch {
	case len(validation.IsDNS1123Subdomain(bare)) > 0:
		return refuse(ReasonRefused, "%q is no hostname", host)
	case !slices.ContainsFunc(domains, func(d string) bool { return within(bare, d) }):
		return refuse(ReasonRefused, "the hostname %s is not in the domains of the Tenant, %s", host, strings.Join(domains, " and "))
	}
	return nil
}

// Permitted reports whether all hostnames of a derived object are in the domains.
func Permitted(derived *unstructured.Unstructured, domains []string) bool {
	spec := object(derived.Object["spec"])
	hosts := convert[[]string](spec["hostnames"])
	for _, rule := range objects(spec["rules"]) {
		if host, ok := rule["host"]; ok {
			hosts = append(hosts, text(host))
		}
	}
	for _, section := range objects(spec["tls"]) {
		hosts = append(hosts, convert[[]string](section["hosts"])...)
	}
	return !slices.ContainsFunc(hosts, func(host string) bool { return permitted(host, domains) != nil })
}

// deriveIngress is the specification of the Ingress that the controller here serves, the hostnames that it has, and what it is served without. Rules
// without a host, and the default backend, are those of its own name.
func deriveIngress(t *v1alpha1.Tenant, lb *v1alpha1.HTTPLoadBalancer, spec map[string]any, own string, annotations map[string]string) (out map[string]any, hosts, lacks []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(lb.Spec.Annotations)) {
		if !slices.Contains(t.Spec.Ingress.Annotations, name) {
			return nil, nil, nil, refuse(ReasonRefused, "the annotation %s is not in ingress.annotations of the Tenant", name)
		}
		annotations[name] = lb.Spec.Annotations[name]
	}
	given := objects(spec["rules"])
	if backend := spec["defaultBackend"]; backend != nil {
		given = append(given, map[string]any{"http": map[string]any{"paths": []any{map[string]any{"path": "/", "pathType": "Prefix", "backend": backend}}}})
	}
	var rules, tls []any
	for _, r := range given {
		host := cmp.Or(text(r["host"]), own)
		rules, hosts = append(rules, map[string]any{"host": host, "http": r["http"]}), append(hosts, host)
	}
	for _, section := range objects(spec["tls"]) {
		names := convert[[]string](section["hosts"])
		hosts = append(hosts, names...)
		of := map[string]any{"hosts": convert[[]any](names)}
		switch secret := text(section["secretName"]); {
		case slices.Contains(lb.Spec.Secrets, secret) && t.Spec.Certificates.Own:
			of["secretName"] = SecretName(lb.Name, secret)
		case secret == "": // the controller's own
		case slices.Contains(lb.Spec.Secrets, secret) && t.Spec.Certificates.Issuer == "":
			lacks = append(lacks, fmt.Sprintf("the Secret %s is not used: the Tenant has no certificates.own", secret))
		case t.Spec.Certificates.Issuer == "" || t.Spec.Certificates.Own && len(lb.Spec.Secrets) > 0: // cert-manager would write into the others, too
			lacks = append(lacks, fmt.Sprintf("there is no Secret %s of the type kubernetes.io/tls", secret))
		default:
			of["secretName"], annotations[annotationIssuer] = "cert-"+derivedName(lb.Name+"/"+secret), t.Spec.Certificates.Issuer
		}
		tls = append(tls, of)
	}
	out = map[string]any{"ingressClassName": t.Spec.Ingress.ClassName, "rules": rules}
	if len(tls) > 0 {
		out["tls"] = tls
	}
	return out, hosts, lacks, nil
}

// SameRoute reports whether an object is as derived, apart from what the API server and others add.
func SameRoute(is, want *unstructured.Unstructured) bool { return has(is.Object, want.Object) }

// has reports whether a value of JSON has all that another has.
func has(is, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		i := object(is)
		for name, v := range w {
			if !has(i[name], v) {
				return false
			}
		}
		return true
	case []any:
		i, _ := is.([]any)
		return slices.EqualFunc(i, w, has)
	}
	return is == want
}

// RouteStatus is what the manager reports of an HTTPLoadBalancer: refused says why it is not served as it asks, d is what was derived, is the
// object as it is, nil if there is none, and missing is what its backends lack, empty if nothing.
func RouteStatus(lb *v1alpha1.HTTPLoadBalancer, refused error, d DerivedRoute, is *unstructured.Unstructured, missing string, now time.Time) v1alpha1.HTTPLoadBalancerStatus {
	s := v1alpha1.HTTPLoadBalancerStatus{ObservedGeneration: lb.Generation, Hostnames: d.Hostnames}
	if is != nil && d.Object != nil {
		s.Conditions = conditionsOf(is, d.Backends)
	}
	c := metav1.Condition{Status: metav1.ConditionFalse}
	switch rejected := firstFalse(s.Conditions); {
	case refused != nil:
		c = *outcome(refused, "", nil)
	case missing != "":
		c.Reason, c.Message = ReasonNoNodes, missing
	case rejected != nil:
		c.Reason, c.Message = rejected.Reason, rejected.Message
	case d.Object != nil && lb.Spec.Kind != KindIngress && len(s.Conditions) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonPending, "the Gateway of the load-balancing cluster has not taken it yet"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonServed, "it is served"
	}
	c.Type = ConditionReady
	s.Conditions = dated(lb.Status.Conditions, append(s.Conditions, c), 0, now)
	return s
}

func firstFalse(conditions []metav1.Condition) *metav1.Condition {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionFalse })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// conditionsOf is what the Gateway says of a derived route as it is, with the tenant's own words for backends.
func conditionsOf(route *unstructured.Unstructured, backends map[string]string) []metav1.Condition {
	parents := convert[[]parentStatus](object(route.Object["status"])["parents"])
	if len(parents) == 0 {
		return nil
	}
	var words []string
	for derived, asked := range backends {
		words = append(words, derived, ServiceOf(asked))
	}
	out := slices.DeleteFunc(parents[0].Conditions, func(c metav1.Condition) bool {
		return c.ObservedGeneration != route.GetGeneration()
	})
	for i := range out {
		out[i].Message, out[i].ObservedGeneration = strings.NewReplacer(words...).Replace(out[i].Message), 0
	}
	return out
}
