package migrate

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// tree is a value of a YAML document, without anchors, aliases and tags. One
// that is empty, or null, is nothing of all.
type tree struct {
	line   int
	scalar string
	items  []*tree // of a list
	fields []field // of a mapping
}

// field is one of a mapping.
type field struct {
	key     string
	spelled string // the key as the file has it
	line    int
	value   *tree
}

// errTooLarge is for files that are small only as long as nobody follows their aliases.
var errTooLarge = errors.New("the file has aliases of aliases, or more than 100000 values: divide it")

// trees are the documents of a file, as far as they say anything.
func trees(s string) ([]*tree, error) {
	file, err := parseYAML(s)
	if err != nil {
		return nil, err
	}
	var out []*tree
	left := maxTokens
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		t, err := grow(anchorsOf(doc.Body), doc.Body, maxNesting, &left)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// grow follows n down, to a depth, for as many values as are left.
func grow(r anchors, n ast.Node, depth int, left *int) (*tree, error) {
	if depth == 0 || *left == 0 {
		return nil, errTooLarge
	}
	*left--
	n = r.resolve(n)
	t := &tree{line: line(n), scalar: r.text(n)}
	switch n := n.(type) {
	case *ast.LiteralNode:
		t.scalar = n.Value.Value
	case *ast.SequenceNode:
		for _, item := range n.Values {
			child, err := grow(r, item, depth-1, left)
			if err != nil {
				return nil, err
			}
			t.items = append(t.items, child)
		}
	case *ast.MappingNode:
		for _, entry := range n.Values {
			child, err := grow(r, entry.Value, depth-1, left)
			if err != nil {
				return nil, err
			}
			key := r.text(entry.Key)
			if entry.Key.IsMergeKey() {
				key = "<<"
			}
			t.fields = append(t.fields, field{key: key, spelled: key, line: line(entry.Key), value: child})
		}
	}
	return t, nil
}

// at is the value of a field, however deep; an empty tree if there is none. Of a
// key given twice it is the last.
func (t *tree) at(path ...string) *tree {
	for _, key := range path {
		var value *tree
		for _, f := range t.fields {
			if f.key == key {
				value = f.value
			}
		}
		if value == nil {
			return &tree{}
		}
		t = value
	}
	return t
}

// empty reports whether t says nothing.
func (t *tree) empty() bool { return t.scalar == "" && len(t.items) == 0 && len(t.fields) == 0 }

// strings are the fields that are scalars, by name.
func (t *tree) strings() map[string]string {
	out := map[string]string{}
	for _, f := range t.fields {
		out[f.key] = strings.TrimSpace(f.value.scalar)
	}
	return out
}
