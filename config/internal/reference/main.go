// Command reference writes docs/config.md: the types of package config, their
// doc comments and the example. Run it by go generate in that package.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("config", ".", "folder of package config")
	out := flag.String("o", "/dev/stdout", "file to write")
	flag.Parse()
	if err := run(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	source, err := os.ReadFile(filepath.Join(dir, "config.go"))
	if err != nil {
		return err
	}
	example, err := os.ReadFile(filepath.Join(dir, "example.yaml"))
	if err != nil {
		return err
	}
	page, err := generate(source, example)
	if err != nil {
		return err
	}
	return os.WriteFile(out, page, 0o644)
}
