//go:build tools

// Package containerlab pins the containerlab that `make containerlab` builds.
package containerlab

import _ "github.com/srl-labs/containerlab"
