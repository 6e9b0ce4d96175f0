package main

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/herald-vip/herald/manifests/release/cosign"
)

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// throwaway is a key that was made for a test, and where it is.
func throwaway(t *testing.T, curve elliptic.Curve, kind string) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	path := filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return key, path
}

// verified is the bytes that a signature in base64 is of, as `cosign verify-blob --key` judges it.
func verified(t *testing.T, key crypto.PublicKey, signature string, data []byte) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(signature))
	must(t, err)
	sum := sha256.Sum256(data)
	if !ecdsa.VerifyASN1(key.(*ecdsa.PublicKey), sum[:], raw) {
		t.Errorf("the signature %s is not of %.80q", signature, data)
	}
}

// layoutOf reads the archive of an OCI layout.
func layoutOf(t *testing.T, path string) (files map[string][]byte, index v1.Index) {
	t.Helper()
	data := read(t, path)
	files = make(map[string][]byte)
	for archive := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			files[header.Name], err = io.ReadAll(archive)
		}
		must(t, err)
	}
	into(t, files["index.json"], &index)
	return files, index
}

func into(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

// signed signs a release with a throwaway key, twice. It verifies the signatures of the checksums and of each
// layout with the public key.
func signed(t *testing.T, release releaseCommand) {
	t.Helper()
	key, path := throwaway(t, elliptic.P256(), "PRIVATE KEY")
	c := signCommand{Key: path, Reference: release.Reference, Time: release.Time, Folder: release.Out}
	signatures := filepath.Join(c.Folder, "signatures.tar")
	var first []byte
	for range 2 {
		must(t, c.Run())
		if now := read(t, signatures); first == nil {
			first = now
		} else if !bytes.Equal(first, now) {
			t.Error("signed again, the same key gives other signatures")
		}
	}
	sums := filepath.Join(c.Folder, "SHA256SUMS")
	verified(t, key.Public(), string(read(t, sums+".sig")), read(t, sums))

	blobs, index := layoutOf(t, signatures)
	blob := func(d v1.Descriptor) []byte { return blobs["blobs/sha256/"+d.Digest.Encoded()] }
	tags := make(map[string]v1.Descriptor)
	for _, m := range index.Manifests {
		tags[m.Annotations[v1.AnnotationRefName]] = m
	}
	for _, layout := range []string{"herald_v1_image.tar", "herald_v1_talos.tar", "herald_v1_chart.tar", "herald_v1_linux_armv7_image.tar"} {
		_, index := layoutOf(t, filepath.Join(c.Folder, layout))
		digest := index.Manifests[0].Digest
		var m v1.Manifest
		into(t, blob(tags["sha256-"+digest.Encoded()+".sig"]), &m)
		verified(t, key.Public(), m.Layers[0].Annotations["dev.cosignproject.cosign/signature"], blob(m.Layers[0]))
		const want = `{"critical":{"identity":{"docker-reference":"docker.io/library/herald"},"image":{"docker-manifest-digest":"DIGEST"},"type":"cosign container image signature"},"optional":null}`
		if got := string(blob(m.Layers[0])); got != strings.Replace(want, "DIGEST", digest.String(), 1) {
			t.Errorf("of %s was signed %s", layout, got)
		}
		var config v1.Image
		into(t, blob(m.Config), &config)
		if config.RootFS.DiffIDs[0] != m.Layers[0].Digest {
			t.Errorf("the configuration of the signature names %s", config.RootFS.DiffIDs)
		}
	}
	charted(t, filepath.Join(c.Folder, "herald_v1_chart.tar"))
}

// charted checks that a layout has the chart in the form of Helm, with the versions of the release.
func charted(t *testing.T, path string) {
	t.Helper()
	blobs, index := layoutOf(t, path)
	var m v1.Manifest
	into(t, blobs["blobs/sha256/"+index.Manifests[0].Digest.Encoded()], &m)
	var about struct{ Name, Version, AppVersion, KubeVersion string }
	into(t, blobs["blobs/sha256/"+m.Config.Digest.Encoded()], &about)
	if about.Name != "herald" || about.Version != "0.0.0-g1" || about.AppVersion != "v1" || about.KubeVersion == "" ||
		index.Manifests[0].Annotations[v1.AnnotationRefName] != about.Version || m.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" ||
		m.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Errorf("the chart's metadata is %+v; its manifest is %+v", about, m)
	}
	tgz := filepath.Join(t.TempDir(), "chart.tgz")
	must(t, os.WriteFile(tgz, blobs["blobs/sha256/"+m.Layers[0].Digest.Encoded()], 0o600))
	got := strings.Join(contents(t, tgz), "\n")
	for _, want := range []string{"herald/Chart.yaml -rw-r--r--\n", "\nherald/templates/daemonset.yaml ", "\nherald/crds/herald.dev_tenants.yaml -rw-r--r--\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the chart lacks %q:\n%s", want, got)
		}
	}
}

// TestKeys checks that keys that cosign does not support are refused, with a cure.
func TestKeys(t *testing.T) {
	_, long := throwaway(t, elliptic.P384(), "PRIVATE KEY")
	_, locked := throwaway(t, elliptic.P256(), "ENCRYPTED SIGSTORE PRIVATE KEY")
	for _, tt := range []struct {
		key  []byte
		want string
	}{
		{[]byte("secret"), "want a private key in PEM"},
		{read(t, locked), "this is an encrypted sigstore private key: want a PRIVATE KEY without a password"},
		{read(t, long), "P-256"},
	} {
		if _, err := cosign.ParseKey(tt.key); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseKey = %v, want %q", err, tt.want)
		}
	}
}
