//go:build tools

// Package metallb pins the MetalLB that the benchmark of Services compares with Herald.
package metallb

import (
	_ "go.universe.tf/metallb/controller"
	_ "go.universe.tf/metallb/speaker"
)
