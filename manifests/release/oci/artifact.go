package oci

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Artifact is an OCI artifact that is not a container image.
type Artifact struct {
	// Tag is its name in the layout.
	Tag string
	// Config and Layers are its parts.
	Config Blob
	Layers []Blob
}

// Blob is a part of an artifact.
type Blob struct {
	MediaType   string
	Data        []byte
	Annotations map[string]string
}

// WriteArtifacts writes artifacts as the archive of an OCI image layout.
func WriteArtifacts(w io.Writer, t time.Time, artifacts ...Artifact) error {
	l := newLayout()
	for _, a := range artifacts {
		m := v1.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2},
			MediaType: v1.MediaTypeImageManifest,
			Config:    l.add(a.Config.MediaType, a.Config.Data),
		}
		for _, b := range a.Layers {
			d := l.add(b.MediaType, b.Data)
			d.Annotations = b.Annotations
			m.Layers = append(m.Layers, d)
		}
		d, err := l.addJSON(v1.MediaTypeImageManifest, m)
		if err != nil {
			return err
		}
		d.Annotations = map[string]string{v1.AnnotationRefName: a.Tag}
		l.index = append(l.index, d)
	}
	return l.write(w, t)
}

// Roots returns the descriptors in the index of a layout's archive.
func Roots(r io.Reader) ([]v1.Descriptor, error) {
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("there is no %s", v1.ImageIndexFile)
		}
		if err != nil {
			return nil, err
		}
		if header.Name == v1.ImageIndexFile {
			var index v1.Index
			err := json.NewDecoder(archive).Decode(&index)
			return index.Manifests, err
		}
	}
}
