package migrate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on what is given to the YAML parser, whose recursion and time a
// hostile file could exhaust.
const (
	maxTokens  = 100_000
	maxNesting = 64
)

// parseYAML parses all documents of s within bounds.
func parseYAML(s string) (file *ast.File, err error) {
	defer func() {
		if recover() != nil { // the parser has had panics on malformed input
			file, err = nil, errors.New("the file is not valid YAML")
		}
	}()
	tokens := lexer.Tokenize(s)
	if len(tokens) > maxTokens {
		return nil, fmt.Errorf("the file has more than %d YAML tokens", maxTokens)
	}
	line, open, entries := 0, 0, 0
	for _, tk := range tokens {
		if tk.Position.Line != line {
			line, entries = tk.Position.Line, 0
		}
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open = max(open-1, 0)
		case token.SequenceEntryType, token.MappingKeyType:
			entries++
		}
		if open+entries > maxNesting {
			return nil, fmt.Errorf("line %d is nested too deeply", line)
		}
	}
	file, err = parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if errors.As(err, &syntax) && syntax.GetToken() != nil { // its Error would quote the file
			return nil, fmt.Errorf("line %d is not valid YAML: %s", syntax.GetToken().Position.Line, shown(syntax.GetMessage()))
		}
		return nil, errors.New("the file is not valid YAML")
	}
	return file, nil
}

// anchors are those of a document, by name.
type anchors map[string]ast.Node

func anchorsOf(document ast.Node) anchors {
	r := anchors{}
	ast.Walk(r, document)
	return r
}

// Visit collects anchors.
func (r anchors) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		r[a.Name.GetToken().Value] = a.Value
	}
	return r
}

// at is the value of a key of mapping n; nil if there is none. Of a key given twice it is the last.
func (r anchors) at(n ast.Node, key string) ast.Node {
	m, ok := r.resolve(n).(*ast.MappingNode)
	if !ok {
		return nil
	}
	var value ast.Node
	for _, entry := range m.Values {
		if r.text(entry.Key) == key {
			value = r.resolve(entry.Value)
		}
	}
	return value
}

func (r anchors) items(n ast.Node) []ast.Node {
	s, ok := r.resolve(n).(*ast.SequenceNode)
	if !ok {
		return nil
	}
	return s.Values
}

// resolve follows anchors, aliases and tags to the node that holds the value.
func (r anchors) resolve(n ast.Node) ast.Node {
	for range maxNesting {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.TagNode:
			n = node.Value
		case *ast.AliasNode:
			n = r[node.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

// text is scalar n as it is written; nothing if it is none.
func (r anchors) text(n ast.Node) string {
	switch n := r.resolve(n).(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value
	}
	return ""
}

// line is where n begins; the token of a block mapping is its first colon.
func line(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0
	}
	return n.GetToken().Position.Line
}
