// Program herald replaces the real one in tests, since it builds faster.
package main

import (
	"fmt"

	"github.com/opencontainers/image-spec/specs-go" // a module for its bill of materials
)

func main() { fmt.Println(specs.Version) }
