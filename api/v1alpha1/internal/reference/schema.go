package main

import (
	"fmt"
	"os"

	"github.com/goccy/go-yaml"
)

// schema is what a CRD says of a value.
type schema struct {
	Description string             `yaml:"description"`
	Properties  map[string]*schema `yaml:"properties"`
	Items       *schema            `yaml:"items"`
	Required    []string           `yaml:"required"`
	Default     any                `yaml:"default"`
	Rules       []rule             `yaml:"x-kubernetes-validations"`
}

// rule is one that a value has to keep.
type rule struct {
	Message string `yaml:"message"`
	// FieldPath is the field that it is about, such as .bgp.communities; empty if it is the value as a whole.
	FieldPath string `yaml:"fieldPath"`
}

// readSchema reads that of the only version of a CRD.
func readSchema(file string) (*schema, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Root *schema `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(data, &definition); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if n := len(definition.Spec.Versions); n != 1 {
		return nil, fmt.Errorf("%s: has %d versions, want one", file, n)
	}
	return definition.Spec.Versions[0].Schema.Root, nil
}
