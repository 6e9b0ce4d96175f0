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

// What is served by name is called a route here: an Ingress, or a route of the Gateway API.
const (
	KindIngress      = "Ingress"
	KindGateway      = "Gateway"
	KindGatewayClass = "GatewayClass"

	// RouteClass is the name of the IngressClass and of the GatewayClass of what is served from the load-balancing cluster.
	RouteClass = "herald"
	// Controller is whose that GatewayClass is.
	Controller = v1alpha1.Group + "/agent"
	// LabelCopy is on each copy of a Service; its value is the name of that.
	LabelCopy = v1alpha1.Group + "/copy"
)

// Types of conditions of routes and Gateways (Gateway API v1).
const (
	condAccepted   = "Accepted"
	condResolved   = "ResolvedRefs"
	condProgrammed = "Programmed"
)

// RouteKinds are the kinds of routes.
func RouteKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "networking.k8s.io", Version: "v1", Kind: KindIngress}, GatewayKind("HTTPRoute"), GatewayKind("GRPCRoute"), GatewayKind("TLSRoute"),
	}
}

// GatewayKind is a kind of the Gateway API.
func GatewayKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: kind}
}

// RouteName is that of the HTTPLoadBalancer of an object.
func RouteName(kind, namespace, name string) string {
	return strings.ToLower(kind) + "." + namespace + "." + name
}

// Reasons why a route is not served (Gateway API v1). The first two are of the condition ResolvedRefs, the others of Accepted.
const (
	reasonKind      pool.Reason = "InvalidKind"
	reasonPermitted pool.Reason = "RefNotPermitted"
	reasonValue     pool.Reason = "UnsupportedValue"
)

func refuse(reason pool.Reason, format string, args ...any) error {
	return &pool.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// eachBackend calls visit with each reference to a Service in the specification of a route, which has its name in "name", until it returns an error. One to
// anything but a Service of the route's own namespace, which a reference may name if that is not empty, is visited as refused; of an Ingress,
// and where a filter may refer to anything else, that is the error.
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
				err = refuse(reasonKind, "a backend is no Service: only Services can be reached from the load-balancing cluster")
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
			}, kind) { // others may refer to what is not the tenant's
				return refuse(reasonValue, "a filter is of the type %q, which is not served", kind)
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
				refused = refuse(reasonPermitted, "the backend %s is in another namespace: only Services of the route's own are served", text(ref["name"]))
			}
			if err := visit(ref, refused); err != nil {
				return err
			}
		}
	}
	return nil
}

// BackendsOf are the names of the Services that a route sends requests to.
func BackendsOf(route *unstructured.Unstructured) []string {
	return backendsOf(route.GetKind(), route.GetNamespace(), object(route.Object["spec"]))
}

func backendsOf(kind, namespace string, spec map[string]any) []string {
	names := make(sets.Set[string])
	_ = eachBackend(kind, namespace, spec, func(ref map[string]any, refused error) error { // as far as they are Services
		if refused == nil {
			names.Insert(text(ref["name"]))
		}
		return nil
	})
	return sets.List(names)
}

// Serves reports whether an Ingress or a Gateway is of the class, or a GatewayClass of this controller. A route is served if it has [Gateways.Parents].
func Serves(o *unstructured.Unstructured) bool {
	spec := object(o.Object["spec"])
	return o.GetDeletionTimestamp() == nil &&
		(text(spec["ingressClassName"]) == RouteClass || text(spec["gatewayClassName"]) == RouteClass || text(spec["controllerName"]) == Controller)
}

