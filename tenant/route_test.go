package tenant

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/testenv/must"
)

// tree parses an object from YAML, where a tab means two spaces.
func tree(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	out := new(unstructured.Unstructured)
	raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "\t", "  ")))
	if err == nil {
		err = out.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ask returns the HTTPLoadBalancer that an agent makes for an object.
func ask(t testing.TB, o *unstructured.Unstructured, parents []Parent, secrets ...string) *v1alpha1.HTTPLoadBalancer {
	t.Helper()
	var there []*corev1.Secret
	for _, name := range secrets {
		there = append(there, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	spec := must.Get[*v1alpha1.HTTPLoadBalancerSpec](t)(AskRoute(o, parents, there))
	return &v1alpha1.HTTPLoadBalancer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-acme", Name: RouteName(o.GetKind(), o.GetNamespace(), o.GetName()), UID: "lb", Generation: 1}, Spec: *spec,
	}
}

const plainIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: default, name: web}
spec:
	ingressClassName: herald
	rules:
	- http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}
`

const plainRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: default, name: web, generation: 3}
spec:
	parentRefs: [{name: front}]
	hostnames: [www.acme.example.com]
	rules:
	- matches: [{path: {value: /a}}]
	  filters: [{type: RequestMirror, requestMirror: {backendRef: {name: shadow, namespace: default, port: 80}}}]
	  backendRefs: [{name: web, port: 80}, {name: old, port: 80, weight: 3}]
`

// allowing returns a Tenant that may have Ingresses and routes.
func allowing(change ...func(*v1alpha1.Tenant)) *v1alpha1.Tenant {
	return acme(append([]func(*v1alpha1.Tenant){func(t *v1alpha1.Tenant) {
		t.Spec.Ingress = v1alpha1.TenantIngress{ClassName: "traefik", Annotations: []string{"example.com/timeout", "traefik.ingress.kubernetes.io/router.middlewares"}}
		t.Spec.Gateway = v1alpha1.ObjectReference{Namespace: "gateways", Name: "shared"}
		t.Spec.Domains = []v1alpha1.Domain{"acme.example.com"}
	}}, change...)...)
}

const ownName = "web.acme.lb.example.net"

func derive(t *v1alpha1.Tenant, lb *v1alpha1.HTTPLoadBalancer, own ...string) (DerivedRoute, error) {
	return DeriveRoute(t, lb, DomainsOf(t, "lb.example.net"), own)
}

func TestDeriveIngress(t *testing.T) {
	in := tree(t, plainIngress)
	in.SetAnnotations(map[string]string{
		"example.com/timeout": "3s", "traefik.ingress.kubernetes.io/router.middlewares": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}", "meta.helm.sh/release-name": "web", "herald.dev/pool": "x",
	})
	spec := in.Object["spec"].(map[string]any)
	spec["defaultBackend"] = map[string]any{"service": map[string]any{"name": "rest", "port": map[string]any{"number": int64(8080)}}}
	spec["tls"] = []any{map[string]any{"hosts": []any{"a.acme.example.com"}, "secretName": "own"}}
	own := allowing(func(t *v1alpha1.Tenant) { t.Spec.Certificates.Own = true })
	d := must.Get[DerivedRoute](t)(derive(own, ask(t, in, nil, "own"), ownName))
	web, rest := DerivedName("default.web"), DerivedName("default.rest")
	paths := func(service, port string) string {
		return fmt.Sprintf(`{"paths":[{"backend":{"service":{"name":%q,"port":%s}},"path":"/","pathType":"Prefix"}]}`, service, port)
	}
	want := fmt.Sprintf(`{"ingressClassName":"traefik","rules":[{"host":%q,"http":%s},{"host":%q,"http":%s}],"tls":[{"hosts":["a.acme.example.com"],"secretName":%q}]}`,
		ownName, paths(web, `{"name":"http"}`), ownName, paths(rest, `{"number":8080}`), SecretName("ingress.default.web", "own"))
	if got, _ := json.Marshal(d.Object.Object["spec"]); string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	annotations := d.Object.GetAnnotations()
	if annotations["example.com/timeout"] != "3s" || len(annotations) != 3 || annotations[annotationDerived] == "" {
		t.Errorf("annotations %v", annotations)
	}
	if diff := cmp.Diff(map[string]string{web: "default.web", rest: "default.rest"}, d.Backends); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{ownName, "a.acme.example.com"}, d.Hostnames); diff != "" {
		t.Error(diff)
	}
	if owner := metav1.GetControllerOf(d.Object); owner == nil || owner.Kind != "HTTPLoadBalancer" || owner.UID != "lb" || d.Object.GetNamespace() != "tenant-acme" {
		t.Errorf("%+v", d.Object)
	}
	// Additions by the server and others are no change; removals are.
	current := d.Object.DeepCopy()
	current.Object["status"] = map[string]any{}
	current.SetResourceVersion("7")
	if !SameRoute(current, d.Object) {
		t.Error("additions count as a change")
	}
	if err := unstructured.SetNestedField(current.Object, "nginx", "spec", "ingressClassName"); err != nil || SameRoute(current, d.Object) {
		t.Error("another class does not count as a change", err)
	}
}

