//go:build tools

// Package helm pins the tools for installing Herald into a cluster, which `make e2e` builds.
package helm

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "sigs.k8s.io/kustomize/kustomize/v5"
)