// SecretsOf are the names of the Secrets that an Ingress names.
func SecretsOf(ingress *unstructured.Unstructured) (out []string) {
	for _, section := range objects(object(ingress.Object["spec"])["tls"]) {
		if name := text(section["secretName"]); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// SecretName is that of the copy of a Secret of an Ingress in the load-balancing cluster, where agents may write others of no other kind of name.
func SecretName(loadBalancer, secret string) string {
	return "tls-" + derivedName(loadBalancer+"/"+secret)
}

// refusedBackend is why a route is served without one of its backends, nil if it has all.
func refusedBackend(route *unstructured.Unstructured) (first error) {
	_ = eachBackend(route.GetKind(), route.GetNamespace(), object(route.Object["spec"]), func(_ map[string]any, refused error) error {
		first = cmp.Or(first, refused)
		return nil
	})
	return first
}

// nowhere is the name of the backend that is asked for instead of one that is refused, which no Service can have: an HTTPRoute's requests for it are answered with 500.
const nowhere = "refused." + v1alpha1.Group

// MissingBackend is the sentence about a backend of a route that is not there, by the name of its TCPLoadBalancer.
func MissingBackend(asked string) string {
	if strings.HasSuffix(asked, "."+nowhere) {
		return "a backend is refused: the route in the tenant's cluster says why"
	}
	return fmt.Sprintf("the Service %s is not there, or cannot be reached", ServiceOf(asked))
}

// AskRoute is what is asked for a route: parents are those of a route of the Gateway API, secrets those Secrets of an Ingress that there are.
// The error is a [pool.Refusal] for who made it. A route is asked for without the backends that are refused.
func AskRoute(o *unstructured.Unstructured, parents []Parent, secrets []*corev1.Secret) (*v1alpha1.HTTPLoadBalancerSpec, error) {
	spec := object(o.DeepCopy().Object["spec"])
	out := &v1alpha1.HTTPLoadBalancerSpec{Kind: o.GetKind(), Origin: v1alpha1.Origin{Namespace: o.GetNamespace(), Name: o.GetName()}}
	told := make(map[string]any)
	switch out.Kind {
	case KindGateway:
		return out, nil
	case KindIngress:
		out.Annotations = annotationsToTell(o.GetAnnotations())
		for _, s := range secrets {
			out.Secrets = append(out.Secrets, s.Name)
		}
		for _, field := range []string{"defaultBackend", "rules", "tls"} {
			if v, ok := spec[field]; ok {
				told[field] = v
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
			told["hostnames"] = sets.List(sets.New(hostnames...))
		}
		if rules, ok := spec["rules"]; ok {
			told["rules"] = rules
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
	raw, err := json.Marshal(told) // which sorts the fields
	if err != nil {
		return nil, fmt.Errorf("write the specification of %s %s/%s: %w", out.Kind, o.GetNamespace(), o.GetName(), err)
	}
	out.Object = &runtime.RawExtension{Raw: raw}
	return out, nil
}

// annotationsToTell leaves out those by which tools know their own objects.
func annotationsToTell(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(name, _ string) bool {
		of, _, _ := strings.Cut(name, "/")
		return !strings.HasSuffix("."+of, ".ingress.kubernetes.io") && slices.ContainsFunc([]string{"kubernetes.io", "helm.sh", "fluxcd.io", "argoproj.io", "cattle.io", "cert-manager.io", v1alpha1.Group}, func(tool string) bool {
			return of == tool || strings.HasSuffix(of, "."+tool)
		})
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

// copyPrefix comes before the name of a Service in that of its copy.
const copyPrefix = "herald-"

// CopyName is that of the copy of a Service.
func CopyName(service string) string {
	if len(copyPrefix+service) <= 63 {
		return copyPrefix + service
	}
	return strings.TrimRight(service[:63-len(copyPrefix)-27], "-") + "-" + hashOf(service)
}

// CopyOf is the Service of type NodePort by which the load-balancing cluster reaches the pods of one that has no node ports. It is owned
// by that one, and goes with it.
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

// SameCopy reports whether a copy is as wanted, apart from what the API server adds.
func SameCopy(is, want *corev1.Service) bool {
	ports := slices.Clone(is.Spec.Ports)
	for i := range ports {
		ports[i].NodePort = 0
	}
	return is.Spec.Type == want.Spec.Type && maps.Equal(is.Spec.Selector, want.Spec.Selector) && slices.Equal(ports, want.Spec.Ports) &&
		slices.Equal(is.Spec.IPFamilies, want.Spec.IPFamilies) && is.Spec.PublishNotReadyAddresses == want.Spec.PublishNotReadyAddresses
}

// object, objects and text are a value of JSON if it is of that form, and else empty.
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

// convert makes one form of JSON of another, as far as it has the fields.
func convert[T any](v any) (out T) {
	if raw, err := json.Marshal(v); err == nil {
		_ = json.Unmarshal(raw, &out) // what has another form is taken for absent
	}
	return out
}
