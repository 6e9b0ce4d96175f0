package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	api  = "../.."
	crds = "../../../../manifests/crds"
)

func TestPageIsUpToDate(t *testing.T) {
	page := filepath.Join(t.TempDir(), "services-api.md")
	if err := run(api, crds, page); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../../docs/services-api.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/services-api.md is stale, run go generate ./api/v1alpha1 (-want +got):\n%s", diff)
	}
}

// TestRefused checks that a field must be described, and its default as it is.
func TestRefused(t *testing.T) {
	pool, err := readSchema(filepath.Join(crds, "herald.dev_addresspools.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	priority := pool.Properties["spec"].Properties["priority"]
	for _, test := range []struct {
		description string
		fallback    any
		want        string
	}{
		{"", nil, "AddressPoolSpec.Priority is not described"},
		{"Priority decides. Default: 1.", 0, "AddressPoolSpec.Priority is 0 by default, described as 1"},
		{"Priority decides.", 0, "AddressPoolSpec.Priority is 0 by default, described as –"},
	} {
		priority.Description, priority.Default = test.description, test.fallback
		if _, err := generate(pool, pool, nil); err == nil || err.Error() != test.want {
			t.Errorf("error is %v, want %s", err, test.want)
		}
	}
}
