// Program herald stands for the real one in tests, as it is built faster.
package main

import (
	"fmt"

	"github.com/opencontainers/image-spec/specs-go" // a module for its bill of materials
)

func main() { fmt.Println(specs.Version) }
