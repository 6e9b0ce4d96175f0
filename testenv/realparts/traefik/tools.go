//go:build tools

// Package traefik pins Traefik. In the end-to-end tests it serves the Ingresses and
// routes of tenants.
package traefik

import _ "github.com/traefik/traefik/v3/cmd/traefik"
