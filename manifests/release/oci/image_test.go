package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/herald-vip/herald/manifests/release/oci"
)

var created = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func image() oci.Image {
	return oci.Image{
		Reference:  "herald:v1",
		Entrypoint: "/herald",
		Cmd:        []string{"run"},
		Labels:     map[string]string{v1.AnnotationVersion: "v1", v1.AnnotationTitle: "herald"},
		Created:    created,
	}
}

func programs() []oci.Program {
	return []oci.Program{{Arch: "amd64", Data: []byte("for amd64")}, {Arch: "arm64", Data: []byte("for arm64")}}
}

func write(t *testing.T, image oci.Image, programs ...oci.Program) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := oci.Write(&b, image, programs...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// files are the files of a tar archive by name.
func files(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(created) || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s is of %v and %d %q, want %v and root", header.Name, header.ModTime, header.Uid, header.Uname, created)
		}
		if all[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// blob returns the blob of a descriptor and checks its digest and size.
func blob(t *testing.T, layout map[string][]byte, d v1.Descriptor) []byte {
	t.Helper()
	data, ok := layout["blobs/sha256/"+d.Digest.Encoded()]
	if !ok || digest.FromBytes(data) != d.Digest || int64(len(data)) != d.Size {
		t.Fatalf("blob %s of %d bytes is not there or has %d bytes of %s", d.Digest, d.Size, len(data), digest.FromBytes(data))
	}
	return data
}

func decode[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v:\n%s", err, data)
	}
	return v
}

// TestIndex follows an archive of two architectures from its index to the program.
func TestIndex(t *testing.T) {
	layout := files(t, bytes.NewReader(write(t, image(), programs()...)))
	if v := decode[v1.ImageLayout](t, layout["oci-layout"]).Version; v != "1.0.0" {
		t.Errorf("layout of version %q", v)
	}
	if _, ok := layout["manifest.json"]; ok {
		t.Error("there is a table of contents for Docker, which has no form for two architectures")
	}
	top := decode[v1.Index](t, layout["index.json"])
	if len(top.Manifests) != 1 || top.Manifests[0].MediaType != v1.MediaTypeImageIndex ||
		top.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/library/herald:v1" {
		t.Fatalf("index.json leads to %+v, want one index called docker.io/library/herald:v1", top.Manifests)
	}
	list := decode[v1.Index](t, blob(t, layout, top.Manifests[0])).Manifests
	for i, p := range programs() {
		if list[i].Platform == nil || list[i].Platform.OS != "linux" || list[i].Platform.Architecture != p.Arch {
			t.Errorf("image %d is for %v, want linux/%s", i, list[i].Platform, p.Arch)
		}
		holds(t, layout, list[i], p)
	}
}

// holds checks that a manifest leads to an image of the program.
func holds(t *testing.T, layout map[string][]byte, d v1.Descriptor, p oci.Program) {
	t.Helper()
	manifest := decode[v1.Manifest](t, blob(t, layout, d))
	config := decode[v1.Image](t, blob(t, layout, manifest.Config))
	if config.OS != "linux" || config.Architecture != p.Arch || !slices.Equal(config.Config.Entrypoint, []string{"/herald"}) ||
		!slices.Equal(config.Config.Cmd, []string{"run"}) || config.Config.Labels[v1.AnnotationVersion] != "v1" {
		t.Errorf("configuration %+v", config)
	}
	if len(manifest.Layers) != 1 {
		t.Fatalf("%d layers, want 1", len(manifest.Layers))
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(blob(t, layout, manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	if got := []digest.Digest{digest.FromBytes(layer)}; !slices.Equal(got, config.RootFS.DiffIDs) {
		t.Errorf("the layer is %v, the configuration says %v", got, config.RootFS.DiffIDs)
	}
	if got := files(t, bytes.NewReader(layer)); len(got) != 1 || !bytes.Equal(got["herald"], p.Data) {
		t.Errorf("the image holds %q, want the program and nothing else", got)
	}
}

// TestDocker checks the table of contents that `docker load` reads.
func TestDocker(t *testing.T) {
	layout := files(t, bytes.NewReader(write(t, image(), programs()[0])))
	table := decode[[]struct {
		Config           string
		RepoTags, Layers []string
	}](t, layout["manifest.json"])
	if len(table) != 1 || !slices.Equal(table[0].RepoTags, []string{"herald:v1"}) || len(table[0].Layers) != 1 {
		t.Fatalf("manifest.json is %+v", table)
	}
	for _, path := range []string{table[0].Config, table[0].Layers[0]} {
		if _, ok := layout[path]; !ok {
			t.Errorf("manifest.json names %s, which is not there", path)
		}
	}
	holds(t, layout, decode[v1.Index](t, layout["index.json"]).Manifests[0], programs()[0])
}

// TestSameBytes wants the bytes of an archive to follow from its input.
func TestSameBytes(t *testing.T) {
	first := write(t, image(), programs()...)
	for range 10 { // the order of a map differs from one time to the next
		if !bytes.Equal(first, write(t, image(), programs()...)) {
			t.Fatal("two archives of the same image differ")
		}
	}
	elsewhere := image()
	elsewhere.Created = created.In(time.FixedZone("elsewhere", 9*60*60))
	if !bytes.Equal(first, write(t, elsewhere, programs()...)) {
		t.Error("the archive depends on the time zone")
	}
}

// TestVariant checks that an image for arm has the variant v7: runtimes refuse it otherwise.
func TestVariant(t *testing.T) {
	layout := files(t, bytes.NewReader(write(t, image(), oci.Program{Arch: "arm"}, oci.Program{Arch: "s390x"})))
	list := decode[v1.Index](t, blob(t, layout, decode[v1.Index](t, layout["index.json"]).Manifests[0])).Manifests
	for i, want := range []v1.Platform{{OS: "linux", Architecture: "arm", Variant: "v7"}, {OS: "linux", Architecture: "s390x"}} {
		config := decode[v1.Image](t, blob(t, layout, decode[v1.Manifest](t, blob(t, layout, list[i])).Config))
		if got := *list[i].Platform; got.Architecture != want.Architecture || got.Variant != want.Variant || config.Variant != want.Variant {
			t.Errorf("image %d is for %+v and says %q, want %+v", i, got, config.Variant, want)
		}
	}
}

func TestBadReference(t *testing.T) {
	for _, reference := range []string{"", "Herald:v1", "herald@sha256:" + digest.FromString("").Encoded()} {
		bad := image()
		bad.Reference = reference
		if err := oci.Write(io.Discard, bad, programs()...); err == nil {
			t.Errorf("no error for the reference %q", reference)
		}
	}
}
