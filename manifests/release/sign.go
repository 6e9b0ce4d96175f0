package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/distribution/reference"

	"github.com/herald-vip/herald/manifests/release/cosign"
	"github.com/herald-vip/herald/manifests/release/oci"
)

// signCommand signs a release.
type signCommand struct {
	Key       string `required:"" help:"Private key: ECDSA on P-256, PKCS#8 in PEM, without a password."`
	Reference string `required:"" help:"Name of the image."`
	Time      int64  `required:"" help:"Time of the release in seconds since 1970."`
	Folder    string `arg:"" help:"The release."`
}

// Run writes the signature of the checksums, and an OCI layout with the signatures of images and artifacts.
func (c signCommand) Run() error {
	pem, err := os.ReadFile(c.Key)
	if err != nil {
		return err
	}
	key, err := cosign.ParseKey(pem)
	if err != nil {
		return fmt.Errorf("key %s: %w", c.Key, err)
	}
	sums := filepath.Join(c.Folder, "SHA256SUMS")
	data, err := os.ReadFile(sums)
	if err != nil {
		return err
	}
	signature, err := key.Sign(data)
	if err != nil {
		return err
	}
	if err := os.WriteFile(sums+".sig", []byte(signature+"\n"), 0o644); err != nil {
		return err
	}
	artifacts, err := c.signLayouts(key)
	if err != nil {
		return err
	}
	return create(filepath.Join(c.Folder, "signatures.tar"), func(w io.Writer) error {
		return oci.WriteArtifacts(w, time.Unix(c.Time, 0).UTC(), artifacts...)
	})
}

// signLayouts signs the manifests in the layouts of the release.
func (c signCommand) signLayouts(key cosign.Key) (artifacts []oci.Artifact, err error) {
	name, err := reference.ParseDockerRef(c.Reference)
	if err != nil {
		return nil, fmt.Errorf("reference %q: %w", c.Reference, err)
	}
	layouts, err := filepath.Glob(filepath.Join(c.Folder, "herald_*.tar"))
	if err != nil {
		return nil, err
	}
	for _, path := range layouts {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		roots, err := oci.Roots(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, root := range roots {
			a, err := key.SignManifest(name.Name(), root)
			if err != nil {
				return nil, err
			}
			artifacts = append(artifacts, a)
		}
	}
	return artifacts, nil
}
