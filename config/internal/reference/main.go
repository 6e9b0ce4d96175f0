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
	var source []string
	for _, name := range []string{"config.go", "balancers.go"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		source = append(source, string(text))
	}
	example, err := os.ReadFile(filepath.Join(dir, "example.yaml"))
	if err != nil {
		return err
	}
	page, err := generate(example, source...)
	if err != nil {
		return err
	}
	return os.WriteFile(out, page, 0o644)
}
