package main

import (
	"fmt"
	"io"
	"os"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers its format
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers its format
)

// packageCommand writes the packages of programs, for those who want nothing else of a release.
type packageCommand struct {
	build
	Out      string            `required:"" help:"Folder to write to."`
	Packages string            `required:"" help:"What packages are made of, for nfpm: manifests/package/nfpm.yaml."`
	Formats  []string          `default:"deb,rpm" help:"deb, rpm or both."`
	Programs map[string]string `arg:"" help:"The program by architecture: amd64=bin/linux-amd64/herald."`
}

// Run writes the packages.
func (c packageCommand) Run() error {
	programs, err := readPrograms(c.Programs)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	out := folder{path: c.Out}
	for _, p := range programs {
		for _, format := range c.Formats {
			out.writePackage(c.build, c.Packages, format, p)
		}
	}
	return out.err
}

// writePackage writes the package of a program, under the name that its format has for it.
func (f *folder) writePackage(b build, packages, format string, p program) {
	if f.err != nil {
		return
	}
	name, content, err := newPackage(b, packages, format, p)
	if err != nil {
		f.err = fmt.Errorf("%s for %s: %w", format, p.Arch, err)
		return
	}
	f.write(name, content)
}

func newPackage(b build, packages, format string, p program) (name string, content func(io.Writer) error, err error) {
	arch := p.Arch
	if arch == "arm" {
		arch = "arm7" // nfpm's word
	}
	variables := map[string]string{"ARCH": arch, "PROGRAM": p.path, "VERSION": b.semver()}
	config, err := nfpm.ParseFileWithEnvMapping(packages, func(name string) string { return variables[name] })
	if err != nil {
		return "", nil, err
	}
	info, err := config.Get(format)
	if err != nil {
		return "", nil, err
	}
	info.MTime = b.time()
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", nil, err
	}
	info = nfpm.WithDefaults(info)
	return packager.ConventionalFileName(info), func(w io.Writer) error { return packager.Package(info, w) }, nil
}
