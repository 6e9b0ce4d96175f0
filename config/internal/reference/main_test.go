package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
)

func TestPageIsUpToDate(t *testing.T) {
	page := filepath.Join(t.TempDir(), "config.md")
	if err := run("../..", page); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/config.md is stale, run go generate ./config (-want +got):\n%s", diff)
	}
}

// A default that a comment gives as a value must be the one the code sets.
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
	if err != nil {
		t.Fatal(err)
	}
	var source []string
	for _, name := range []string{"../../config.go", "../../balancers.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, string(text))
	}
	comments, err := parse(source...)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, s := range []any{*c, c.VIPs[0], c.VIPs[0].Attributes, c.Checks[0], *c.Checks[0].HTTP, *c.Services, *c.BGP, *c.BGP.Listen, c.BGP.Peers[0], *c.BGP.Peers[0].BFD, c.LoadBalancer, c.Balancers[0], *c.Balancers[0].Backends.DNS, *c.Balancers[0].Check, c.Admin, c.Metrics} {
		v := reflect.ValueOf(s)
		for f := range v.Type().Fields() {
			_, fallback := split(comments[v.Type().Name()+"."+f.Name])
			fallback = strings.Trim(fallback, "`")
			if d, err := time.ParseDuration(fallback); err == nil && f.Type == reflect.TypeFor[time.Duration]() {
				fallback = d.String()
			}
			got := fmt.Sprint(v.FieldByIndex(f.Index).Interface())
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
	source, err := os.ReadFile("../../config.go")
	if err != nil {
		t.Fatal(err)
	}
	comment := "\t// Port is the peer's TCP port. Default: 179.\n"
	if !strings.Contains(string(source), comment) {
		t.Fatalf("no comment %q", comment)
	}
	_, err = generate(nil, strings.Replace(string(source), comment, "", 1))
	if err == nil || err.Error() != "Peer.Port has no doc comment" {
		t.Errorf("error is %v", err)
	}
}
