package reference

import (
	"errors"

	"github.com/goccy/go-yaml"
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

// readSchema reads the schema of the only version of a CRD.
func readSchema(crd []byte) (*schema, error) {
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Root *schema `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(crd, &definition); err != nil {
		return nil, err
	}
	if len(definition.Spec.Versions) != 1 {
		return nil, errors.New("a CRD has several versions, want one")
	}
	return definition.Spec.Versions[0].Schema.Root, nil
}
