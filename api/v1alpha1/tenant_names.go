package v1alpha1

import "strings"

// tenantNamespacePrefix plus a tenant's name is the name of its namespace.
const tenantNamespacePrefix = "tenant-"

// LongestTenantName is the length that leaves room for the prefix of the tenant's namespace.
const LongestTenantName = 63 - len(tenantNamespacePrefix)

// TenantNamespace returns the namespace of a tenant in the load-balancing cluster.
func TenantNamespace(tenant string) string { return tenantNamespacePrefix + tenant }

// TenantOf returns the tenant of a namespace; not ok if it is no tenant's namespace.
func TenantOf(namespace string) (tenant string, ok bool) {
	return strings.CutPrefix(namespace, tenantNamespacePrefix)
}

// LoadBalancerName returns the name of the TCPLoadBalancer of a Service, given as namespace/name. Names of namespaces
// have no dots.
func LoadBalancerName(service string) string { return strings.Replace(service, "/", ".", 1) }

// ServiceOf returns the Service of a TCPLoadBalancer as namespace/name: the inverse of [LoadBalancerName].
func ServiceOf(loadBalancer string) string { return strings.Replace(loadBalancer, ".", "/", 1) }
