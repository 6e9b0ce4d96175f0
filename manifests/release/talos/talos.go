// Package talos makes system extensions of Talos out of container images
// (https://docs.siderolabs.com/talos/v1.14/build-and-extend-talos/custom-images-and-development/system-extensions).
package talos

import (
	"fmt"

	"github.com/herald-vip/herald/manifests/release/archive"
	"github.com/herald-vip/herald/manifests/release/oci"
)

// Paths of an extension service and its program on Talos.
const (
	services = "rootfs/usr/local/etc/containers/"
	programs = "rootfs/usr/local/lib/containers/"
)

// manifest describes the extension. Since Talos 1.7 a service can wait for its configuration.
const manifest = `version: v1alpha1
metadata:
  name: %s
  version: %q
  author: Herald
  description: Announces the virtual IP of a Kubernetes control plane while its API server is healthy.
  compatibility:
    talos:
      version: ">= v1.7.0"
`

// Runs reports whether Talos supports an architecture.
func Runs(arch string) bool { return arch == "amd64" || arch == "arm64" }

// Extension converts the image of the named program to a system extension that runs it. service is Talos' file
// that describes the service.
func Extension(image oci.Image, name, version string, service []byte) oci.Image {
	folder := programs + name + "/"
	image.Entrypoint = "/" + folder + name
	image.Beside = []archive.File{{Name: "manifest.yaml", Mode: 0o644, Data: fmt.Appendf(nil, manifest, name, version)}}
	// Talos creates missing folders with access for root only, and overlays its own with them.
	for _, dir := range []string{"rootfs/", "rootfs/usr/", "rootfs/usr/local/", "rootfs/usr/local/etc/", services, "rootfs/usr/local/lib/", programs, folder} {
		image.Beside = append(image.Beside, archive.File{Name: dir, Mode: 0o755})
	}
	image.Beside = append(image.Beside, archive.File{Name: services + name + ".yaml", Mode: 0o644, Data: service})
	return image
}
