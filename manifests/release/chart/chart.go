// Package chart packs a Helm chart reproducibly, as an archive and as an artifact of a registry.
package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/herald-vip/herald/manifests/release/archive"
	"github.com/herald-vip/herald/manifests/release/oci"
)

// Media types of the parts of a chart in a registry.
const (
	configType  = "application/vnd.cncf.helm.config.v1+json"
	contentType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// definition is the file with the metadata of a chart.
const definition = "Chart.yaml"

// Pack returns the archive of a chart, and an artifact of a registry with it. It sets the versions of the
// chart and of the application, and follows symbolic links as Helm does.
func Pack(chart fs.FS, chartVersion, appVersion string, t time.Time) (tgz []byte, _ oci.Artifact, err error) {
	var none oci.Artifact
	about, err := stamp(chart, chartVersion, appVersion)
	if err != nil {
		return nil, none, err
	}
	name := fmt.Sprint(about["name"])
	var files []archive.File
	var add fs.WalkDirFunc
	add = func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Type() == fs.ModeSymlink {
			return fs.WalkDir(chart, file, add) // follows it
		}
		var data []byte
		if file == definition {
			data, err = yaml.Marshal(about)
		} else {
			data, err = fs.ReadFile(chart, file)
		}
		files = append(files, archive.File{Name: path.Join(name, file), Mode: 0o644, Data: data})
		return err
	}
	if err := fs.WalkDir(chart, ".", add); err != nil {
		return nil, none, err
	}
	var packed bytes.Buffer
	if err := archive.WriteGzip(&packed, t, files); err != nil {
		return nil, none, err
	}
	config, err := json.Marshal(about)
	return packed.Bytes(), oci.Artifact{
		Tag:    chartVersion,
		Config: oci.Blob{MediaType: configType, Data: config},
		Layers: []oci.Blob{{MediaType: contentType, Data: packed.Bytes()}},
	}, err
}

// stamp returns the metadata of a chart with these versions.
func stamp(chart fs.FS, chartVersion, appVersion string) (map[string]any, error) {
	data, err := fs.ReadFile(chart, definition)
	if err != nil {
		return nil, err
	}
	var about map[string]any
	if err := yaml.Unmarshal(data, &about); err != nil {
		return nil, fmt.Errorf("%s: %w", definition, err)
	}
	about["version"], about["appVersion"] = chartVersion, appVersion
	return about, nil
}
