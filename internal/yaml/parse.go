// Package yaml reads and writes YAML. Its parser is strict, and no input can exhaust or crash it. Its decoder reports
// all mistakes at once, each with line, column and field. Its writer produces files for people.
package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on the input of the YAML parser. It recurses once per level of nesting, and its time grows with the square of
// some tokens, so without bounds a small file could exhaust the stack or take minutes. A file with 5000 VIPs is well
// within them.
const (
	MaxSize    = 1 << 20
	MaxNesting = 64
	maxTokens  = 150_000
)

// Position is a place in a file, counted from 1; the zero value means the whole file.
type Position struct{ Line, Column int }

// SyntaxError is the reason why a file cannot be parsed.
type SyntaxError struct {
	Position
	Message string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Message)
}

// Text returns data as text, without a byte order mark and with plain line ends.
func Text(data []byte) (string, error) {
	switch {
	case len(data) > MaxSize:
		return "", &SyntaxError{Message: "the file is larger than 1 MiB"}
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return "", &SyntaxError{Message: "the file is not UTF-8 text"}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	return strings.ReplaceAll(string(data), "\r\n", "\n"), nil // the parser counts some line ends twice
}

// Parse returns the bodies of the documents in text, without empty documents.
func Parse(text string) ([]ast.Node, error) { return parse(text, false) }

// parse does the work of Parse. If strict, it refuses a second document, tags and directives.
func parse(text string, strict bool) (bodies []ast.Node, err error) {
	defer func() {
		// The parser has panicked on malformed input before, which must not end a running speaker.
		if recover() != nil {
			bodies, err = nil, &SyntaxError{Message: "not valid YAML"}
		}
	}()
	tokens := lexer.Tokenize(text)
	if err := checkTokens(tokens, strict); err != nil {
		return nil, err
	}
	// Duplicate keys are reported by the decoder, all at once.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if errors.As(err, &syntax) { // its Error method would quote half the file
			return nil, &SyntaxError{tokenPosition(syntax.GetToken()), "not valid YAML: " + explain(syntax.GetMessage())}
		}
		return nil, &SyntaxError{Message: "not valid YAML: " + err.Error()}
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	return bodies, nil
}

// checkTokens refuses input that would take the parser too long. If strict, it also refuses
// a second document, tags and directives.
func checkTokens(tokens token.Tokens, strict bool) error {
	if len(tokens) > maxTokens {
		return &SyntaxError{tokenPosition(tokens[maxTokens]),
			fmt.Sprintf("the file is too long: the limit of %d YAML tokens (names, values, signs), enough for about 7000 VIPs, is here", maxTokens)}
	}
	var (
		line    int  // of the previous token
		flow    int  // open brackets and braces
		entries int  // "- " and "? " on this line: each opens a level
		started bool // something precedes this token
		ended   bool // the document has ended
	)
	for _, tk := range tokens {
		if tk.Type == token.CommentType {
			continue
		}
		if tk.Position.Line != line {
			line, entries = tk.Position.Line, 0
		}
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow = max(flow-1, 0)
		case token.SequenceEntryType, token.MappingKeyType:
			entries++
		}
		var wrong string
		switch {
		case flow+entries > MaxNesting:
			wrong = "nested too deeply"
		case !strict:
		case ended || started && tk.Type == token.DocumentHeaderType:
			wrong = "only one YAML document is allowed: remove everything from here on"
		case tk.Type == token.TagType:
			wrong = "YAML tags are not supported: remove " + Quote(tk.Value)
		case tk.Type == token.DirectiveType:
			wrong = "YAML directives are not supported: remove this line"
		}
		if wrong != "" {
			return &SyntaxError{tokenPosition(tk), wrong}
		}
		started = true
		ended = tk.Type == token.DocumentEndType
	}
	return nil
}

// explain translates the parser's messages for the most common mistakes into advice for users.
func explain(message string) string {
	message, _, _ = strings.Cut(message, ". ")
	switch message {
	case "mapping value is not allowed in this context":
		return `unexpected ":", check the indentation and quote a value that contains one`
	case "found character '\t' that cannot start any token":
		return "found a tab, indent with spaces"
	case "value is not allowed in this context", "non-map value is specified", "unexpected key name":
		return "unexpected value, check the indentation and the quotes"
	}
	return message
}

func tokenPosition(tk *token.Token) Position {
	if tk == nil || tk.Position == nil {
		return Position{1, 1}
	}
	return Position{tk.Position.Line, tk.Position.Column}
}

// PositionOf returns where n begins. The token of a block mapping is its first colon, so its first key counts.
func PositionOf(n ast.Node) Position {
	if n == nil {
		return Position{}
	}
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return PositionOf(m.Values[0].Key)
	}
	return tokenPosition(n.GetToken())
}

// Anchors are the anchors of a document, by name.
type Anchors map[string]ast.Node

// AnchorsOf collects the anchors of a document; the last anchor with a name counts.
func AnchorsOf(root ast.Node) Anchors {
	a := Anchors{}
	ast.Walk(a, root)
	return a
}

// Visit collects an anchor.
func (a Anchors) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok && anchor.Name != nil {
		a[anchor.Name.GetToken().Value] = anchor.Value
	}
	return a
}

// Resolve follows anchors, aliases and tags to the node that holds the value.
func (a Anchors) Resolve(n ast.Node) (ast.Node, error) {
	for range MaxNesting {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.TagNode:
			n = node.Value
		case *ast.AliasNode:
			name := node.Value.GetToken().Value
			value, ok := a[name]
			if !ok {
				return nil, fmt.Errorf("no anchor %s is defined", Quote(name))
			}
			n = value
		default:
			return n, nil
		}
	}
	return nil, errors.New("the alias refers to itself")
}

// Path names a field from the root of the file: bgp.peers[0].address. The root is empty.
type Path string

// Field returns the path of a field of p.
func (p Path) Field(name string) Path {
	if p == "" {
		return Path(name)
	}
	return p + "." + Path(name)
}

// Item returns the path of an item of p.
func (p Path) Item(i int) Path {
	return p + Path("["+strconv.Itoa(i)+"]")
}

// Parent returns the path that contains p; the root contains itself.
func (p Path) Parent() Path {
	return p[:max(strings.LastIndexAny(string(p), ".["), 0)]
}

// Closest returns the candidate that is most similar to name; empty if all differ too much.
func Closest(name string, candidates []string) string {
	if len(name) > 64 || len(candidates) > 100 {
		return "" // takes too long
	}
	best, bestDistance := "", max(len(name)/3, 1)+1
	for _, c := range candidates {
		if strings.EqualFold(name, c) {
			return c
		}
		if d := distance(name, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	for _, c := range candidates {
		if best == "" && len(name) >= 4 && strings.HasPrefix(c, name) {
			best = c
		}
	}
	return best
}

// distance returns the Damerau-Levenshtein distance of a and b in bytes (optimal string alignment): insertions,
// deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	d := make([][]int, len(a)+1) // d[i][j] is the distance of a[:i] and b[:j]
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				same++
			}
			d[i][j] = min(same, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
