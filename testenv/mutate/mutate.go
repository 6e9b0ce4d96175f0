// Package mutate holds a list of possible defects in the code that guarantees one
// holder, and checks that the tests detect each. A test that passes with a defect in
// place proves nothing about it.
package mutate

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed mutations.txt
var list string

// Mutation is a defect: in File, relative to the repository, New replaces Old.
type Mutation struct {
	File, Old, New string
	// Equivalent explains why no test can detect it; empty if a test must.
	Equivalent string
	Line       int // in the list
}

// Parse reads the list. A file's name precedes its mutations. Each has lines with "-",
// then the replacing lines with "+", and possibly a line with "=" that explains why
// behaviour stays the same. Comments begin with "#".
func Parse() ([]Mutation, error) {
	var all []Mutation
	file, last := "", byte(0)
	for i, line := range strings.Split(strings.TrimRight(list, "\n"), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		kind, text := line[0], line[1:]
		if kind == '-' && last != '-' {
			all = append(all, Mutation{File: file, Line: i + 1})
		}
		switch {
		case kind != '-' && kind != '+' && kind != '=':
			file, kind = line, 0
		case len(all) == 0 || file == "" || kind == '+' && last == '=':
			return nil, fmt.Errorf("line %d of the mutations: %q follows no line that it could change", i+1, line)
		case kind == '-':
			all[len(all)-1].Old += text + "\n"
		case kind == '+':
			all[len(all)-1].New += text + "\n"
		default:
			all[len(all)-1].Equivalent = strings.TrimSpace(text)
		}
		last = kind
	}
	return all, nil
}

// Apply returns the file's content with the mutation. Old must occur exactly once.
func (m Mutation) Apply(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(b), m.Old); n != 1 {
		return "", fmt.Errorf("line %d of the mutations: %s has that %d times, want once:\n%s", m.Line, m.File, n, m.Old)
	}
	return strings.Replace(string(b), m.Old, m.New, 1), nil
}
