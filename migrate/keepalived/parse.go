package keepalived

import (
	"slices"
	"strings"

	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/migrate"
)

// command is what s runs: one word that was quoted, or all of them.
func command(s *migrate.Statement) string {
	if strings.Contains(s.Arg(0), " ") {
		return s.Arg(0)
	}
	args := slices.Clone(s.Args())
	for i, w := range args {
		if strings.Contains(w, " ") {
			args[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(args, " ")
}

// parseLines parses the lines that apply to the configuration identifier; the file is the block of what it returns. Like
// keepalived itself it goes line by line: a statement ends with its line, and only braces reach beyond.
func parseLines(data []byte, configID string, notes *migrate.Notes) (*migrate.Statement, error) {
	s, err := yaml.Text(data)
	if err != nil {
		return nil, err
	}
	e := expander{Notes: notes, configID: configID, definitions: map[string]string{}}
	p := migrate.Parser{Notes: notes, Comments: "#!", Expand: e.expand}
	file, err := p.Read(s)
	if e.asked > 0 && !e.matched {
		notes.ToDo(e.asked, "@", "no line that is for certain nodes is for %q: give --config-id as keepalived is started with, or is the host's name there", migrate.Shown(configID))
	}
	return file, err
}
