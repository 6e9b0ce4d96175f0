package config

import (
	"strings"
	"time"
)

// mayServe reports whether there is a services section, or one with mistakes.
func (v validator) mayServe() bool { return v.config.Services != nil || !v.wasRead("services") }

func (v validator) services(p path, s *Services) {
	v.file(p.field("kubeconfig"), s.Kubeconfig)
	if !isClass(s.LoadBalancerClass) {
		v.errorf(p.field("loadBalancerClass"), "want a name such as herald.dev/vip, got %s", quote(s.LoadBalancerClass))
	}
	if s.Namespace != "" && (!isName(s.Namespace, maxName) || strings.Contains(s.Namespace, ".")) {
		v.errorf(p.field("namespace"), "want the name of a namespace: lower-case letters and digits, with '-' between, got %s", quote(s.Namespace))
	}
	v.duration(p.field("linger"), s.Linger, 0, 5*time.Minute, "0s to 5m")
}

// isClass reports whether s can be the class of a Service: a label key of
// Kubernetes, which is a name with or without the name of a domain before it.
func isClass(s string) bool {
	domain, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		domain, name = "", s
	}
	return (!prefixed || isName(domain, maxNodeName)) && isName(strings.ToLower(strings.ReplaceAll(name, "_", "-")), maxName)
}
