package tenant

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/pool"
)

// A route is an Ingress or a route of the Gateway API: an object that is reached by hostname.
const (
	KindIngress      = "Ingress"
	KindGateway      = "Gateway"
	KindGatewayClass = "GatewayClass"

	// RouteClass is the name of the IngressClass and of the GatewayClass that the load-balancing cluster serves.
	RouteClass = "herald"
	// Controller is the controllerName of that GatewayClass.
	Controller = v1alpha1.Group + "/agent"
	// LabelCopy marks the copy of a Service; its value is the Service's name.
	LabelCopy = v1alpha1.Group + "/copy"
)

// Condition types of routes and Gateways (Gateway API v1).
const (
	condAccepted   = "Accepted"
	condResolved   = "ResolvedRefs"
	condProgrammed = "Programmed"
)

// RouteKinds returns the kinds of routes.
func RouteKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "networking.k8s.io", Version: "v1", Kind: KindIngress}, GatewayKind("HTTPRoute"), GatewayKind("GRPCRoute"), GatewayKind("TLSRoute"),
	}
}

// GatewayKind returns a kind of the Gateway API.
func GatewayKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: kind}
}

// RouteName returns the name of the HTTPLoadBalancer of an object.
func RouteName(kind, namespace, name string) string {
	return strings.ToLower(kind) + "." + namespace + "." + name
}

// Reasons of refused routes (Gateway API v1). The first two belong to the condition ResolvedRefs, the last to Accepted.
const (
	reasonKind      pool.Reason = "InvalidKind"
	reasonPermitted pool.Reason = "RefNotPermitted"
	reasonValue     pool.Reason = "UnsupportedValue"
)

