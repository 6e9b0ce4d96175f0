package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
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

// writeBOM writes the bill of materials of a program in CycloneDX's JSON: the Go release and the linked modules.
func writeBOM(w io.Writer, b build, p program) error {
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		return fmt.Errorf("bill of materials of %s: %w", p.path, err)
	}
	bom := cdx.NewBOM()
	main := library(info.Main.Path, b.Version)
	main.Type = cdx.ComponentTypeApplication
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(p.Data))}}
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	bom.Metadata = &cdx.Metadata{
		Timestamp: b.time().Format(time.RFC3339),
		Component: &main,
		Properties: &[]cdx.Property{
			{Name: "go:arch", Value: p.Arch},
			{Name: "vcs:revision", Value: b.Commit},
		},
	}
	components := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		c, err := moduleComponent(m)
		if err != nil {
			return err
		}
		components = append(components, c)
	}
	needs := make([]string, len(components))
	for i, c := range components {
		needs[i] = c.BOMRef
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &needs}}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// moduleComponent returns the component of a module. A fork in this repository has the version of the module
// that it replaces, and no checksum.
func moduleComponent(m *debug.Module) (cdx.Component, error) {
	built := *m
	if r := m.Replace; r != nil {
		if !strings.HasPrefix(r.Path, ".") {
			built.Path, built.Version = r.Path, r.Version
		}
		built.Sum = r.Sum
	}
	c := library(built.Path, built.Version)
	if m.Replace != nil {
		c.Properties = &[]cdx.Property{{Name: "go:replaced-by", Value: m.Replace.Path}}
	}
	if built.Sum == "" {
		return c, nil
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(built.Sum, "h1:"))
	if err != nil {
		return c, fmt.Errorf("sum of module %s: %w", m.Path, err)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}}
	return c, nil
}

func library(path, version string) cdx.Component {
	return cdx.Component{
		BOMRef:     packageURL(path, version),
		Type:       cdx.ComponentTypeLibrary,
		Name:       path,
		Version:    version,
		PackageURL: packageURL(path, version),
	}
}

// packageURL returns the package URL of a Go module, the name in databases of vulnerabilities.
func packageURL(path, version string) string { return "pkg:golang/" + path + "@" + version }
