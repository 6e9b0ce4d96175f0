package oci

import (
	"encoding/json"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/herald-vip/herald/manifests/release/archive"
)

// layout is an OCI image layout: blobs by digest, and their index.
type layout struct {
	blobs map[digest.Digest][]byte
	index []v1.Descriptor
	// docker is the table of contents that `docker load` reads instead; nil for none.
	docker []dockerImage
}

// dockerImage is an image in Docker's table of contents, manifest.json. Paths
// are within the layout.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func newLayout() *layout { return &layout{blobs: make(map[digest.Digest][]byte)} }

// add stores a blob.
func (l *layout) add(mediaType string, data []byte) v1.Descriptor {
	d := digest.FromBytes(data)
	l.blobs[d] = data
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// addJSON stores a value as a blob.
func (l *layout) addJSON(mediaType string, value any) (v1.Descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return l.add(mediaType, data), nil
}

// blobPath returns the path of a blob in a layout.
func blobPath(d digest.Digest) string {
	return path.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// write writes the layout as a tar archive.
func (l *layout) write(w io.Writer, t time.Time) error {
	var files []archive.File
	for d, data := range l.blobs {
		files = append(files, archive.File{Name: blobPath(d), Mode: 0o444, Data: data})
	}
	slices.SortFunc(files, func(a, b archive.File) int { return strings.Compare(a.Name, b.Name) })

	type table struct {
		name  string
		value any
	}
	tables := []table{
		{v1.ImageLayoutFile, v1.ImageLayout{Version: v1.ImageLayoutVersion}},
		{v1.ImageIndexFile, index(l.index)},
	}
	if l.docker != nil {
		tables = append(tables, table{"manifest.json", l.docker})
	}
	for _, t := range tables {
		data, err := json.Marshal(t.value)
		if err != nil {
			return err
		}
		files = append(files, archive.File{Name: t.name, Mode: 0o444, Data: data})
	}
	return archive.Write(w, t, files)
}

func index(manifests []v1.Descriptor) v1.Index {
	return v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex,
		Manifests: manifests,
	}
}
