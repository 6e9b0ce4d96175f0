package keepalived

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/herald-vip/herald/config/migrate"
	"github.com/herald-vip/herald/config/yaml"
)

// maxStatements is more than any node's file has, and few enough to compare each with each.
const maxStatements = 10_000

// statement is a keyword of keepalived.conf with its words, and perhaps a block.
type statement struct {
	line, end int // of its last line
	words     []string
	block     []*statement
	hasBlock  bool
}

// keyword is the first word.
func (s *statement) keyword() string { return s.words[0] }

// args are the words after the keyword.
func (s *statement) args() []string { return s.words[min(1, len(s.words)):] }

// arg is the i-th of them, empty if there is none.
func (s *statement) arg(i int) string {
	if args := s.args(); i < len(args) {
		return args[i]
	}
	return ""
}

// all are the statements of s's block that have one of the keywords.
func (s *statement) all(keywords ...string) []*statement {
	var found []*statement
	for _, b := range s.block {
		if slices.Contains(keywords, b.keyword()) {
			found = append(found, b)
		}
	}
	return found
}

// last is the last of them, an empty one if there is none.
func (s *statement) last(keyword string) *statement {
	found := s.all(keyword)
	if len(found) == 0 {
		return &statement{}
	}
	return found[len(found)-1]
}

// setting is what the last of them says, or is usual.
func (s *statement) setting(keyword, usual string) migrate.Setting {
	last := s.last(keyword)
	return migrate.Setting{Line: last.line, Name: keyword, Value: cmp.Or(last.arg(0), usual)}
}

// command is what s runs: one word that was quoted, or all of them.
func (s *statement) command() string {
	if strings.Contains(s.arg(0), " ") {
		return s.arg(0)
	}
	args := slices.Clone(s.args())
	for i, w := range args {
		if strings.Contains(w, " ") {
			args[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(args, " ")
}

// lineParser reads keepalived.conf. Like keepalived itself it goes line by line: a
// statement ends with its line, and only braces reach beyond.
type lineParser struct {
	expander
	open   []*statement // the file, and the blocks within, the innermost last
	budget int          // characters that definitions may still bring about
	count  int          // statements
}

// parseLines parses the lines that apply to the configuration identifier; the file is the block of what it returns.
func parseLines(data []byte, configID string, notes *migrate.Notes) (*statement, error) {
	s, err := yaml.Text(data)
	if err != nil {
		return nil, err
	}
	p := lineParser{
		open:     []*statement{{}},
		budget:   4 * yaml.MaxSize,
		expander: expander{Notes: notes, configID: configID, definitions: map[string]string{}},
	}
	number := 0
	for line := range strings.Lines(s) {
		number++
		line, ok := p.expand(strings.TrimRight(line, "\n"), number)
		if !ok {
			continue
		}
		if p.budget -= len(line); p.budget < 0 {
			return nil, errors.New("its definitions make the file too large")
		}
		if err := p.line(line, number); err != nil {
			return nil, err
		}
		if p.count > maxStatements {
			return nil, fmt.Errorf("the file has more than %d statements", maxStatements)
		}
	}
	for _, s := range p.open[1:] {
		p.ToDo(s.line, s.keyword(), "the block is not closed: is the file complete?")
		s.end = number
	}
	if p.asked > 0 && !p.matched {
		p.ToDo(p.asked, "@", "no line that is for certain nodes is for %q: give --config-id as keepalived is started with, or is the host's name there", migrate.Shown(configID))
	}
	return p.open[0], nil
}

// line adds the statements of one line.
func (p *lineParser) line(line string, number int) error {
	words, closed := splitWords(line)
	if !closed {
		p.Note(number, "", "a quote is not closed: it is taken to end with the line")
	}
	var s *statement
	for _, w := range words {
		switch {
		case w.text == "{" && !w.quoted:
			if s == nil {
				if before := p.open[len(p.open)-1].block; len(before) > 0 {
					s = before[len(before)-1] // the brace may be on a line of its own
				}
			}
			if s == nil || s.hasBlock {
				p.ToDo(number, "{", "begins a block without a name: its contents are not read")
				s = p.add(number, []string{"{"})
			}
			s.hasBlock = true
			p.open = append(p.open, s)
			if len(p.open) > 1+yaml.MaxNesting {
				return fmt.Errorf("line %d is nested too deeply", number)
			}
			s = nil
		case w.text == "}" && !w.quoted:
			s = nil
			if len(p.open) == 1 {
				p.ToDo(number, "}", "closes no block: is the file complete?")
				continue
			}
			p.open[len(p.open)-1].end = number
			p.open = p.open[:len(p.open)-1]
		case s == nil:
			s = p.add(number, []string{w.text})
		default:
			s.words = append(s.words, w.text)
		}
	}
	return nil
}

func (p *lineParser) add(number int, words []string) *statement {
	p.count++
	s := &statement{line: number, end: number, words: words}
	in := p.open[len(p.open)-1]
	in.block = append(in.block, s)
	return s
}

// quotable is a word and whether a part of it was quoted.
type quotable struct {
	text   string
	quoted bool
}

// splitWords splits a line at white space and braces, outside of quotes and up
// to a comment; closed is false if a quote is open at its end.
func splitWords(line string) (words []quotable, closed bool) {
	var (
		word  strings.Builder
		begun bool // word is one, perhaps an empty one in quotes
		marks bool
		quote byte
		depth int // of ${
	)
	flush := func() {
		if begun {
			words = append(words, quotable{word.String(), marks})
		}
		word.Reset()
		begun, marks = false, false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != 0 && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, begun, marks = c, true, true
		case c == '#' || c == '!':
			flush()
			return words, true
		case c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f':
			flush()
		case c == '{' && i > 0 && line[i-1] == '$', c == '{' && depth > 0:
			depth++
			word.WriteByte(c)
		case c == '}' && depth > 0:
			depth--
			word.WriteByte(c)
		case c == '{' || c == '}':
			flush()
			words = append(words, quotable{string(c), false})
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	flush()
	return words, quote == 0
}
