// Package realparts pins the real Kubernetes control-plane binaries that the
// end-to-end tests run. It is a module of its own so that Herald's go.mod
// never sees the Kubernetes tree; `make e2e` builds it once.
package realparts

import _ "k8s.io/kubernetes/cmd/kube-apiserver/app"
