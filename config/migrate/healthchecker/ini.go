package healthchecker

import (
	"strings"

	"github.com/herald-vip/herald/config/migrate"
)

// section is [NAME] and what is set below it.
type section struct {
	line     int
	name     string
	settings []migrate.Setting
}

// get is the last setting of a name, if there is one.
func (s *section) get(name string) (found migrate.Setting, ok bool) {
	for _, setting := range s.settings {
		if setting.Name == name {
			found, ok = setting, true
		}
	}
	return found, ok
}

// sections are those of some files in their order, each once.
type sections struct {
	list   []*section
	byName map[string]*section
}

// read adds what a text says, as Python's configparser reads it: a line that is indented continues the value above.
func (s *sections) read(text string, above int, notes *migrate.Notes) {
	var in *section
	begun := false // in has a value that may continue
	for line := range strings.Lines(text) {
		above++
		words := strings.TrimSpace(line)
		i := strings.IndexAny(words, "=:")
		switch {
		case words == "" || strings.HasPrefix(words, "#") || strings.HasPrefix(words, ";"):
		case begun && strings.TrimLeft(line, " \t") != line:
			in.settings[len(in.settings)-1].Value += " " + words
		case strings.HasPrefix(words, "["):
			name, _, closed := strings.Cut(words[1:], "]")
			if !closed {
				notes.ToDo(above, "", "a section's name is not closed: is the file complete?")
			}
			if in = s.byName[name]; in == nil {
				in = &section{line: above, name: name}
				s.byName[name] = in
				s.list = append(s.list, in)
			}
			begun = false
		case i <= 0 || in == nil:
			notes.ToDo(above, "", "is no setting of a section: not carried over")
		default:
			name := strings.ToLower(strings.TrimSpace(words[:i]))
			in.settings = append(in.settings, migrate.Setting{Line: above, Name: name, Value: strings.TrimSpace(words[i+1:])})
			begun = true
		}
	}
}
