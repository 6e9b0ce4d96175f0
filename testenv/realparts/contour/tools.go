//go:build tools

// Package contour pins Contour. In the end-to-end tests its Gateway has the VIP of a Service.
package contour

import _ "github.com/projectcontour/contour/cmd/contour"
