package keepalived

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/herald-vip/herald/migrate"
)

const (
	maxExpansions = 100     // references in one line
	maxLine       = 1 << 14 // characters of a line after expansion
)

var (
	definition = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)=(.*)$`)
	reference  = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)
)

// expander preprocesses lines as keepalived does: definitions, their values, and conditions.
type expander struct {
	*migrate.Notes
	configID    string
	definitions map[string]string
	continued   bool // the previous line began or continued a definition of several lines
	asked       int  // the first line for certain nodes
	matched     bool // a line was for this node
}

// expand returns the line with the values of definitions; empty if it does not apply to this node.
func (e *expander) expand(line string, number int) string {
	line = strings.TrimSpace(line)
	if e.continued {
		e.continued = strings.HasSuffix(line, `\`)
		return ""
	}
	line, ok := e.condition(line, number)
	if !ok {
		return ""
	}
	if m := definition.FindStringSubmatch(line); m != nil {
		if strings.HasSuffix(m[2], `\`) {
			e.continued = true
			e.ToDo(number, "$"+m[1], "definitions of several lines are not expanded: write them out in place of their uses and migrate again")
		} else {
			e.definitions[m[1]] = m[2]
		}
		return ""
	}
	if line, ok = e.condition(e.substitute(line, number), number); !ok {
		return ""
	}
	if strings.HasPrefix(line, "~SEQ") || strings.HasPrefix(line, "~LST") {
		keyword, _, _ := strings.Cut(line, "(")
		e.ToDo(number, keyword, "lists are not expanded: write the lines out and migrate again")
		return ""
	}
	return line
}

// condition removes leading @identifiers; ok is false if the line is for other nodes.
func (e *expander) condition(line string, number int) (rest string, ok bool) {
	for strings.HasPrefix(line, "@") {
		word, rest := line[1:], ""
		if end := strings.IndexAny(word, " \t"); end >= 0 {
			word, rest = word[:end], word[end:]
		}
		id, negated := strings.CutPrefix(word, "^")
		if !negated {
			e.asked = cmp.Or(e.asked, number)
			e.matched = e.matched || id == e.configID
		}
		if (id == e.configID) == negated {
			e.Note(number, "@"+word, "is for other nodes than %q: left out (--config-id chooses)", migrate.Shown(e.configID))
			return "", false
		}
		line = strings.TrimSpace(rest)
	}
	return line, true
}

// substitute replaces references to definitions by their values, recursively.
func (e *expander) substitute(line string, number int) string {
	from := 0 // the text before it is done
	for range maxExpansions {
		m := reference.FindStringSubmatchIndex(line[from:])
		if m == nil {
			return line
		}
		name := line[from+max(m[2], m[4]) : from+max(m[3], m[5])]
		value, known := e.definitions[name]
		if !known {
			from += m[1]
			continue
		}
		from += m[0] // the value may have references
		line = line[:from] + value + line[from+m[1]-m[0]:]
		if len(line) > maxLine {
			break
		}
	}
	e.ToDo(number, "", "its definitions refer to themselves, or make the line too long: it is left out")
	return ""
}

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
