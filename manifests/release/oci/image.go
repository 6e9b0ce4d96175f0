// Package oci writes container images of one static program, charts and signatures as archives of the OCI image layout. It
// needs no network, container engine or base image, and the same input gives the same bytes.
package oci

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	spec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/herald-vip/herald/manifests/release/archive"
)

// Image describes an image of a program.
type Image struct {
	// Reference is its name and tag, "herald:v0.1.0".
	Reference string
	// Entrypoint is the path of the program in the image.
	Entrypoint string
	// Beside are further files of the image. A folder precedes its files.
	Beside []archive.File
	// Cmd are the default arguments of the program.
	Cmd []string
	// Labels become labels of the image and annotations of its manifest.
	Labels map[string]string
	// Created becomes the time of the image and of all its files.
	Created time.Time
}

// Program is the program of an image for one architecture of Linux.
type Program struct {
	// Arch is Go's name of the architecture, "amd64"; "arm" means version 7.
	Arch string
	// Data is the executable.
	Data []byte
}

// containerdName is the annotation that names an image for containerd's import.
const containerdName = "io.containerd.image.name"

// Write writes the archive of an image. With one program `docker load` reads it too. With several it has an index of their
// images, which Docker's table of contents cannot express.
func Write(w io.Writer, image Image, programs ...Program) error {
	named, err := reference.ParseDockerRef(image.Reference)
	if err != nil {
		return fmt.Errorf("reference %q: %w", image.Reference, err)
	}
	tagged, ok := named.(reference.NamedTagged)
	if !ok {
		return fmt.Errorf("reference %q: want a name and a tag, as in herald:v0.1.0", image.Reference)
	}
	root := layout.WithAnnotations(map[string]string{containerdName: tagged.String(), spec.AnnotationRefName: tagged.Tag()})
	var index v1.ImageIndex = empty.Index
	var images []v1.Image
	for _, p := range programs {
		img, err := image.build(p)
		if err != nil {
			return fmt.Errorf("image for %s: %w", p.Arch, err)
		}
		images = append(images, img)
		platform := p.platform()
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return write(w, image.Created, func(l layout.Path) error {
		if len(images) > 1 {
			return l.AppendIndex(index, root)
		}
		if err := writeDockerTable(l, image.Reference, images[0]); err != nil {
			return err
		}
		return l.AppendImage(images[0], root, layout.WithPlatform(programs[0].platform()))
	})
}

// writeDockerTable writes manifest.json, which `docker load` reads instead of index.json.
func writeDockerTable(l layout.Path, tag string, img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	table, err := json.Marshal(tarball.Manifest{{
		Config: blobPath(m.Config.Digest), RepoTags: []string{tag}, Layers: []string{blobPath(m.Layers[0].Digest)},
	}})
	if err != nil {
		return err
	}
	return l.WriteFile("manifest.json", table, 0o600)
}

// blobPath returns the path of a blob within a layout.
func blobPath(h v1.Hash) string { return path.Join(spec.ImageBlobsDir, h.Algorithm, h.Hex) }

func (p Program) platform() v1.Platform {
	platform := v1.Platform{OS: "linux", Architecture: p.Arch}
	if p.Arch == "arm" {
		platform.Variant = "v7"
	}
	return platform
}

// Empty returns an OCI image without layers.
func Empty() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// build makes the image of a program.
func (image Image) build(p Program) (v1.Image, error) {
	var files bytes.Buffer
	program := archive.File{Name: image.Entrypoint[1:], Mode: 0o555, Data: p.Data}
	if err := archive.Write(&files, image.Created, append(slices.Clone(image.Beside), program)); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: image.Created.UTC()}
	img, err := mutate.ConfigFile(Empty(), &v1.ConfigFile{
		Created:      created,
		OS:           p.platform().OS,
		Architecture: p.Arch,
		Variant:      p.platform().Variant,
		Config: v1.Config{
			User:       "0:0",
			Env:        []string{"PATH=" + path.Dir(image.Entrypoint)}, // lets exec find the program by its name
			Entrypoint: []string{image.Entrypoint},
			Cmd:        image.Cmd,
			WorkingDir: "/",
			Labels:     image.Labels,
		},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: created, Comment: path.Base(image.Entrypoint)}})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(img, image.Labels).(v1.Image), nil
}