// A forbidden backend is requested under a name that does not exist, and so answered with 500; the rest of the route is served.
func TestAskWithoutRefusedBackends(t *testing.T) {
	for refused, reason := range map[string]pool.Reason{"namespace: other": reasonPermitted, "kind: Bucket, group: example.com": reasonKind} {
		o := tree(t, strings.Replace(plainRoute, "{name: old,", "{name: old, "+refused+",", 1))
		before := o.DeepCopy()
		spec, err := AskRoute(o, []Parent{{Hostnames: []string{"www.acme.example.com"}}}, nil)
		var why *pool.Refusal
		if err != nil || !errors.As(refusedBackend(o), &why) || why.Reason != reason {
			t.Errorf("%s: %v and %v, want %s", refused, err, why, reason)
		}
		if want := `[{"name":"web","port":80},{"name":"refused.herald.dev","port":80,"weight":3}]`; !strings.Contains(string(spec.Object.Raw), want) {
			t.Errorf("%s: %s, want %s", refused, spec.Object.Raw, want)
		}
		if diff := cmp.Diff(before, o); diff != "" {
			t.Errorf("the route itself has changed: %s", diff)
		}
		if diff := cmp.Diff([]string{"shadow", "web"}, BackendsOf(o)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestPermitted(t *testing.T) {
	for spec, want := range map[string]bool{
		"{hostnames: [a.example.com]}":                                      true,
		"{hostnames: [a.example.com, b.example.org]}":                       false,
		"{rules: [{host: a.example.com}], tls: [{hosts: [b.example.com]}]}": true,
		"{rules: [{host: b.example.org}]}":                                  false,
		`{rules: [{host: ""}]}`:                                             false,
		"{rules: [{host: a.example.com}], tls: [{hosts: [b.example.org]}]}": false,
	} {
		if got := Permitted(tree(t, "apiVersion: v1\nkind: Ingress\nspec: "+spec), []string{"example.com"}); got != want {
			t.Errorf("%s: %t", spec, got)
		}
	}
}

func TestDeriveHTTPRoute(t *testing.T) {
	lb := ask(t, tree(t, plainRoute), []Parent{{Hostnames: []string{"www.acme.example.com"}}, {Gateway: "default/front", ByName: true}})
	d := must.Get[DerivedRoute](t)(derive(allowing(), lb, "front.acme.lb.example.net"))
	want := fmt.Sprintf(`{"hostnames":["front.acme.lb.example.net","www.acme.example.com"],"parentRefs":[{"name":"shared","namespace":"gateways"}],"rules":[{`+
		`"backendRefs":[{"name":%q,"port":80},{"name":%q,"port":80,"weight":3}],"filters":[{"requestMirror":{"backendRef":{"name":%q,"port":80}},"type":"RequestMirror"}],`+
		`"matches":[{"path":{"value":"/a"}}]}]}`, DerivedName("default.web"), DerivedName("default.old"), DerivedName("default.shadow"))
	if got, _ := json.Marshal(d.Object.Object["spec"]); string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if diff := cmp.Diff([]string{"default/front"}, lb.Spec.Gateways); diff != "" {
		t.Error(diff)
	}
	if d.Object.GetKind() != "HTTPRoute" || len(d.Hostnames) != 2 {
		t.Errorf("%+v", d)
	}
	// A removed rule is a change, although all remaining fields are equal.
	less := lb.DeepCopy()
	less.Spec.Object.Raw = []byte(strings.Replace(string(lb.Spec.Object.Raw), `"matches":[{"path":{"value":"/a"}}]`, `"matches":[]`, 1))
	if shorter, err := derive(allowing(), less, "front.acme.lb.example.net"); err != nil || SameRoute(d.Object, shorter.Object) {
		t.Error("a removed rule does not count as a change", err)
	}
}

// The manager refuses forbidden requests even if a malicious agent writes them.
func TestRefusedRoutes(t *testing.T) {
	ingress, route := ask(t, tree(t, plainIngress), nil), ask(t, tree(t, plainRoute), []Parent{{Hostnames: []string{"www.acme.example.com"}}})
	with := func(lb *v1alpha1.HTTPLoadBalancer, old, new string) *v1alpha1.HTTPLoadBalancer {
		out := lb.DeepCopy()
		raw := strings.Replace(string(lb.Spec.Object.Raw), old, new, 1)
		if raw == string(lb.Spec.Object.Raw) {
			t.Fatalf("no %s in %s", old, raw)
		}
		out.Spec.Object = &runtime.RawExtension{Raw: []byte(raw)}
		return out
	}
	host := func(name string) *v1alpha1.HTTPLoadBalancer {
		return with(ingress, `{"http"`, fmt.Sprintf(`{"host":%q,"http"`, name))
	}
	annotated := ingress.DeepCopy()
	annotated.Spec.Annotations = map[string]string{"nginx.ingress.kubernetes.io/server-snippet": "x"}
	misnamed := ingress.DeepCopy()
	misnamed.Name = "ingress.default.other"
	for name, tt := range map[string]struct {
		t    *v1alpha1.Tenant
		lb   *v1alpha1.HTTPLoadBalancer
		want string // empty: served
	}{
		"its own subdomain":                   {allowing(), host("x.acme.lb.example.net"), ""},
		"a wildcard of its own":               {allowing(), host("*.acme.example.com"), ""},
		"another's subdomain":                 {allowing(), host("web.beta.lb.example.net"), "the hostname web.beta.lb.example.net is not in the domains of the Tenant, acme.lb.example.net and acme.example.com"},
		"a name that ends alike":              {allowing(), host("xacme.example.com"), "the hostname xacme.example.com is not in"},
		"a wildcard of all":                   {allowing(), host("*.lb.example.net"), "the hostname *.lb.example.net is not in"},
		"a wildcard within":                   {allowing(), host("a.*.acme.example.com"), `"a.*.acme.example.com" is not a hostname`},
		"in capitals":                         {allowing(), host("WWW.acme.example.com"), `"WWW.acme.example.com" is not a hostname`},
		"any name":                            {allowing(), with(route, `"www.acme.example.com"`, `""`), `"" is not a hostname`},
		"a route of another's name":           {allowing(), with(route, `"www.acme.example.com"`, `"www.example.com"`), "the hostname www.example.com is not in"},
		"a certificate for another":           {allowing(), with(ingress, `{"rules"`, `{"tls":[{"hosts":["example.com"]}],"rules"`), "the hostname example.com is not in"},
		"a snippet":                           {allowing(), annotated, "the annotation nginx.ingress.kubernetes.io/server-snippet is not in ingress.annotations of the Tenant"},
		"another's name":                      {allowing(), misnamed, "its name does not match its origin: want ingress.default.web"},
		"another's Service":                   {allowing(), with(route, `{"name":"web"`, `{"namespace":"tenant-beta","name":"web"`), "the backend web is in another namespace: only Services in the namespace of the route are served"},
		"an empty namespace":                  {allowing(), with(route, `{"name":"web"`, `{"namespace":"","name":"web"`), "the backend web is in another namespace"},
		"another's mirror":                    {allowing(), with(route, `{"name":"shadow"`, `{"namespace":"tenant-beta","name":"shadow"`), "the backend shadow is in another namespace"},
		"a backend of another kind":           {allowing(), with(route, `{"name":"web"`, `{"kind":"Secret","name":"web"`), "a backend is a Secret: only Services can be reached"},
		"a resource":                          {allowing(), with(ingress, `"service"`, `"resource"`), "a backend is not a Service"},
		"an extension":                        {allowing(), with(route, `"type":"RequestMirror"`, `"type":"ExtensionRef","extensionRef":{"name":"x"}`), "a filter has the unsupported type \"ExtensionRef\""},
		"Ingresses are not served":            {acme(), ingress, "the Tenant has no ingress, so Ingresses are not served"},
		"routes are not served":               {acme(), route, "the Tenant has no gateway, so Gateways and routes are not served"},
		"an object that is not a JSON object": {allowing(), with(ingress, string(ingress.Spec.Object.Raw), `[1]`), "its object is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := derive(tt.t, tt.lb, ownName)
			var refusal *pool.Refusal
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.As(err, &refusal) || !strings.HasPrefix(refusal.Message, tt.want) || d.Object != nil):
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func TestIssuer(t *testing.T) {
	in := tree(t, plainIngress)
	in.Object["spec"].(map[string]any)["tls"] = []any{map[string]any{"hosts": []any{ownName}, "secretName": "web"}}
	for secret, want := range map[string]string{"web": "the Secret web is not used: the Tenant has no certificates.own", "": "there is no Secret web of the type kubernetes.io/tls"} {
		d, err := derive(allowing(), ask(t, in, nil, secret), ownName) // it is served without its certificate
		if err != nil || !slices.Equal(d.Missing, []string{want}) || objects(object(d.Object.Object["spec"])["tls"])[0]["secretName"] != nil {
			t.Errorf("%+v, %v, want %q", d, err, want)
		}
	}
	issuing := allowing(func(t *v1alpha1.Tenant) { t.Spec.Certificates.Issuer = "letsencrypt" })
	d, err := derive(issuing, ask(t, in, nil), ownName)
	if err != nil || d.Object.GetAnnotations()[annotationIssuer] != "letsencrypt" {
		t.Errorf("%v, %v", d.Object, err)
	}
	name := text(objects(object(d.Object.Object["spec"])["tls"])[0]["secretName"])
	if !strings.HasPrefix(name, "cert-") {
		t.Errorf("the Secret is %s, where agents may write", name)
	}
}

func TestNames(t *testing.T) {
	names := make(Names)
	lb := func(kind, namespace, name string, hostnames ...string) *v1alpha1.HTTPLoadBalancer {
		out := &v1alpha1.HTTPLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-acme", Name: RouteName(kind, namespace, name)}}
		out.Spec.Kind, out.Spec.Origin, out.Status.Hostnames = kind, v1alpha1.ObjectReference{Namespace: namespace, Name: name}, hostnames
		return out
	}
	for _, tt := range []struct {
		lb   *v1alpha1.HTTPLoadBalancer
		want string
	}{
		{lb("Ingress", "b", "web", "web-b.acme.example.net"), "web-b.acme.example.net"}, // it keeps its name, although web is free
		{lb("Ingress", "a", "web"), "web.acme.example.net"},
		{lb("Ingress", "a", "web"), "web.acme.example.net"},
		{lb("Ingress", "c", "web"), "web-c.acme.example.net"},
		{lb("Gateway", "c", "web"), "web-" + hashOf("gateway.c.web") + ".acme.example.net"},
		{lb("Ingress", "a", "other", "web.acme.example.net"), "other.acme.example.net"}, // its status has the name of another
		{lb("Ingress", "a", "a.b"), "a-b.acme.example.net"},
	} {
		if got := names.Claim(tt.lb, "acme.example.net"); got != tt.want {
			t.Errorf("%s has %s, want %s", tt.lb.Name, got, tt.want)
		}
	}
	taken := Names{}
	for _, host := range []string{"web", "web-c", "web-" + hashOf("ingress.c.web")} {
		taken[host+".acme.example.net"] = "tenant-acme/ingress.x.y"
	}
	if got := taken.Claim(lb("Ingress", "c", "web"), "acme.example.net"); got != "" {
		t.Errorf("it has %s, which belongs to another", got)
	}
	names.Release("tenant-acme/ingress.a.web")
	if got := names.Claim(lb("Ingress", "d", "web"), "acme.example.net"); got != "web.acme.example.net" {
		t.Errorf("after the deletion of the other it has %s", got)
	}
}

func TestRouteStatus(t *testing.T) {
	lb := ask(t, tree(t, plainRoute), []Parent{{Hostnames: []string{"www.acme.example.com"}}})
	d := must.Get[DerivedRoute](t)(derive(allowing(), lb))
	said := func(generation int64, conditions ...metav1.Condition) *unstructured.Unstructured {
		current := d.Object.DeepCopy()
		current.SetGeneration(2)
		for i := range conditions {
			conditions[i].ObservedGeneration = generation
		}
		current.Object["status"] = map[string]any{"parents": []any{map[string]any{"conditions": convert[any](conditions)}}}
		return current
	}
	absent := metav1.Condition{Type: condResolved, Status: metav1.ConditionFalse, Reason: "BackendNotFound", Message: "no service tenant-acme/" + DerivedName("default.web")}
	accepted := metav1.Condition{Type: condAccepted, Status: metav1.ConditionTrue, Reason: "Accepted"}
	for name, tt := range map[string]struct {
		refused error
		current *unstructured.Unstructured
		missing string
		want    string
		route   int
	}{
		"served":              {nil, said(2, accepted), "", "True Served it is served", 1},
		"not yet":             {nil, d.Object, "", "Unknown Pending the Gateway of the load-balancing cluster has not accepted it yet", 0},
		"of an earlier":       {nil, said(1, accepted), "", "Unknown Pending the Gateway of the load-balancing cluster has not accepted it yet", 0},
		"no backend":          {nil, said(2, accepted, absent), "", "False BackendNotFound no service tenant-acme/default/web", 2},
		"no pods":             {nil, said(2, accepted), "the Service default/web: none", "False NoNodes the Service default/web: none", 1},
		"refused":             {refuse(ReasonRefused, "no such host"), nil, "", "False Refused no such host", 0},
		"refused by a server": {errors.New("no right"), nil, "", "False Refused no right", 0},
	} {
		s := RouteStatus(lb, tt.refused, d, tt.current, tt.missing, now)
		last := len(s.Conditions) - 1
		if got := brief(s.Conditions[last]); got != tt.want || last != tt.route || s.ObservedGeneration != 1 {
			t.Errorf("%s: %q and %v, want %q", name, got, s.Conditions, tt.want)
		}
	}
}

// No input from an agent makes a manager panic, or derives a hostname or backend of another tenant.
func FuzzDeriveRoute(f *testing.F) {
	for _, lb := range []*v1alpha1.HTTPLoadBalancer{ask(f, tree(f, plainIngress), nil), ask(f, tree(f, plainRoute), nil)} {
		f.Add(lb.Spec.Kind, string(lb.Spec.Object.Raw))
	}
	f.Fuzz(func(t *testing.T, kind, raw string) {
		lb := &v1alpha1.HTTPLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-acme", Name: RouteName(kind, "default", "web")}}
		lb.Spec = v1alpha1.HTTPLoadBalancerSpec{Kind: kind, Origin: v1alpha1.ObjectReference{Namespace: "default", Name: "web"}, Object: &runtime.RawExtension{Raw: []byte(raw)}}
		if !slices.Contains([]string{"Ingress", "HTTPRoute", "GRPCRoute", "TLSRoute"}, kind) {
			return // the API server refuses other kinds
		}
		if _, err := derive(allowing(), lb); err == nil && kind == KindIngress {
			t.Error("it is served without a name of its own")
		}
		d, err := derive(allowing(), lb, ownName)
		if err != nil {
			return
		}
		spec := object(d.Object.Object["spec"])
		hosts := append(d.Hostnames, convert[[]string](spec["hostnames"])...)
		for _, rule := range objects(spec["rules"]) {
			if kind == KindIngress {
				hosts = append(hosts, text(rule["host"]))
			}
		}
		for _, host := range hosts {
			if !within(host, "acme.lb.example.net") && !within(host, "acme.example.com") {
				t.Errorf("the hostname %s", host)
			}
		}
		if err := eachBackend(kind, "", spec, func(ref map[string]any, refused error) error {
			if _, ours := d.Backends[text(ref["name"])]; !ours || ref["namespace"] != nil {
				t.Errorf("the backend %v", ref)
			}
			return refused
		}); err != nil {
			t.Error(err)
		}
	})
}
