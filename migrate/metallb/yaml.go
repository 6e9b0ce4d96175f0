package metallb

import (
	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/yaml"
)

// resource is the head of a Kubernetes object.
type resource struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// manifests returns the objects to apply as one YAML stream.
func (m *converter) manifests() []byte {
	w := m.Writer("json")
	w.Remark("By herald migrate metallb. Read the comments, fill in the open fields, then:",
		"kubectl apply -f FILE")
	w.Struct("", resource{"v1", "ConfigMap", metadata{"herald", m.options.Namespace}})
	w.Line("data:")
	w.Line("  herald.yaml: |")
	w.Tag, w.Depth = "yaml", 2
	w.Struct("", &m.Config)
	w.Tag, w.Depth = "json", 0
	const version = v1alpha1.Group + "/" + v1alpha1.Version
	spec := func(path yaml.Path, kind, name string, spec any) {
		w.Line("---")
		w.Struct("", resource{version, kind, metadata{Name: name}})
		w.Line("spec:")
		w.Depth++
		w.Struct(path, spec)
		w.Depth--
	}
	for i, p := range m.pools {
		if b := p.spec.BGP; b != nil && b.AggregationLength == 32 {
			b.AggregationLength = 0 // the default
		}
		if b := p.spec.BGP; b != nil && b.AggregationLengthV6 == 128 {
			b.AggregationLengthV6 = 0
		}
		spec(yaml.Path("pools").Item(i).Field("spec"), "AddressPool", p.name, &p.spec)
	}
	for i, p := range m.peers {
		spec(yaml.Path("peers").Item(i).Field("spec"), "BGPPeer", p.name, &p.spec)
	}
	return []byte(w.String())
}
