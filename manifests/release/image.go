package main

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/herald-vip/herald/manifests/release/oci"
)

// source is the URL of the project.
const source = "https://github.com/herald-vip/herald"

// imageCommand writes an image of one program.
type imageCommand struct {
	build
	Reference string            `required:"" help:"Name and tag of the image."`
	Out       string            `required:"" help:"Archive to write."`
	Cmd       string            `help:"Arguments of the program, unless its container gets others."`
	Programs  map[string]string `arg:"" help:"The program by architecture: amd64=bin/herald."`
}

// Run writes the archive.
func (c imageCommand) Run() error {
	programs, err := readPrograms(c.Programs)
	if err != nil {
		return err
	}
	image := c.image(c.Reference, strings.Fields(c.Cmd), programs[0].name)
	return create(c.Out, func(w io.Writer) error { return oci.Write(w, image, executables(programs)...) })
}

// program is the program for an architecture.
type program struct {
	oci.Program
	name, path string
}

// readPrograms reads the programs, sorted by architecture. It refuses programs that would not run in an empty image.
func readPrograms(paths map[string]string) ([]program, error) {
	var programs []program
	for _, arch := range slices.Sorted(maps.Keys(paths)) {
		path := paths[arch]
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := checkStatic(path, arch); err != nil {
			return nil, err
		}
		programs = append(programs, program{oci.Program{Arch: arch, Data: data}, filepath.Base(path), path})
	}
	return programs, nil
}

func executables(programs []program) []oci.Program {
	var list []oci.Program
	for _, p := range programs {
		list = append(list, p.Program)
	}
	return list
}

// image returns the description of the image of a program.
func (b build) image(reference string, cmd []string, name string) oci.Image {
	return oci.Image{
		Reference:  reference,
		Entrypoint: "/" + name,
		Cmd:        cmd,
		Created:    b.time(),
		Labels: map[string]string{
			v1.AnnotationTitle:    name,
			v1.AnnotationCreated:  b.time().Format(time.RFC3339),
			v1.AnnotationVersion:  b.Version,
			v1.AnnotationRevision: b.Commit,
			v1.AnnotationSource:   source,
			v1.AnnotationLicenses: "Apache-2.0",
		},
	}
}

// create writes a file, and removes it after an error.
func create(path string, content func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = errors.Join(content(f), f.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
