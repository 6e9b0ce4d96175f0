//go:build tools

// Package contour pins the Contour whose Gateway has the VIP of a Service in the end-to-end tests.
package contour

import _ "github.com/projectcontour/contour/cmd/contour"
