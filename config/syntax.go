package config

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on what is given to the YAML parser. It recurses once per level of
// nesting, and its time grows with the square of some tokens, so that without
// them a small file could exhaust the stack or take minutes. A file with
// thousands of VIPs is well within.
const (
	maxFileSize = 1 << 20
	maxTokens   = 100_000
	maxNesting  = 64
)

// parseYAML returns the body of the only document in data, or nil once it has reported why there is none.
func parseYAML(r *report, data []byte) (root ast.Node) {
	start := position{1, 1}
	defer func() {
		// The parser has had panics on malformed input; one must not end a running speaker.
		if recover() != nil {
			root = nil
			r.errorAt(start, "", "not valid YAML")
		}
	}()
	switch {
	case len(data) > maxFileSize:
		r.errorAt(start, "", "the file is larger than 1 MiB")
		return nil
	case !utf8.Valid(data):
		r.errorAt(start, "", "the file is not UTF-8 text")
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) // the parser would count some line ends twice

	tokens := lexer.Tokenize(string(data))
	if !checkTokens(r, tokens) {
		return nil
	}
	// Duplicate keys are reported by the decoder, all at once.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if errors.As(err, &syntax) { // its Error would quote half the file
			r.errorAt(tokenPosition(syntax.GetToken()), "", "not valid YAML: %s", hint(syntax.GetMessage()))
		} else {
			r.errorAt(start, "", "not valid YAML: %v", err)
		}
		return nil
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		r.errorAt(start, "", "the file is empty")
		return nil
	}
	return file.Docs[0].Body
}

// checkTokens refuses the parts of YAML that a configuration has no use for, and what would overburden the parser.
func checkTokens(r *report, tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		r.errorAt(position{1, 1}, "", "the file has more than %d YAML tokens", maxTokens)
		return false
	}
	var (
		line    int  // of the previous token
		flow    int  // open brackets and braces
		entries int  // "- " and "? " on this line: each opens a level
		started bool // something precedes this token
		ended   bool // the document is over
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
		case ended || started && tk.Type == token.DocumentHeaderType:
			wrong = "only one YAML document is allowed: remove everything from here on"
		case tk.Type == token.TagType:
			wrong = "YAML tags are not supported: remove " + quote(tk.Value)
		case tk.Type == token.DirectiveType:
			wrong = "YAML directives are not supported: remove this line"
		case flow+entries > maxNesting:
			wrong = "nested too deeply"
		}
		if wrong != "" {
			r.errorAt(tokenPosition(tk), "", "%s", wrong)
			return false
		}
		started = true
		ended = tk.Type == token.DocumentEndType
	}
	return true
}

// hint puts the parser's words for the most common slips into a user's.
func hint(message string) string {
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

func tokenPosition(tk *token.Token) position {
	if tk == nil || tk.Position == nil {
		return position{1, 1}
	}
	return position{tk.Position.Line, tk.Position.Column}
}

// nodePosition is where n begins; the token of a block mapping is its first colon.
func nodePosition(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return nodePosition(m.Values[0].Key)
	}
	return tokenPosition(n.GetToken())
}
