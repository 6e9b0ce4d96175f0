//go:build tools

// Package externaldns pins external-dns. In the end-to-end tests it names the
// Ingresses and routes of tenants.
package externaldns

import _ "sigs.k8s.io/external-dns"
