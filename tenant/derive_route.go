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

// annotationDerived holds a hash of the derived fields. It reveals fields that are no longer derived.
const annotationDerived = v1alpha1.Group + "/derived"

// mostBytes limits the specification of a route: many large ones would fill the API server's store.
const mostBytes = 100_000

// annotationIssuer makes cert-manager issue the certificates of an Ingress.
const annotationIssuer = "cert-manager.io/cluster-issuer"

// DomainOf returns the domain of a tenant's own names within the domain of the load-balancing cluster.
func DomainOf(tenant, domain string) string { return tenant + "." + domain }

// DomainsOf returns the domains that a tenant's hostnames may be in, its own first.
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

// Names maps the assigned hostnames of Ingresses and Gateways to the key of their HTTPLoadBalancer.
type Names map[string]string

// Claim assigns a name in a tenant's domain to an HTTPLoadBalancer and returns it; empty if none is free. It returns the
// name of its status, or the first free one of: the origin's name, name and namespace, name and hash.
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
		if owner, taken := n[host]; !taken || owner == key {
			n[host] = key
			return host
		}
	}
	return "" // all candidates belong to others
}

// Release frees the names of an HTTPLoadBalancer, given as namespace/name.
func (n Names) Release(key string) {
	maps.DeleteFunc(n, func(_, owner string) bool { return owner == key })
}

// label converts a name to a DNS label.
func label(name string, longest int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprintf("%.*s", longest, name), ".", "-"), "-")
}

// DerivedRoute is the result of deriving an HTTPLoadBalancer.
type DerivedRoute struct {
	// Object is the Ingress or the route; nil for a Gateway.
	Object *unstructured.Unstructured
	// Hostnames are the hostnames that reach it.
	Hostnames []string
	// Backends are the TCPLoadBalancers that it needs, by the names of their derived Services.
	Backends map[string]string
	// Missing are sentences about Secrets that it is served without.
	Missing []string
}

// DeriveRoute derives the Ingress or route of an HTTPLoadBalancer. domains are the permitted domains of hostnames; own are
// the assigned names of the HTTPLoadBalancer or of its Gateways. The error is a [pool.Refusal].
func DeriveRoute(t *v1alpha1.Tenant, lb *v1alpha1.HTTPLoadBalancer, domains, own []string) (DerivedRoute, error) {
	d := DerivedRoute{Hostnames: slices.Clone(own), Backends: make(map[string]string)}
	origin := lb.Spec.Origin
	switch want := RouteName(lb.Spec.Kind, origin.Namespace, origin.Name); {
	case lb.Name != want:
		return d, refuse(ReasonRefused, "its name does not match its origin: want %s", want)
	case lb.Spec.Kind == KindIngress && t.Spec.Ingress.ClassName == "":
		return d, refuse(ReasonRefused, "the Tenant has no ingress, so Ingresses are not served")
	case (lb.Spec.Kind == KindIngress || lb.Spec.Kind == KindGateway) && len(own) == 0:
		return d, refuse(ReasonRefused, "other objects have all names that it could get': give it another name")
	case lb.Spec.Kind != KindIngress && t.Spec.Gateway.Name == "":
		return d, refuse(ReasonRefused, "the Tenant has no gateway, so Gateways and routes are not served")
	case lb.Spec.Kind == KindGateway:
		return d, nil
	case lb.Spec.Object == nil || len(lb.Spec.Object.Raw) > mostBytes:
		return d, refuse(ReasonRefused, "its object is missing, or has more than %d bytes", mostBytes)
	}
	var spec map[string]any
	if err := utiljson.Unmarshal(lb.Spec.Object.Raw, &spec); err != nil { // keeps whole numbers, as apimachinery needs them
		return d, refuse(ReasonRefused, "its object is invalid: %v", err)
	}
	err := eachBackend(lb.Spec.Kind, "", spec, func(ref map[string]any, refused error) error {
		asked := v1alpha1.LoadBalancerName(origin.Namespace + "/" + text(ref["name"]))
		ref["name"] = DerivedName(asked)
		d.Backends[DerivedName(asked)] = asked
		return refused
	})
	if err != nil {
		return d, err
	}
	var asked []string // hostnames
	annotations := make(map[string]string)
	if lb.Spec.Kind == KindIngress {
		spec, asked, d.Missing, err = deriveIngress(t, lb, spec, own[0], annotations)
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
	d.Object.SetName(DerivedName(lb.Name))
	d.Object.SetAnnotations(annotations)
	d.Object.SetLabels(map[string]string{v1alpha1.LabelTenant: t.Name})
	d.Object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: "HTTPLoadBalancer", Name: lb.Name, UID: lb.UID, Controller: new(true),
	}})
	return d, nil
}

// AskedBackends returns the names of the Services that an HTTPLoadBalancer sends requests to.
func AskedBackends(lb *v1alpha1.HTTPLoadBalancer) []string {
	if lb.Spec.Object == nil {
		return nil
	}
	return backendsOf(lb.Spec.Kind, "", convert[map[string]any](lb.Spec.Object))
}

