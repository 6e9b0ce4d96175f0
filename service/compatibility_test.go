package service

import (
	"testing"

	"github.com/herald-vip/herald/config"
)

// TestCompatibility checks that the file accepts each load balancer with compatible annotations.
func TestCompatibility(t *testing.T) {
	for _, s := range synonyms() {
		file := "apiVersion: herald.dev/v1alpha1\nkind: Speaker\nnodeName: m1\nservices: {compatibility: [" + s.product + "]}\n"
		if _, err := config.Parse("herald.yaml", []byte(file)); err != nil {
			t.Errorf("compatibility with %s: %v", s.product, err)
		}
	}
}
