//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
)

// definitions are where the API server keeps the CRDs.
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// collection is where it keeps the objects of one.
func collection(resource string) string {
	return "/apis/" + v1alpha1.Group + "/" + v1alpha1.Version + "/" + resource
}

// TestCRDs shows a kube-apiserver the CRDs, and then objects, good and bad.
func TestCRDs(t *testing.T) {
	a := newAPI(t)
	a.define(t)
	t.Run("pools", a.testPools)
	t.Run("peers", a.testPeers)
	t.Run("every rule", testEveryRule)
	t.Run("full pool", a.testFullPool)
	t.Run("unknown field", a.testUnknownField)
	t.Run("defaults", a.testDefaults)
	t.Run("status", a.testStatus)
	t.Run("other router", a.testOtherRouter)
	t.Run("columns", a.testColumns)
}

// crdFiles are the files of the CRDs.
func crdFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../manifests/crds/*.yaml")
	must(t, err)
	if len(files) != 2 {
		t.Fatalf("the CRDs are %q, want two", files)
	}
	return files
}

// define creates the CRDs, and waits until the server takes objects of them.
func (a *api) define(t *testing.T) {
	t.Helper()
	for _, file := range crdFiles(t) {
		definition, err := os.ReadFile(file)
		must(t, err)
		status, answer, err := a.do(a.admin, http.MethodPost, definitions+"?fieldValidation=Strict", definition)
		must(t, err)
		if status != http.StatusCreated {
			t.Fatalf("%s: %d %s", file, status, answer)
		}
	}
	for _, resource := range []string{"addresspools", "bgppeers"} {
		eventually(t, soon, func() error {
			status, answer, err := a.do(a.admin, http.MethodGet, collection(resource), nil)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("%s: %d %s", resource, status, answer)
			}
			return err
		})
	}
}

// object is one of a kind, with this spec.
func object(kind, spec string) []byte {
	return fmt.Appendf(nil, "{apiVersion: herald.dev/v1alpha1, kind: %s, metadata: {name: a}, spec: %s}", kind, spec)
}

// mistakes are what the server says is wrong with an object, one by one, each as
// its field and the sentence about it; none if it takes the object.
func (a *api) mistakes(t *testing.T, resource string, object []byte) []string {
	t.Helper()
	status, answer := a.create(t, collection(resource), object)
	if status == http.StatusCreated {
		return nil
	}
	var refusal struct {
		Message string
		Details struct {
			Causes []struct{ Field, Message string }
		}
	}
	must(t, json.Unmarshal([]byte(answer), &refusal))
	if len(refusal.Details.Causes) == 0 {
		return []string{refusal.Message}
	}
	var mistakes []string
	for _, cause := range refusal.Details.Causes {
		sentence := cause.Message
		if i := strings.Index(sentence, "want "); i >= 0 && strings.HasPrefix(sentence, "Invalid value: ") {
			sentence = sentence[i:]
		}
		mistakes = append(mistakes, cause.Field+": "+sentence)
	}
	return mistakes
}
