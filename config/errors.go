package config

import "github.com/herald-vip/herald/internal/yaml"

type (
	// Error is a mistake in a configuration file.
	Error = yaml.Error
	// Errors are all mistakes of a configuration file, in the order of their positions.
	Errors = yaml.Errors
)
