package main

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/herald-vip/herald/manifests/release/archive"
	"github.com/herald-vip/herald/manifests/release/chart"
	"github.com/herald-vip/herald/manifests/release/oci"
	"github.com/herald-vip/herald/manifests/release/talos"
)

// releaseCommand writes the files of a release.
type releaseCommand struct {
	build
	Reference string            `required:"" help:"Name and tag of the image."`
	Out       string            `required:"" help:"Folder to write to."`
	Cmd       string            `help:"Arguments of the program, unless its container gets others."`
	With      []string          `help:"Files that come with the program."`
	Talos     string            `required:"" help:"The extension service of Talos: manifests/talos/service.yaml."`
	Chart     string            `required:"" help:"The chart: manifests/helm/herald."`
	Packages  string            `required:"" help:"The contents of packages, for nfpm: manifests/package/nfpm.yaml."`
	Programs  map[string]string `arg:"" help:"The program by architecture: amd64=bin/linux-amd64/herald."`
}

// Run writes the chart, an image of all architectures, and a system extension of Talos. For each architecture it
// writes an archive of the program, its bill of materials, an image and packages. It adds the checksums of all.
func (c releaseCommand) Run() error {
	programs, err := readPrograms(c.Programs)
	if err != nil {
		return err
	}
	var with []archive.File
	for _, path := range c.With {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		with = append(with, archive.File{Name: filepath.Base(path), Mode: 0o644, Data: data})
	}
	service, err := os.ReadFile(c.Talos)
	if err != nil {
		return err
	}
	tgz, artifact, err := chart.Pack(c.Chart, c.semver(), c.Version, c.time())
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	name := programs[0].name
	image := c.image(c.Reference, strings.Fields(c.Cmd), name)
	out := folder{path: c.Out}
	out.write(name+"_"+c.Version+"_image.tar", func(w io.Writer) error {
		return oci.Write(w, image, executables(programs)...)
	})
	if runs := slices.DeleteFunc(executables(programs), func(p oci.Program) bool { return !talos.Runs(p.Arch) }); len(runs) > 0 {
		out.write(name+"_"+c.Version+"_talos.tar", func(w io.Writer) error {
			return oci.Write(w, talos.Extension(image, name, c.Version, service), runs...)
		})
	}
	out.write(name+"_"+c.Version+"_chart.tar", func(w io.Writer) error { return oci.WriteArtifacts(w, c.time(), artifact) })
	out.write(name+"-"+c.semver()+".tgz", func(w io.Writer) error {
		_, err := w.Write(tgz)
		return err
	})
	for _, p := range programs {
		stem := fmt.Sprintf("%s_%s_linux_%s", name, c.Version, p.Arch)
		if p.Arch == "arm" {
			stem += "v7"
		}
		out.write(stem+".tar.gz", func(w io.Writer) error {
			files := []archive.File{{Name: stem + "/" + name, Mode: 0o755, Data: p.Data}}
			for _, f := range with {
				f.Name = stem + "/" + f.Name
				files = append(files, f)
			}
			return archive.WriteGzip(w, c.time(), files)
		})
		out.write(stem+".cdx.json", func(w io.Writer) error { return writeBOM(w, c.build, p) })
		out.write(stem+"_image.tar", func(w io.Writer) error { return oci.Write(w, image, p.Program) })
		for _, format := range []string{"deb", "rpm"} {
			out.writePackage(c.build, c.Packages, format, p)
		}
	}
	if out.err != nil {
		return out.err
	}
	return os.WriteFile(filepath.Join(c.Out, "SHA256SUMS"), out.sums, 0o644)
}

// folder writes files and collects their checksums. After an error it writes nothing more.
type folder struct {
	path string
	sums []byte
	err  error
}

func (f *folder) write(name string, content func(io.Writer) error) {
	if f.err != nil {
		return
	}
	sum := sha256.New()
	f.err = create(filepath.Join(f.path, name), func(w io.Writer) error {
		return content(io.MultiWriter(w, sum))
	})
	f.sums = fmt.Appendf(f.sums, "%x  %s\n", sum.Sum(nil), name)
}

// checkStatic returns an error unless the file at path is a static program for the architecture.
func checkStatic(path, arch string) error {
	want, ok := map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390,
	}[arch]
	if !ok {
		return fmt.Errorf("%s: there are no releases for the architecture %q", path, arch)
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != want {
		return fmt.Errorf("%s is for %v, not for %s", path, f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return fmt.Errorf("%s is linked dynamically (%v): build it with CGO_ENABLED=0", path, p.Type)
		}
	}
	return nil
}
