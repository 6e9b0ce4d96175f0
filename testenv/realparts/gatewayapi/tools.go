//go:build tools

// Package gatewayapi pins the gateway-api whose CRDs the end-to-end tests install, its conformance tests, and the server that those
// expect in pods.
package gatewayapi

import (
	_ "sigs.k8s.io/gateway-api/apis/v1"
	_ "sigs.k8s.io/gateway-api/conformance"
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic"
)
