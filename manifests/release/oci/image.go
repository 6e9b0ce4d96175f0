// Package oci writes container images of one static program, with few other files, as archives of the OCI image
// layout. It needs no network, container engine or base image. The same program gives the same bytes.
package oci

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/herald-vip/herald/manifests/release/archive"
)

// Image describes an image and its container.
type Image struct {
	// Reference is its name and tag, "herald:v0.1.0".
	Reference string
	// Entrypoint is the path of the program in the image.
	Entrypoint string
	// Beside has the other files of the image, folders before their files.
	Beside []archive.File
	// Cmd has the default arguments of the program.
	Cmd []string
	// Labels are its annotations, org.opencontainers.image.* and the like.
	Labels map[string]string
	// Created is the creation time of the image and its files.
	Created time.Time
}

// Program is the program of an image for one architecture of Linux.
type Program struct {
	// Arch is the architecture by its name in Go, such as "amd64"; "arm" is version 7.
	Arch string
	// Data is the executable.
	Data []byte
}

// containerdName is the annotation with the name of an image that containerd imports.
const containerdName = "io.containerd.image.name"

// Write writes the archive of an image. With one program, `docker load` accepts it too; with several it has an
// index of them, which Docker does not support.
func Write(w io.Writer, image Image, programs ...Program) error {
	named, err := reference.ParseDockerRef(image.Reference)
	if err != nil {
		return fmt.Errorf("reference %q: %w", image.Reference, err)
	}
	tagged, ok := named.(reference.NamedTagged)
	if !ok {
		return fmt.Errorf("reference %q: want a name and a tag, as in herald:v0.1.0", image.Reference)
	}
	l := newLayout()
	var manifests []v1.Descriptor
	for _, p := range programs {
		d, err := l.addImage(image, p)
		if err != nil {
			return fmt.Errorf("image for %s: %w", p.Arch, err)
		}
		manifests = append(manifests, d)
	}
	root := manifests[0]
	if len(programs) > 1 {
		l.docker = nil
		if root, err = l.addJSON(v1.MediaTypeImageIndex, index(manifests)); err != nil {
			return err
		}
	}
	root.Annotations = map[string]string{containerdName: tagged.String(), v1.AnnotationRefName: tagged.Tag()}
	l.index = []v1.Descriptor{root}
	return l.write(w, image.Created)
}

// addImage adds the image for one architecture and returns its descriptor.
func (l *layout) addImage(image Image, p Program) (v1.Descriptor, error) {
	var plain, packed bytes.Buffer
	files := append(slices.Clone(image.Beside), archive.File{Name: image.Entrypoint[1:], Mode: 0o555, Data: p.Data})
	if err := archive.Write(&plain, image.Created, files); err != nil {
		return v1.Descriptor{}, err
	}
	if err := archive.WriteGzip(&packed, image.Created, files); err != nil {
		return v1.Descriptor{}, err
	}
	layer := l.add(v1.MediaTypeImageLayerGzip, packed.Bytes())

	platform := v1.Platform{OS: "linux", Architecture: p.Arch}
	if p.Arch == "arm" {
		platform.Variant = "v7"
	}
	created := image.Created.UTC()
	config, err := l.addJSON(v1.MediaTypeImageConfig, v1.Image{
		Created:  &created,
		Platform: platform,
		Config: v1.ImageConfig{
			User:       "0:0",
			Env:        []string{"PATH=" + path.Dir(image.Entrypoint)}, // so that exec finds it by its name
			Entrypoint: []string{image.Entrypoint},
			Cmd:        image.Cmd,
			WorkingDir: "/",
			Labels:     image.Labels,
		},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain.Bytes())}},
		History: []v1.History{{Created: &created, Comment: path.Base(image.Entrypoint)}},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	l.docker = append(l.docker, dockerImage{
		Config:   blobPath(config.Digest),
		RepoTags: []string{image.Reference},
		Layers:   []string{blobPath(layer.Digest)},
	})
	d, err := l.addJSON(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned:   specs.Versioned{SchemaVersion: 2},
		MediaType:   v1.MediaTypeImageManifest,
		Config:      config,
		Layers:      []v1.Descriptor{layer},
		Annotations: image.Labels,
	})
	d.Platform = &platform
	return d, err
}
