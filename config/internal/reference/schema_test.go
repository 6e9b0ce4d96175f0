package reference

import (
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/herald-vip/herald/testenv/must"
)

// schema describes a value, from a CRD or from the comments of the file's types.
type schema struct {
	Description string             `yaml:"description"`
	Properties  map[string]*schema `yaml:"properties"`
	Items       *schema            `yaml:"items"`
	Required    []string           `yaml:"required"`
	Default     any                `yaml:"default"`

	about string // the description of its type, if that differs
}

// readSchema reads the schema of the only version of the CRD with this plural.
func readSchema(t *testing.T, plural string) *schema {
	t.Helper()
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Root *schema `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	must.Do(t, yaml.Unmarshal(read(t, "manifests/crds/herald.dev_"+plural+".yaml"), &definition))
	if len(definition.Spec.Versions) != 1 {
		t.Fatal("a CRD has several versions, want one")
	}
	return definition.Spec.Versions[0].Schema.Root
}