func refuse(reason pool.Reason, format string, args ...any) error {
	return &pool.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// eachBackend calls visit for each backend reference of a route until visit returns an error. ref["name"] is the name of
// the Service. refused is set if the reference names another kind of object or another namespace. An empty namespace
// forbids references to any namespace. An Ingress with a backend of another kind, and a filter that may refer to other
// objects, are an error.
func eachBackend(kind, namespace string, spec map[string]any, visit func(ref map[string]any, refused error) error) error {
	if kind == KindIngress {
		backends := []map[string]any{object(spec["defaultBackend"])}
		for _, rule := range objects(spec["rules"]) {
			for _, path := range objects(object(rule["http"])["paths"]) {
				backends = append(backends, object(path["backend"]))
			}
		}
		for _, b := range backends {
			var err error
			if service := object(b["service"]); service != nil {
				err = visit(service, nil)
			} else if b != nil {
				err = refuse(reasonKind, "a backend is not a Service: only Services can be reached from the load-balancing cluster")
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, rule := range objects(spec["rules"]) {
		filters, refs := objects(rule["filters"]), objects(rule["backendRefs"])
		for _, ref := range refs {
			filters = append(filters, objects(ref["filters"])...)
		}
		for _, f := range filters {
			if kind := text(f["type"]); !slices.Contains([]string{
				"RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "RequestRedirect", "URLRewrite", "CORS",
			}, kind) { // other types may refer to objects that are not the tenant's
				return refuse(reasonValue, "a filter has the unsupported type %q", kind)
			}
			if mirror := object(object(f["requestMirror"])["backendRef"]); mirror != nil {
				refs = append(refs, mirror)
			}
		}
		for _, ref := range refs {
			var refused error
			switch group, kind := text(ref["group"]), text(ref["kind"]); {
			case group != "" || kind != "" && kind != "Service":
				refused = refuse(reasonKind, "a backend is a %s: only Services can be reached from the load-balancing cluster", kind)
			case ref["namespace"] != nil && (namespace == "" || ref["namespace"] != any(namespace)):
				refused = refuse(reasonPermitted, "the backend %s is in another namespace: only Services in the namespace of the route are served", text(ref["name"]))
			}
			if err := visit(ref, refused); err != nil {
				return err
			}
		}
	}
	return nil
}

// BackendsOf returns the names of the Services that a route sends requests to.
func BackendsOf(route *unstructured.Unstructured) []string {
	return backendsOf(route.GetKind(), route.GetNamespace(), object(route.Object["spec"]))
}

func backendsOf(kind, namespace string, spec map[string]any) []string {
	names := make(sets.Set[string])
	_ = eachBackend(kind, namespace, spec, func(ref map[string]any, refused error) error { // an error ends the list early
		if refused == nil {
			names.Insert(text(ref["name"]))
		}
		return nil
	})
	return sets.List(names)
}

// Serves reports whether an Ingress or a Gateway has the class, or a GatewayClass this controller. Routes of the Gateway
// API are served if they have [Gateways.Parents].
func Serves(o *unstructured.Unstructured) bool {
	spec := object(o.Object["spec"])
	return o.GetDeletionTimestamp() == nil &&
		(text(spec["ingressClassName"]) == RouteClass || text(spec["gatewayClassName"]) == RouteClass || text(spec["controllerName"]) == Controller)
}

// SecretsOf returns the names of the Secrets that an Ingress refers to.
func SecretsOf(ingress *unstructured.Unstructured) (out []string) {
	for _, section := range objects(object(ingress.Object["spec"])["tls"]) {
		if name := text(section["secretName"]); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// SecretName returns the name of the copy of an Ingress's Secret in the load-balancing cluster. The policies there let
// agents write only Secrets with this prefix.
func SecretName(loadBalancer, secret string) string {
	return "tls-" + DerivedName(loadBalancer+"/"+secret)
}

// refusedBackend returns why the route is served without one of its backends; nil if it has all.
func refusedBackend(route *unstructured.Unstructured) (first error) {
	_ = eachBackend(route.GetKind(), route.GetNamespace(), object(route.Object["spec"]), func(_ map[string]any, refused error) error {
		first = cmp.Or(first, refused)
		return nil
	})
	return first
}

// nowhere replaces the name of a refused backend. No Service can have this name, so the gateway answers an HTTPRoute's
// requests for it with 500.
const nowhere = "refused." + v1alpha1.Group

// MissingBackend returns the sentence about a missing backend, given the name of its TCPLoadBalancer.
func MissingBackend(asked string) string {
	if strings.HasSuffix(asked, "."+nowhere) {
		return "a backend is refused: see the status of the route in the tenant's cluster"
	}
	return fmt.Sprintf("the Service %s does not exist or cannot be reached", v1alpha1.ServiceOf(asked))
}

// AskRoute returns the specification of a route's HTTPLoadBalancer. parents are the parents of a route of the Gateway API,
// secrets the existing Secrets of an Ingress. The error is a [pool.Refusal] for the route's author. Refused backends are
// renamed to a Service that cannot exist.
func AskRoute(o *unstructured.Unstructured, parents []Parent, secrets []*corev1.Secret) (*v1alpha1.HTTPLoadBalancerSpec, error) {
	spec := object(o.DeepCopy().Object["spec"])
	out := &v1alpha1.HTTPLoadBalancerSpec{Kind: o.GetKind(), Origin: v1alpha1.ObjectReference{Namespace: o.GetNamespace(), Name: o.GetName()}}
	fields := make(map[string]any)
	switch out.Kind {
	case KindGateway:
		return out, nil
	case KindIngress:
		out.Annotations = annotationsToSend(o.GetAnnotations())
		for _, s := range secrets {
			out.Secrets = append(out.Secrets, s.Name)
		}
		for _, field := range []string{"defaultBackend", "rules", "tls"} {
			if v, ok := spec[field]; ok {
				fields[field] = v
			}
		}
	default:
		var hostnames []string
		for _, p := range parents {
			hostnames = append(hostnames, p.Hostnames...)
			if p.ByName {
				out.Gateways = append(out.Gateways, p.Gateway)
			}
		}
		if len(hostnames) > 0 {
			fields["hostnames"] = sets.List(sets.New(hostnames...))
		}
		if rules, ok := spec["rules"]; ok {
			fields["rules"] = rules
		}
		out.Gateways = sets.List(sets.New(out.Gateways...))
	}
	err := eachBackend(out.Kind, out.Origin.Namespace, spec, func(ref map[string]any, refused error) error {
		if delete(ref, "namespace"); refused != nil {
			delete(ref, "group")
			delete(ref, "kind")
			ref["name"], ref["port"] = nowhere, cmp.Or(ref["port"], any(int64(80)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(fields) // sorts the fields
	if err != nil {
		return nil, fmt.Errorf("write the specification of %s %s/%s: %w", out.Kind, o.GetNamespace(), o.GetName(), err)
	}
	out.Object = &runtime.RawExtension{Raw: raw}
	return out, nil
}

// annotationsToSend omits the bookkeeping annotations of tools.
func annotationsToSend(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(name, _ string) bool {
		domain, _, _ := strings.Cut(name, "/")
		return !strings.HasSuffix("."+domain, ".ingress.kubernetes.io") && slices.ContainsFunc([]string{"kubernetes.io", "helm.sh", "fluxcd.io", "argoproj.io", "cattle.io", "cert-manager.io", v1alpha1.Group}, func(tool string) bool {
			return domain == tool || strings.HasSuffix(domain, "."+tool)
		})
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

// copyPrefix plus a Service's name is the name of its copy.
const copyPrefix = "herald-"

// CopyName returns the name of the copy of a Service.
func CopyName(service string) string {
	if len(copyPrefix+service) <= 63 {
		return copyPrefix + service
	}
	return strings.TrimRight(service[:63-len(copyPrefix)-27], "-") + "-" + hashOf(service)
}

// CopyOf returns a copy of type NodePort of a Service without node ports: through it the load-balancing cluster reaches
// the pods. The Service owns its copy, so both are deleted together.
func CopyOf(s *corev1.Service) *corev1.Service {
	out := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: CopyName(s.Name), Labels: map[string]string{LabelCopy: s.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID, Controller: new(true)}},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: s.Spec.Selector, PublishNotReadyAddresses: s.Spec.PublishNotReadyAddresses,
			IPFamilyPolicy: s.Spec.IPFamilyPolicy, IPFamilies: s.Spec.IPFamilies,
		},
	}
	for _, p := range s.Spec.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, TargetPort: p.TargetPort})
	}
	return out
}

// SameCopy reports whether a copy equals the wanted one, ignoring additions by the API server.
func SameCopy(current, want *corev1.Service) bool {
	ports := slices.Clone(current.Spec.Ports)
	for i := range ports {
		ports[i].NodePort = 0
	}
	return current.Spec.Type == want.Spec.Type && maps.Equal(current.Spec.Selector, want.Spec.Selector) && slices.Equal(ports, want.Spec.Ports) &&
		slices.Equal(current.Spec.IPFamilies, want.Spec.IPFamilies) && current.Spec.PublishNotReadyAddresses == want.Spec.PublishNotReadyAddresses
}

// object, objects and text return a JSON value of that type, or the zero value if it has another type.
func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func objects(v any) (out []map[string]any) {
	list, _ := v.([]any)
	for _, item := range list {
		if m := object(item); m != nil {
			out = append(out, m)
		}
	}
	return out
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// convert converts a value by way of JSON. Fields of other types are dropped.
func convert[T any](v any) (out T) {
	if raw, err := json.Marshal(v); err == nil {
		_ = json.Unmarshal(raw, &out) // a value of another type counts as absent
	}
	return out
}
