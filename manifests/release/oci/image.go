// Package oci writes container images of one static program, with few files or none
// beside it, as archives of the OCI image layout. It needs no network, no container engine
// and no base image, and the same program gives the same bytes.
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

// Image says how an image is called and what its container does.
type Image struct {
	// Reference is its name and tag, "herald:v0.1.0".
	Reference string
	// Entrypoint is the path of the program in the image.
	Entrypoint string
	// Beside is what the image holds beside the program, folders before what is in them.
	Beside []archive.File
	// Cmd are the program's arguments, unless who runs it gives others.
	Cmd []string
	// Labels are its annotations, org.opencontainers.image.* and the like.
	Labels map[string]string
	// Created is when it is said to have been made, and its files too.
	Created time.Time
}

// Program is the program of an image for one architecture of Linux.
type Program struct {
	// Arch is the architecture as Go calls it, "amd64"; "arm" is version 7.
	Arch string
	// Data is the executable.
	Data []byte
}

// containerdName is the annotation by which containerd names what it imports.
const containerdName = "io.containerd.image.name"

// Write writes the archive of an image. With one program `docker load` takes it
// too; with several it holds an index of them, which Docker has no form for.
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

// addImage adds the image for one architecture and returns what leads to it.
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
