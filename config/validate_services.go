package config

import (
	"strings"

	"github.com/herald-vip/herald/internal/yaml"
)

// mayServe reports whether there is a services section, with or without mistakes.
func (v validator) mayServe() bool { return v.config.Services != nil || !v.WasRead("services") }

func (v validator) services(p yaml.Path, s *Services) {
	v.File(p.Field("kubeconfig"), s.Kubeconfig)
	if !isClass(s.LoadBalancerClass) {
		v.Errorf(p.Field("loadBalancerClass"), "want a name such as herald.dev/vip, got %s", yaml.Quote(s.LoadBalancerClass))
	}
	if s.Namespace != "" && (!isName(s.Namespace) || strings.Contains(s.Namespace, ".")) {
		v.Errorf(p.Field("namespace"), "want the name of a namespace: lower-case letters and digits, with '-' between, got %s", yaml.Quote(s.Namespace))
	}
	for i, key := range s.ExcludeTaints {
		if !isClass(key) {
			v.Errorf(p.Field("excludeTaints").Item(i), "want the key of a taint, such as node.kubernetes.io/out-of-service, got %s", yaml.Quote(key))
		}
	}
}

// isClass reports whether s can be the class of a Service: a Kubernetes label key,
// which is a name with an optional domain as its prefix.
func isClass(s string) bool {
	domain, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		domain, name = "", s
	}
	return (!prefixed || yaml.IsName(domain)) && isName(strings.ToLower(strings.ReplaceAll(name, "_", "-")))
}
