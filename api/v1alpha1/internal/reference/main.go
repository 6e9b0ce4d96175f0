// Command reference writes docs/services-api.md: what is in the CRDs, in the
// order of the types of package v1alpha1, and the example. Run it by go generate
// in that package.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("api", ".", "folder of package v1alpha1")
	crds := flag.String("crds", "../../manifests/crds", "folder of the CRDs")
	out := flag.String("o", "/dev/stdout", "file to write")
	flag.Parse()
	if err := run(*dir, *crds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(dir, crds, out string) error {
	example, err := os.ReadFile(filepath.Join(dir, "example.yaml"))
	if err != nil {
		return err
	}
	pool, err := readSchema(filepath.Join(crds, "herald.dev_addresspools.yaml"))
	if err != nil {
		return err
	}
	peer, err := readSchema(filepath.Join(crds, "herald.dev_bgppeers.yaml"))
	if err != nil {
		return err
	}
	page, err := generate(pool, peer, example)
	if err != nil {
		return err
	}
	return os.WriteFile(out, page, 0o644)
}
