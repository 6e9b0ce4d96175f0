package migrate

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on what is given to the YAML parser, whose recursion and time a
// hostile file could exhaust, and on what aliases can multiply.
const (
	maxTokens     = 100_000
	maxNesting    = 64
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
	r := manifestReader{anchors: map[string]ast.Node{}, noteList: notes}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		clear(r.anchors)
		ast.Walk(r, doc.Body)
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

// manifestReader walks the few paths of a manifest on which kube-vip's settings are.
type manifestReader struct {
	anchors map[string]ast.Node
	found   []instance
	total   int // settings
	*noteList
}

// Visit collects the anchors of a document.
func (r manifestReader) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		r.anchors[a.Name.GetToken().Value] = a.Value
	}
	return r
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

// at is the value of a key of mapping n; nil if there is none. Of a key given twice it is the last.
func (r *manifestReader) at(n ast.Node, key string) ast.Node {
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

func (r *manifestReader) items(n ast.Node) []ast.Node {
	s, ok := r.resolve(n).(*ast.SequenceNode)
	if !ok {
		return nil
	}
	return s.Values
}

// resolve follows anchors, aliases and tags to the node that holds the value.
func (r *manifestReader) resolve(n ast.Node) ast.Node {
	for range maxNesting {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.TagNode:
			n = node.Value
		case *ast.AliasNode:
			n = r.anchors[node.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

// text is scalar n as it is written; nothing if it is none.
func (r *manifestReader) text(n ast.Node) string {
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
