//go:build tools

// Package traefik pins the Traefik that serves the Ingresses and routes of tenants in the end-to-end tests.
package traefik

import _ "github.com/traefik/traefik/v3/cmd/traefik"
