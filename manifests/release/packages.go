package main

import (
	"fmt"
	"io"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers its format
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers its format
)

// writePackage writes the package of a program, with the file name of its format.
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
