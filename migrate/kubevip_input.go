package migrate

import (
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
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

// readKubeVIP finds every kube-vip in a manifest or a listing of its environment.
func readKubeVIP(data []byte, notes *noteList) ([]instance, error) {
	s, err := text(data)
	if err != nil {
		return nil, err
	}
	if isListing(s) {
		return []instance{readListing(s)}, nil
	}
	file, err := parseYAML(s)
	if err != nil {
		return nil, err
	}
	r := manifestReader{noteList: notes}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		r.anchors = anchorsOf(doc.Body)
		r.object(doc.Body)
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
	anchors
	found []instance
	total int // settings
	*noteList
}

// object reads a Pod, whatever has a template for one, or a List of them.
func (r *manifestReader) object(n ast.Node) {
	r.workload(n)
	for _, item := range r.items(r.at(n, "items")) {
		r.workload(item)
	}
}

func (r *manifestReader) workload(n ast.Node) {
	spec := r.at(n, "spec")
	if template := r.at(spec, "template"); template != nil {
		spec = r.at(template, "spec")
	}
	for _, c := range r.items(r.at(spec, "containers")) {
		if len(r.found) < maxContainers && r.isKubeVIP(c) {
			r.found = append(r.found, r.container(c))
		}
	}
}

// isKubeVIP goes by the container's name and image.
func (r *manifestReader) isKubeVIP(c ast.Node) bool {
	return strings.Contains(r.text(r.at(c, "name")), "kube-vip") ||
		strings.Contains(r.text(r.at(c, "image")), "kube-vip")
}

func (r *manifestReader) container(c ast.Node) instance {
	in := instance{line: line(c)}
	var words []word
	for _, key := range []string{"command", "args"} {
		for _, n := range r.items(r.at(c, key)) {
			words = append(words, word{r.text(n), line(n)})
		}
	}
	in.settings = readFlags(words, r.noteList)
	for _, n := range r.items(r.at(c, "envFrom")) {
		r.todo(line(n), "envFrom", "its variables are not in this file: take them from `kubectl exec … env` of a running kube-vip and migrate that")
	}
	for _, n := range r.items(r.at(c, "env")) {
		if r.total++; r.total > maxSettings {
			break
		}
		s := setting{name: r.text(r.at(n, "name")), value: r.text(r.at(n, "value")), line: line(n)}
		if from := r.at(n, "valueFrom"); from != nil {
			s.from = "look where valueFrom points"
			if field := r.text(r.at(r.at(from, "fieldRef"), "fieldPath")); field != "" {
				s.from = "it is the pod's " + field
			}
		}
		in.settings = append(in.settings, s)
	}
	return in
}
