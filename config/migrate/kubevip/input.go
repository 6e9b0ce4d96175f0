package kubevip

import (
	"regexp"
	"strings"

	"github.com/herald-vip/herald/config/migrate"
	"github.com/herald-vip/herald/config/yaml"
)

// Bounds on what aliases can multiply.
const (
	maxContainers = 100
	maxSettings   = 10_000
)

// setting is one of kube-vip's, from the environment or a flag.
type setting struct {
	name, value string
	line        int
	from        string // where the value is if it is not in the file
}

// instance is one kube-vip: a container of a manifest, or a listing of variables.
type instance struct {
	line     int
	settings []setting // the environment's after the flags', as they override them
	listing  bool      // may hold variables that are not kube-vip's
}

// readInstances finds every kube-vip in a manifest or a listing of its environment.
func readInstances(data []byte, notes *migrate.Notes) ([]instance, error) {
	s, err := yaml.Text(data)
	if err != nil {
		return nil, err
	}
	if isListing(s) {
		return []instance{readListing(s)}, nil
	}
	documents, err := migrate.Trees(s, 0)
	if err != nil {
		return nil, err
	}
	r := manifestReader{Notes: notes}
	for _, d := range documents {
		r.workload(d)
		for _, item := range d.At("items").Items { // of a List
			r.workload(item)
		}
	}
	return r.found, nil
}

// variable is a line of `env` or of an EnvironmentFile.
var variable = regexp.MustCompile(`^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// isListing reports whether the first line that says something sets a variable.
func isListing(s string) bool {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return variable.MatchString(line)
		}
	}
	return false
}

func readListing(s string) instance {
	in := instance{line: 1, listing: true}
	number := 0
	for line := range strings.Lines(s) {
		number++
		m := variable.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || len(in.settings) >= maxSettings {
			continue
		}
		value := strings.TrimSpace(m[2])
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		in.settings = append(in.settings, setting{name: m[1], value: value, line: number})
	}
	return in
}

// manifestReader walks the few paths of a manifest on which kube-vip's settings are.
type manifestReader struct {
	found []instance
	total int // settings
	*migrate.Notes
}

// workload reads a Pod, or what has a template for one.
func (r *manifestReader) workload(t *migrate.Tree) {
	spec := t.At("spec")
	if template := spec.At("template"); !template.Empty() {
		spec = template.At("spec")
	}
	for _, c := range spec.At("containers").Items {
		is := strings.Contains(c.At("name").Scalar, "kube-vip") || strings.Contains(c.At("image").Scalar, "kube-vip")
		if is && len(r.found) < maxContainers {
			r.found = append(r.found, r.container(c))
		}
	}
}

func (r *manifestReader) container(c *migrate.Tree) instance {
	in := instance{line: c.Line}
	var words []word
	for _, key := range []string{"command", "args"} {
		for _, w := range c.At(key).Items {
			words = append(words, word{w.Text(), w.Line})
		}
	}
	in.settings = readFlags(words, r.Notes)
	for _, from := range c.At("envFrom").Items {
		r.ToDo(from.Line, "envFrom", "its variables are not in this file: take them from `kubectl exec … env` of a running kube-vip and migrate that")
	}
	for _, v := range c.At("env").Items {
		if r.total++; r.total > maxSettings {
			break
		}
		s := setting{name: v.At("name").Text(), value: v.At("value").Text(), line: v.Line}
		if from := v.At("valueFrom"); !from.Empty() {
			s.from = "look where valueFrom points"
			if field := from.At("fieldRef", "fieldPath").Text(); field != "" {
				s.from = "it is the pod's " + field
			}
		}
		in.settings = append(in.settings, s)
	}
	return in
}
