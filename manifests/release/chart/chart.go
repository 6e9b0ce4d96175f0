// Package chart packs the Helm chart as an archive and for registries. The same files give the same bytes;
// Helm's own packer stamps the time of packing.
package chart

import (
	"bytes"
	"encoding/json"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"

	"github.com/herald-vip/herald/manifests/release/archive"
	"github.com/herald-vip/herald/manifests/release/oci"
)

// Media types of the parts of a chart in a registry.
const (
	configType  = "application/vnd.cncf.helm.config.v1+json"
	contentType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// Pack returns the archive of the chart in a folder, and the same as an artifact of a registry. The versions replace the versions of
// Chart.yaml. Helm's loader follows symbolic links, so the CRDs are packed too.
func Pack(folder, chartVersion, appVersion string, t time.Time) (tgz []byte, _ oci.Artifact, err error) {
	var none oci.Artifact
	chart, err := loader.LoadDir(folder)
	if err != nil {
		return nil, none, err
	}
	chart.Metadata.Version, chart.Metadata.AppVersion = chartVersion, appVersion
	if err := chart.Validate(); err != nil {
		return nil, none, err
	}
	metadata, err := yaml.Marshal(chart.Metadata)
	if err != nil {
		return nil, none, err
	}
	var files []archive.File
	for _, f := range chart.Raw {
		if f.Name == "Chart.yaml" {
			f.Data = metadata
		}
		files = append(files, archive.File{Name: path.Join(chart.Name(), f.Name), Mode: 0o644, Data: f.Data})
	}
	var packed bytes.Buffer
	if err := archive.WriteGzip(&packed, t, files); err != nil {
		return nil, none, err
	}
	config, err := json.Marshal(chart.Metadata)
	if err != nil {
		return nil, none, err
	}
	image, err := partial.CompressedToImage(packedChart{config, static.NewLayer(packed.Bytes(), contentType)})
	return packed.Bytes(), oci.Artifact{Image: image, Tag: chartVersion}, err
}

// packedChart is a chart as a registry has it; a [partial.CompressedImageCore].
type packedChart struct {
	config  []byte
	content v1.Layer
}

func (packedChart) MediaType() (types.MediaType, error)                      { return types.OCIManifestSchema1, nil }
func (c packedChart) RawConfigFile() ([]byte, error)                         { return c.config, nil }
func (c packedChart) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return c.content, nil }

func (c packedChart) RawManifest() ([]byte, error) {
	config, err := partial.Descriptor(static.NewLayer(c.config, configType))
	if err != nil {
		return nil, err
	}
	content, err := partial.Descriptor(c.content)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: *config, Layers: []v1.Descriptor{*content},
	})
}
