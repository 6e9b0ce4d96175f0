package keepalived

import (
	"slices"
	"strings"

	"github.com/herald-vip/herald/migrate"
)

// command returns the command of s: one quoted word, or all its arguments.
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

// parseLines parses the lines that apply to configID and returns them as the block of a statement. As in
// keepalived, a statement ends with its line, unless it has a block.
func parseLines(file migrate.File, configID string, notes *migrate.Notes) (*migrate.Statement, error) {
	text, _, err := notes.Text(file)
	if err != nil {
		return nil, err
	}
	e := expander{Notes: notes, configID: configID, definitions: map[string]string{}}
	p := migrate.Parser{Notes: notes, Comments: "#!", Expand: e.expand}
	statements, err := p.Read(text)
	if e.asked > 0 && !e.matched {
		notes.ToDo(e.asked, "@", "no line with a condition is for %q: pass --config-id with the value of keepalived's option, or else the host's name there", migrate.Shown(configID))
	}
	return statements, err
}
