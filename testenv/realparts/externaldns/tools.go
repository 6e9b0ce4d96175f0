//go:build tools

// Package externaldns pins the external-dns that names the Ingresses and routes of tenants in the end-to-end tests.
package externaldns

import _ "sigs.k8s.io/external-dns"
