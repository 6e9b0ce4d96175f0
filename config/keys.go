package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/herald-vip/herald/internal/yaml"
)

// readKeys reads the gossip keys of the election.
func (c *Config) readKeys(r *yaml.Report, read func(string) ([]byte, error)) {
	if c.Election == nil || !filepath.IsAbs(c.Election.KeyFile) { // absent, or a reported mistake
		return
	}
	data, err := read(c.Election.KeyFile)
	if err == nil {
		c.Election.Keys, err = parseKeys(data)
	}
	if err != nil {
		r.Errorf("election.keyFile", "%v", err)
	}
}

// parseKeys reads gossip keys, one per line in base64, of 16, 24 or 32 bytes for AES-128,
// AES-192 or AES-256. The first encrypts and all decrypt. It skips empty lines and
// comments (#). Errors name the line, never its content.
func parseKeys(data []byte) ([][]byte, error) {
	var keys [][]byte
	lines := make(map[string]int) // the line of each key
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.Strict().DecodeString(string(line))
		switch first, repeated := lines[string(key)]; {
		case err != nil:
			return nil, fmt.Errorf("line %d is not base64: write the file with herald keygen", number)
		case len(key) != 16 && len(key) != 24 && len(key) != 32:
			return nil, fmt.Errorf("line %d holds a key of %d bytes, want 16, 24 or 32: write the file with herald keygen", number, len(key))
		case repeated:
			return nil, fmt.Errorf("line %d repeats the key of line %d: remove it", number, first)
		}
		lines[string(key)] = number
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("the file has no key: write one with herald keygen")
	}
	return keys, nil
}
