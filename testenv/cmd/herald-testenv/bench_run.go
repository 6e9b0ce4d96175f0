package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// selfAsRoot is the path of this program, which a benchmark runs in its labs.
func selfAsRoot() (string, error) {
	if os.Getuid() != 0 {
		return "", errors.New("the benchmark needs root, for network namespaces: run it with sudo")
	}
	return os.Executable()
}

// measured are the results of a benchmark.
type measured interface {
	WriteTable(io.Writer) error
	Publish(dir, page string) error
}

// publish shows the results, and writes them into a folder and, if it is not empty, a page.
func publish(results measured, dir, page string) error {
	fmt.Println()
	return errors.Join(results.WriteTable(os.Stdout), results.Publish(dir, page))
}

// readParts reads the files of a run's parts, and has join put each into the first.
func readParts[T any](files []string, read func(io.Reader) (*T, error), join func(all, part *T)) (all *T, err error) {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		part, err := read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if all == nil {
			all = part
		} else {
			join(all, part)
		}
	}
	return all, nil
}