// permitted returns a refusal unless a hostname is in one of the domains. It refuses the empty hostname, which matches
// the requests of all tenants.
func permitted(host string, domains []string) error {
	bare := strings.TrimPrefix(host, "*.")
	switch {
	case len(validation.IsDNS1123Subdomain(bare)) > 0:
		return refuse(ReasonRefused, "%q is not a hostname", host)
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

// deriveIngress returns the specification of the derived Ingress, its hostnames, and sentences about missing Secrets.
// Rules without a host, and the default backend, apply to its own name.
func deriveIngress(t *v1alpha1.Tenant, lb *v1alpha1.HTTPLoadBalancer, spec map[string]any, own string, annotations map[string]string) (out map[string]any, hosts, missing []string, err error) {
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
		derived := map[string]any{"hosts": convert[[]any](names)}
		switch secret := text(section["secretName"]); {
		case slices.Contains(lb.Spec.Secrets, secret) && t.Spec.Certificates.Own:
			derived["secretName"] = SecretName(lb.Name, secret)
		case secret == "": // the controller uses its own certificate
		case slices.Contains(lb.Spec.Secrets, secret) && t.Spec.Certificates.Issuer == "":
			missing = append(missing, fmt.Sprintf("the Secret %s is not used: the Tenant has no certificates.own", secret))
		case t.Spec.Certificates.Issuer == "" || t.Spec.Certificates.Own && len(lb.Spec.Secrets) > 0: // else cert-manager would overwrite the other Secrets, too
			missing = append(missing, fmt.Sprintf("there is no Secret %s of the type kubernetes.io/tls", secret))
		default:
			derived["secretName"], annotations[annotationIssuer] = "cert-"+DerivedName(lb.Name+"/"+secret), t.Spec.Certificates.Issuer
		}
		tls = append(tls, derived)
	}
	out = map[string]any{"ingressClassName": t.Spec.Ingress.ClassName, "rules": rules}
	if len(tls) > 0 {
		out["tls"] = tls
	}
	return out, hosts, missing, nil
}

// SameRoute reports whether an object equals the derived one, ignoring additions by the API server and others.
func SameRoute(current, want *unstructured.Unstructured) bool {
	return includes(current.Object, want.Object)
}

// includes reports whether a JSON value contains all fields of another.
func includes(current, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		m := object(current)
		for name, v := range w {
			if !includes(m[name], v) {
				return false
			}
		}
		return true
	case []any:
		list, _ := current.([]any)
		return slices.EqualFunc(list, w, includes)
	}
	return current == want
}

// RouteStatus returns the status of an HTTPLoadBalancer. refused is the reason that it is not served as requested. d is
// the derivation and current the derived object, if any. missing describes the faults of its backends, if any.
func RouteStatus(lb *v1alpha1.HTTPLoadBalancer, refused error, d DerivedRoute, current *unstructured.Unstructured, missing string, now time.Time) v1alpha1.HTTPLoadBalancerStatus {
	s := v1alpha1.HTTPLoadBalancerStatus{ObservedGeneration: lb.Generation, Hostnames: d.Hostnames}
	if current != nil && d.Object != nil {
		s.Conditions = conditionsOf(current, d.Backends)
	}
	c := metav1.Condition{Status: metav1.ConditionFalse}
	rejected := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionFalse })
	switch {
	case refused != nil:
		c = *outcome(refused, "", nil)
	case missing != "":
		c.Reason, c.Message = ReasonNoNodes, missing
	case rejected >= 0:
		c.Reason, c.Message = s.Conditions[rejected].Reason, s.Conditions[rejected].Message
	case d.Object != nil && lb.Spec.Kind != KindIngress && len(s.Conditions) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonPending, "the Gateway of the load-balancing cluster has not accepted it yet"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonServed, "it is served"
	}
	c.Type = ConditionReady
	s.Conditions = dated(lb.Status.Conditions, append(s.Conditions, c), 0, now)
	return s
}

// conditionsOf returns the Gateway's conditions of the current generation of a derived route, with the tenant's names of backends.
func conditionsOf(route *unstructured.Unstructured, backends map[string]string) []metav1.Condition {
	parents := convert[[]parentStatus](object(route.Object["status"])["parents"])
	if len(parents) == 0 {
		return nil
	}
	var names []string
	for derived, asked := range backends {
		names = append(names, derived, v1alpha1.ServiceOf(asked))
	}
	out := slices.DeleteFunc(parents[0].Conditions, func(c metav1.Condition) bool {
		return c.ObservedGeneration != route.GetGeneration()
	})
	for i := range out {
		out[i].Message, out[i].ObservedGeneration = strings.NewReplacer(names...).Replace(out[i].Message), 0
	}
	return out
}
