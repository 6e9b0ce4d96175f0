// Package reference writes and checks docs/config.md, the reference of the file of package
// config, and docs/resources.md, the reference of the CRDs of package v1alpha1.
package reference

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

const root = "../../.."

var update = flag.Bool("update", false, "write docs/config.md and docs/resources.md")

// All pages match their sources; -update regenerates them.
func TestPages(t *testing.T) {
	for name, want := range pages(t) {
		file := filepath.Join(root, "docs", name)
		if *update {
			must.Do(t, os.WriteFile(file, want, 0o644))
			continue
		}
		got := must.Get[[]byte](t)(os.ReadFile(file))
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("docs/%s is stale, run go generate ./config (-want +got):\n%s", name, diff)
		}
	}
}

// pages returns docs/config.md, from the types of package config, their doc comments and the example, and
// docs/resources.md, from the CRDs in the order of the types of package v1alpha1.
func pages(t *testing.T) map[string][]byte {
	t.Helper()
	file := must.Get[[]byte](t)(filePage(read(t, "config/example.yaml"), readSource(t)...))
	var kinds []kind
	for _, of := range []reflect.Type{
		reflect.TypeFor[v1alpha1.AddressPool](), reflect.TypeFor[v1alpha1.BGPPeer](), reflect.TypeFor[v1alpha1.NodeStatus](),
		reflect.TypeFor[v1alpha1.Tenant](), reflect.TypeFor[v1alpha1.TenantNodes](), reflect.TypeFor[v1alpha1.TCPLoadBalancer](),
		reflect.TypeFor[v1alpha1.HTTPLoadBalancer](),
	} {
		plural := strings.Replace(strings.TrimSuffix(strings.ToLower(of.Name()), "s")+"s", "status", "statuses", 1)
		kinds = append(kinds, kind{of, readSchema(t, plural)})
	}
	resources := must.Get[[]byte](t)(resourcesPage(resourcesIntroduction, read(t, "api/v1alpha1/example.yaml"), kinds...))
	return map[string][]byte{"config.md": file, "resources.md": resources}
}

// readSource reads the Go files that declare the types of the configuration file.
func readSource(t *testing.T) (source [][]byte) {
	t.Helper()
	names := []string{"api/v1alpha1/bgppeer.go", "config/config.go", "balancer/config.go", "election/electorate/electorate.go"}
	for _, path := range must.Get[[]string](t)(filepath.Glob(filepath.Join(root, "health", "*.go"))) {
		if !strings.HasSuffix(path, "_test.go") {
			names = append(names, "health/"+filepath.Base(path))
		}
	}
	for _, name := range names {
		source = append(source, read(t, name))
	}
	return source
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	return must.Get[[]byte](t)(os.ReadFile(filepath.Join(root, name)))
}

// A default value in a comment must be the value that the code sets.
func TestDocumentedDefaults(t *testing.T) {
	const least = `
apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips: [{name: v, addresses: [10.99.0.10], announce: bgp, checks: [h]}]
checks: [{name: h, http: {url: "http://127.0.0.1"}}, {name: t, tcp: {address: "127.0.0.1:1"}}]
services: {}
bgp: {asn: 64512, listen: {}, peers: [{address: 10.0.1.254, asn: 64500, bfd: {}}]}
balancers: [{name: b, listen: [{address: "127.0.0.1:2"}], backends: {dns: {name: masters, port: 2}}}]
`
	c, err := config.Parse("herald.yaml", []byte(least))
	must.Do(t, err)
	comments, err := parse(readSource(t)...)
	must.Do(t, err)
	checked := 0
	for _, s := range []any{*c, c.VIPs[0], c.VIPs[0].Attributes, c.Checks[0], *c.Checks[0].HTTP, *c.Services, *c.BGP, *c.BGP.Listen, c.BGP.Peers[0], *c.BGP.Peers[0].BFD, c.LoadBalancer, c.Balancers[0], *c.Balancers[0].Backends.DNS, *c.Balancers[0].Check, c.Admin, c.Metrics} {
		v := reflect.ValueOf(s)
		for f := range v.Type().Fields() {
			_, fallback := split(comments[v.Type().String()+"."+f.Name])
			fallback = strings.Trim(fallback, "`")
			if d, err := time.ParseDuration(fallback); err == nil && (f.Type == reflect.TypeFor[time.Duration]() || f.Type == reflect.TypeFor[metav1.Duration]()) {
				fallback = d.String()
			}
			got := fmt.Sprint(v.FieldByIndex(f.Index).Interface())
			if d, ok := v.FieldByIndex(f.Index).Interface().(metav1.Duration); ok {
				got = d.Duration.String()
			}
			zero := v.FieldByIndex(f.Index).IsZero()
			literal := fallback != "–" && (slices.Contains([]string{"lo", "false", "true", "withdraw", "herald.dev/vip", "internal", "kernel", "round-robin"}, fallback) || strings.ContainsAny(fallback[:1], "0123456789[/"))
			switch {
			case literal:
				checked++
				if got != fallback {
					t.Errorf("%s.%s is %s by default, documented as %s", v.Type().Name(), f.Name, got, fallback)
				}
			case fallback == "–" && f.Type.Kind() != reflect.Struct && f.Type.Kind() != reflect.Pointer && !zero:
				t.Errorf("%s.%s is %s by default, documented as none", v.Type().Name(), f.Name, got)
			}
		}
	}
	if checked < 15 {
		t.Errorf("checked %d documented defaults, want at least 15", checked)
	}
}

func TestUndocumentedFieldIsRefused(t *testing.T) {
	source := readSource(t)
	comment := "\t// Port is the peer's TCP port. Default: 179.\n"
	if !bytes.Contains(source[0], []byte(comment)) {
		t.Fatalf("no comment %q", comment)
	}
	source[0] = bytes.Replace(source[0], []byte(comment), nil, 1)
	_, err := filePage(nil, source...)
	if err == nil || err.Error() != "Peer.Port is not described" {
		t.Errorf("error is %v", err)
	}
}

// TestRefused checks that each field of a CRD needs a description, with its actual default.
func TestRefused(t *testing.T) {
	pool := readSchema(t, "addresspools")
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
		if _, err := resourcesPage("", nil, kind{reflect.TypeFor[v1alpha1.AddressPool](), pool}); err == nil || err.Error() != test.want {
			t.Errorf("error is %v, want %s", err, test.want)
		}
	}
}

// schema describes a value, from a CRD or from the comments of the file's types.
type schema struct {
	Description string             `yaml:"description"`
	Properties  map[string]*schema `yaml:"properties"`
	Items       *schema            `yaml:"items"`
	Required    []string           `yaml:"required"`
	Default     any                `yaml:"default"`

	about string // the description of its type, if that differs
}

// readSchema reads the schema of the only version of the CRD with this plural.
func readSchema(t *testing.T, plural string) *schema {
	t.Helper()
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Root *schema `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	must.Do(t, yaml.Unmarshal(read(t, "manifests/crds/herald.dev_"+plural+".yaml"), &definition))
	if len(definition.Spec.Versions) != 1 {
		t.Fatal("a CRD has several versions, want one")
	}
	return definition.Spec.Versions[0].Schema.Root
}
