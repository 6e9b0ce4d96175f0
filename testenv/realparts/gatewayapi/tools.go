//go:build tools

// Package gatewayapi pins gateway-api: the CRDs that the end-to-end tests install, its
// conformance tests, and their server in pods.
package gatewayapi

import (
	_ "sigs.k8s.io/gateway-api/apis/v1"
	_ "sigs.k8s.io/gateway-api/conformance"
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic"
)
