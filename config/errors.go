package config

import "github.com/herald-vip/herald/config/yaml"

type (
	// Error is one mistake in a configuration file.
	Error = yaml.Error
	// Errors are all the mistakes of one configuration file, in the order of their positions.
	Errors = yaml.Errors
)
