//go:build tools

// Package gatewayapi pins the gateway-api whose CRDs the end-to-end tests install.
package gatewayapi

import _ "sigs.k8s.io/gateway-api/apis/v1"
