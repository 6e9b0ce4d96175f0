package kubevip

import (
	"regexp"
	"slices"
	"strings"

	"github.com/herald-vip/herald/migrate"
)

// setting is a setting of kube-vip, from a variable or a flag.
type setting struct {
	name, value string
	line        int
	from        string // source of a value that is not in the file
}

// instance is one kube-vip: a container of a manifest, or a listing of variables.
type instance struct {
	line     int
	settings []setting // flags, then variables, which override them
	listing  bool      // may have variables of other programs
}

// readInstances finds every kube-vip in a manifest or a listing of its environment.
func readInstances(file migrate.File, table []migrate.Row, notes *migrate.Notes) ([]instance, error) {
	text, above, err := notes.Text(file)
	if err != nil {
		return nil, err
	}
	if settings := readListing(text); settings != nil {
		return []instance{{line: 1, settings: settings, listing: true}}, nil
	}
	documents, err := notes.Trees(text, above)
	var found []instance
	for _, d := range documents {
		for _, c := range containersOf(d) {
			if strings.Contains(c.At("name").Scalar, "kube-vip") || strings.Contains(c.At("image").Scalar, "kube-vip") {
				found = append(found, instance{line: c.Line, settings: readContainer(c, table, notes)})
			}
		}
	}
	return found, err
}

// variable is a line of `env` or of an EnvironmentFile.
var variable = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)

// readListing reads variables; none unless the first line, apart from comments, sets one.
func readListing(s string) []setting {
	var settings []setting
	number := 0
	for line := range strings.Lines(s) {
		number++
		line = strings.TrimSpace(line)
		m := variable.FindStringSubmatch(line)
		switch {
		case m != nil:
			value := strings.TrimSpace(m[2])
			if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
				value = value[1 : n-1]
			}
			settings = append(settings, setting{name: m[1], value: value, line: number})
		case settings == nil && line != "" && line[0] != '#':
			return nil
		}
	}
	return settings
}

// containersOf returns the containers of a Pod, or of an object with a Pod template.
func containersOf(t *migrate.Tree) []*migrate.Tree {
	spec := t.At("spec")
	if template := spec.At("template"); !template.Empty() {
		spec = template.At("spec")
	}
	return spec.At("containers").Items
}

func readContainer(c *migrate.Tree, table []migrate.Row, notes *migrate.Notes) []setting {
	settings := readFlags(slices.Concat(c.At("command").Items, c.At("args").Items), table, notes)
	for _, from := range c.At("envFrom").Items {
		notes.ToDo(from.Line, "envFrom", "its variables are not in this file: take them from `kubectl exec … env` of a running kube-vip and migrate that")
	}
	for _, v := range c.At("env").Items {
		s := setting{name: v.At("name").Text(), value: v.At("value").Text(), line: v.Line}
		if from := v.At("valueFrom"); !from.Empty() {
			s.from = "look where valueFrom points"
			if field := from.At("fieldRef", "fieldPath").Text(); field != "" {
				s.from = "it is the pod's " + field
			}
		}
		settings = append(settings, s)
	}
	return settings
}

// readFlags converts kube-vip's flags to settings with the names of their variables.
func readFlags(words []*migrate.Tree, table []migrate.Row, notes *migrate.Notes) []setting {
	var settings []setting
	for i := 0; i < len(words); i++ {
		line := words[i].Line
		flag, value, given := strings.Cut(words[i].Text(), "=")
		if !strings.HasPrefix(flag, "-") {
			continue // the program, or its subcommand
		}
		var variable string // the one before the flag in its row
		row, known := migrate.Find(table, "", func(name string) bool {
			if name[0] != '-' {
				variable = name
			}
			return strings.EqualFold(name, flag)
		})
		switch {
		case given:
		case row.Boolean:
			value = "true"
		case i+1 < len(words) && !strings.HasPrefix(words[i+1].Text(), "--"):
			i++
			value = words[i].Text()
		}
		if !known {
			notes.Note(line, flag, "is an unknown flag: not carried over")
			continue
		}
		settings = append(settings, setting{name: variable, value: value, line: line})
	}
	return settings
}
