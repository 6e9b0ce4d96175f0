package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/yaml"
)

// maxStatements limits a file: comparing all pairs must stay fast.
const maxStatements = 10_000

// Statement is a keyword with its arguments and an optional block.
type Statement struct {
	Line, End int // first and last line
	Words     []string
	Block     []*Statement
	HasBlock  bool
}

// Keyword returns the first word.
func (s *Statement) Keyword() string { return s.Words[0] }

// Args returns the words after the keyword.
func (s *Statement) Args() []string { return s.Words[min(1, len(s.Words)):] }

// Arg returns argument i, empty if there is none.
func (s *Statement) Arg(i int) string {
	if args := s.Args(); i < len(args) {
		return args[i]
	}
	return ""
}

// All returns the statements in the block of s with one of the keywords.
func (s *Statement) All(keywords ...string) []*Statement {
	var found []*Statement
	for _, b := range s.Block {
		if slices.Contains(keywords, b.Keyword()) {
			found = append(found, b)
		}
	}
	return found
}

// Last returns the last statement in the block with this keyword; an empty one if there is none.
func (s *Statement) Last(keyword string) *Statement {
	found := s.All(keyword)
	if len(found) == 0 {
		return &Statement{}
	}
	return found[len(found)-1]
}

// Setting returns the first argument of the last statement with this keyword, or else usual.
func (s *Statement) Setting(keyword, usual string) Setting {
	last := s.Last(keyword)
	return Setting{Line: last.Line, Name: keyword, Value: cmp.Or(last.Arg(0), usual)}
}

// LeftOut notes the statements that are not carried over, a block once. Names of rows are patterns of [path.Match].
func (d *Draft) LeftOut(table []Row, in string, statements []*Statement) {
	for _, s := range statements {
		row, known := Find(table, in, func(pattern string) bool {
			fits, err := path.Match(pattern, s.Keyword())
			return fits && err == nil
		})
		subject := s.Keyword()
		if s.HasBlock && s.End > s.Line {
			subject += fmt.Sprintf(" (to line %d)", s.End)
		}
		switch {
		case subject == "{": // noted by the parser
		case !known:
			d.ToDo(s.Line, subject, "is unknown: not carried over")
		case row.Becomes == "" && !slices.Contains(row.Idle, s.Arg(0)):
			d.Add(s.Line, row.ToDo, subject, "%s", row.Text)
		}
	}
}

// Parser reads statements with blocks in braces, line by line.
type Parser struct {
	*Notes
	// Comments are the characters that begin a comment; Marks are words of their own, as braces are.
	Comments, Marks string
	// End is the mark that ends a statement; empty means that it ends with its line.
	End string
	// Expand, if set, returns the text to read in place of a line.
	Expand func(line string, number int) string

	open  []*Statement // the file and the open blocks, the innermost last
	s     *Statement   // being read
	count int
}

// Read reads a text and returns it as the block of a statement.
func (p *Parser) Read(text string) (*Statement, error) {
	file, err := p.read(text)
	return file, p.wrap(err)
}

func (p *Parser) read(text string) (*Statement, error) {
	p.open = []*Statement{{}}
	number, budget := 0, 4*yaml.MaxSize // budget limits the expanded text
	for line := range strings.Lines(text) {
		number++
		if p.Expand != nil {
			line = p.Expand(line, number)
		}
		if budget -= len(line); budget < 0 {
			return nil, errors.New("its definitions make the file too large")
		}
		if err := p.line(line, number); err != nil {
			return nil, err
		}
	}
	for _, s := range p.open[1:] {
		p.ToDo(s.Line, s.Keyword(), "the block is not closed: is the file complete?")
		s.End = number
	}
	return p.open[0], nil
}

// line adds the statements of one line.
func (p *Parser) line(line string, number int) error {
	words, closed := split(line, p.Comments, "{}"+p.Marks)
	if !closed {
		p.Note(number, "", "a quote is not closed: it ends with the line")
	}
	if p.End == "" {
		p.s = nil
	}
	for _, w := range words {
		switch {
		case w.text == "{" && !w.quoted:
			if p.s == nil && p.End == "" {
				if before := p.open[len(p.open)-1].Block; len(before) > 0 {
					p.s = before[len(before)-1] // the brace may be on a line of its own
				}
			}
			if p.s == nil || p.s.HasBlock {
				p.ToDo(number, "{", "begins a block without a name: its contents are not read")
				p.add(number, "{")
			}
			p.s.HasBlock = true
			p.open = append(p.open, p.s)
			if len(p.open) > 1+yaml.MaxNesting {
				return fmt.Errorf("line %d is nested too deeply", number)
			}
			p.s = nil
		case w.text == "}" && !w.quoted:
			p.s = nil
			if len(p.open) == 1 {
				p.ToDo(number, "}", "closes no block: is the file complete?")
				continue
			}
			p.open[len(p.open)-1].End = number
			p.open = p.open[:len(p.open)-1]
		case p.End != "" && w.text == p.End && !w.quoted:
			p.s = nil
		case p.s == nil:
			p.add(number, w.text)
		default:
			p.s.Words = append(p.s.Words, w.text)
		}
	}
	if p.count > maxStatements {
		return fmt.Errorf("the file has more than %d statements", maxStatements)
	}
	return nil
}

func (p *Parser) add(number int, word string) {
	p.count++
	p.s = &Statement{Line: number, End: number, Words: []string{word}}
	in := p.open[len(p.open)-1]
	in.Block = append(in.Block, p.s)
}

// quotable is a word; quoted reports that a part of it was quoted.
type quotable struct {
	text   string
	quoted bool
}

// split splits a line at white space outside of quotes, as a shell does, up to a comment. Marks are words
// of their own, except the braces of ${}. closed is false if a quote is open at the end.
func split(line, comments, marks string) (words []quotable, closed bool) {
	var (
		word  strings.Builder
		begun bool // there is a word, perhaps empty and quoted
		mark  bool
		quote byte
		depth int // of ${
	)
	flush := func() {
		if begun {
			words = append(words, quotable{word.String(), mark})
		}
		word.Reset()
		begun, mark = false, false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			begun = true
			word.WriteByte(line[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, begun, mark = c, true, true
		case strings.IndexByte(comments, c) >= 0:
			flush()
			return words, true
		case strings.IndexByte(" \t\r\n\v\f", c) >= 0:
			flush()
		case c == '{' && (depth > 0 || i > 0 && line[i-1] == '$'):
			depth++
			word.WriteByte(c)
		case c == '}' && depth > 0:
			depth--
			word.WriteByte(c)
		case strings.IndexByte(marks, c) >= 0:
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

// ASN parses the number of an autonomous system for the field at path. An invalid one is 0 and left to be filled in.
func (d *Draft) ASN(path yaml.Path, s Setting) uint32 {
	n, err := v1alpha1.ParseASN(s.Value)
	if err != nil {
		d.Leave(path, s.Line, "an autonomous system: "+Quoted(s.Value)+" is not one", "asn: ASN")
		return 0
	}
	d.Origins[path] = s.Line
	return uint32(n)
}

// LeavePassword sets the password file of the peer at path and asks the user to write it.
func (d *Draft) LeavePassword(p *v1alpha1.Peer, path yaml.Path, line int, subject string) {
	p.PasswordFile = "/etc/herald/bgp-" + DNSName(p.Name(), "peer") + ".password"
	d.Comment(path+".passwordFile", "Write the peer's password into it, mode 0600.")
	d.ToDo(line, subject, "write the password of %s into %s, mode 0600: it is not printed here", p.Name(), p.PasswordFile)
}
