package clab_test

import (
	"path/filepath"
	"testing"

	"github.com/herald-vip/herald/testenv/clab"
)

// TestFiles reads every topology, those of the end-to-end tests too.
func TestFiles(t *testing.T) {
	for _, pattern := range []string{"../topologies/*.clab.yml", "../e2e/testdata/*.clab.yml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			if _, err := clab.Load(file); err != nil {
				t.Error(err)
			}
		}
	}
}
