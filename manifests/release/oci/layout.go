package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	spec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/herald-vip/herald/manifests/release/archive"
)

// Artifact is a chart or a signature, which registries store in the form of an image.
type Artifact struct {
	v1.Image
	// Tag names it in its repository.
	Tag string
}

// WriteArtifacts writes the archive of a layout that holds artifacts.
func WriteArtifacts(w io.Writer, t time.Time, artifacts ...Artifact) error {
	return write(w, t, func(l layout.Path) error {
		for _, a := range artifacts {
			tag := layout.WithAnnotations(map[string]string{spec.AnnotationRefName: a.Tag})
			if err := l.AppendImage(a.Image, tag); err != nil {
				return err
			}
		}
		return nil
	})
}

// write writes the archive of the layout that fill makes in a temporary folder.
func write(w io.Writer, t time.Time, fill func(layout.Path) error) error {
	dir, err := os.MkdirTemp("", "herald-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = fill(l)
	}
	if err != nil {
		return err
	}
	var files []archive.File
	folder := os.DirFS(dir)
	err = fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		files = append(files, archive.File{Name: name, Mode: 0o444, Data: data})
		return err
	})
	if err != nil {
		return err
	}
	return archive.Write(w, t, files)
}

// Roots returns the digests that index.json of a layout's archive lists.
func Roots(r io.Reader) (digests []v1.Hash, err error) {
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("there is no %s", spec.ImageIndexFile)
		}
		if err != nil {
			return nil, err
		}
		if header.Name != spec.ImageIndexFile {
			continue
		}
		index, err := v1.ParseIndexManifest(archive)
		if err != nil {
			return nil, err
		}
		for _, m := range index.Manifests {
			digests = append(digests, m.Digest)
		}
		return digests, nil
	}
}
