package reference

import (
	"errors"

	"github.com/goccy/go-yaml"
)

// schema is what a CRD says of a value, or the comments of package config.
type schema struct {
	Description string             `yaml:"description"`
	Properties  map[string]*schema `yaml:"properties"`
	Items       *schema            `yaml:"items"`
	Required    []string           `yaml:"required"`
	Default     any                `yaml:"default"`

	about string // what its type is, where that is not the description
}

// readSchema reads that of the only version of a CRD.
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
