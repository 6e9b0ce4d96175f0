package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/testenv/must"
)

// withDropIns writes the base and drop-ins into a new folder.
func withDropIns(t *testing.T, files map[string]string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "herald.yaml")
	write(t, file, base)
	must.Do(t, os.Mkdir(file+".d", 0o700))
	for name, text := range files {
		write(t, filepath.Join(file+".d", name), text)
	}
	return file
}

const registry = `vips:
- name: registry
  addresses: [10.99.0.11]
  announce: bgp
  checks: [registry, apiserver]
checks:
- name: registry
  tcp: {address: "127.0.0.1:5001"}
`

// The items of drop-ins follow the items of the file, in the order of file names. Each file may refer to names in any other.
func TestDropIns(t *testing.T) {
	file := withDropIns(t, map[string]string{
		"20-checks.yaml": "checks: [{name: dns, dns: {server: \"127.0.0.1:53\", name: example.org}}]\n",
		"10-reg.yaml":    strings.Replace(registry, "registry, apiserver", "registry, dns", 1),
		"30-none.yaml":   "vips: []\n",
		".hidden.yaml":   "not: read",
		"README":         "not: read",
		"old.yaml.bak":   "not: read",
	})
	c, err := config.Load(file)
	must.Do(t, err)
	var got []string
	for _, v := range c.VIPs {
		got = append(got, v.Name+" on "+v.Interface+" by "+strings.Join(v.Checks, ","))
	}
	for _, k := range c.Checks {
		got = append(got, k.Name)
	}
	if diff := cmp.Diff([]string{"web on lo by apiserver", "registry on lo by registry,dns", "apiserver", "registry", "dns"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The result can be written as a single file.
	if _, err := config.Parse("whole", c.YAML()); err != nil {
		t.Error(err)
	}
	if c, err := config.Parse(file, []byte(base)); err != nil || len(c.VIPs) != 1 {
		t.Errorf("%v: Parse has read drop-ins", err)
	}
	if c, err := config.Parse(file, []byte(base), config.ReadBy(config.ReadFile)); err != nil || len(c.VIPs) != 2 {
		t.Errorf("%v: Parse with ReadBy has not read the drop-ins", err)
	}
}

// A mistake is reported with its own file and position, and refuses the whole configuration.
func TestDropInMistakes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string // without the folder
	}{
		{"another section", map[string]string{"a.yaml": registry + "bgp: {asn: 1}\n"}, "herald.yaml.d/a.yaml:9:1: bgp: unknown field, want vips or checks"},
		{"syntax", map[string]string{"a.yaml": "vips: [", "b.yaml": registry}, "herald.yaml.d/a.yaml:1:7: not valid YAML: sequence end token ']' not found"},
		{"empty", map[string]string{"a.yaml": ""}, "herald.yaml.d/a.yaml:1:1: the file is empty"},
		{"no list", map[string]string{"a.yaml": "vips: 5\n"}, "herald.yaml.d/a.yaml:1:7: vips: want a list, got the number 5"},
		{"a value", map[string]string{"a.yaml": registry + "  rise: 0\n"}, "herald.yaml.d/a.yaml:9:9: checks[0].rise: want 1 to 100, got 0"},
		{"an unread value", map[string]string{"a.yaml": registry + "  rise: x\n"}, `herald.yaml.d/a.yaml:9:9: checks[0].rise: want a whole number, got the text "x"`},
		{"an absent value", map[string]string{"a.yaml": "checks:\n- name: x\n  file: {}\n"}, "herald.yaml.d/a.yaml:3:9: checks[0].file.path: missing: give the absolute path of a file"},
		{"a name of the file", map[string]string{"a.yaml": "checks: [{name: apiserver, file: {path: /f}}]"}, "herald.yaml.d/a.yaml:1:17: checks[0].name: apiserver is the name of checks[0] of herald.yaml already"},
		{"a name of another", map[string]string{"a.yaml": registry, "b.yaml": strings.Replace(registry, "0.11", "0.12", 1)},
			"herald.yaml.d/b.yaml:2:9: vips[0].name: registry is the name of vips[0] of herald.yaml.d/a.yaml already\n" +
				"herald.yaml.d/b.yaml:7:9: checks[0].name: registry is the name of checks[0] of herald.yaml.d/a.yaml already"},
		{"a name of its own", map[string]string{"a.yaml": "checks: [{name: x, file: {path: /f}}, {name: x, file: {path: /g}}]"}, "herald.yaml.d/a.yaml:1:46: checks[1].name: x is the name of checks[0] already"},
		{"an address of the file", map[string]string{"a.yaml": strings.Replace(registry, "0.11", "0.10", 1)}, "herald.yaml.d/a.yaml:3:15: vips[0].addresses[0]: 10.99.0.10 is an address of vips[0] of herald.yaml already"},
		{"no such check", map[string]string{"a.yaml": strings.Replace(registry, "[registry, ", "[regsitry, ", 1)}, `herald.yaml.d/a.yaml:5:12: vips[0].checks[0]: no check has the name "regsitry", did you mean registry?`},
		{"in several", map[string]string{"b.yaml": "vip: []", "a.yaml": "a: 1\nb: 1\n"}, "herald.yaml.d/a.yaml:1:1: a: unknown field, want vips or checks\n" +
			"herald.yaml.d/a.yaml:2:1: b: unknown field, want vips or checks\nherald.yaml.d/b.yaml:1:1: vip: unknown field, did you mean vips?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := withDropIns(t, tt.files)
			_, err := config.Load(file)
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(tt.want, strings.ReplaceAll(err.Error(), filepath.Dir(file)+"/", "")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An unreadable drop-in refuses the whole configuration, and so does a file in place of the folder.
func TestDropInsThatCannotBeRead(t *testing.T) {
	file := withDropIns(t, nil)
	must.Do(t, os.Symlink("nowhere", filepath.Join(file+".d", "a.yaml")))
	if _, err := config.Load(file); err == nil || !strings.HasSuffix(err.Error(), "herald.yaml.d/a.yaml: no such file or directory") {
		t.Errorf("error is %v", err)
	}
	must.Do(t, os.RemoveAll(file+".d"))
	write(t, file+".d", "")
	if _, err := config.Load(file); err == nil || !strings.HasSuffix(err.Error(), "not a directory") {
		t.Errorf("error is %v", err)
	}
	must.Do(t, os.Remove(file+".d"))
	_, err := config.Load(file)
	must.Do(t, err)
}
