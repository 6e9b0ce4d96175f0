package migrate

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/herald-vip/herald/config/yaml"
)

// Tree is a value of a YAML document, without anchors, aliases and tags. One
// that is empty, or null, is nothing of all.
type Tree struct {
	Line   int
	Scalar string
	Items  []*Tree // of a list
	Fields []Field // of a mapping
}

// Field is one of a mapping.
type Field struct {
	Key     string
	Spelled string // the key as the file has it
	Line    int
	Value   *Tree
}

// errTooLarge is for files that are small only as long as nobody follows their aliases.
var errTooLarge = errors.New("the file has aliases of aliases, or more than 100000 values: divide it")

// Trees are the documents of a text, as far as they say anything.
func Trees(text string) ([]*Tree, error) {
	bodies, err := yaml.Parse(text)
	if err != nil {
		return nil, err
	}
	var out []*Tree
	left := 100_000
	for _, body := range bodies {
		t, err := grow(yaml.AnchorsOf(body), body, yaml.MaxNesting, &left)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// grow follows n down, to a depth, for as many values as are left.
func grow(a yaml.Anchors, n ast.Node, depth int, left *int) (*Tree, error) {
	if depth == 0 || *left == 0 {
		return nil, errTooLarge
	}
	*left--
	n, err := a.Resolve(n)
	if err != nil {
		return &Tree{}, nil // an alias of nothing
	}
	t := &Tree{Line: yaml.PositionOf(n).Line, Scalar: text(n)}
	switch n := n.(type) {
	case *ast.SequenceNode:
		for _, item := range n.Values {
			child, err := grow(a, item, depth-1, left)
			if err != nil {
				return nil, err
			}
			t.Items = append(t.Items, child)
		}
	case *ast.MappingNode:
		for _, entry := range n.Values {
			child, err := grow(a, entry.Value, depth-1, left)
			if err != nil {
				return nil, err
			}
			node, _ := a.Resolve(entry.Key)
			key := text(node)
			if entry.Key.IsMergeKey() {
				key = "<<"
			}
			t.Fields = append(t.Fields, Field{Key: key, Spelled: key, Line: yaml.PositionOf(entry.Key).Line, Value: child})
		}
	}
	return t, nil
}

// text is scalar n as it is written; nothing if it is none.
func text(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value
	}
	return ""
}

// At is the value of a field, however deep; an empty tree if there is none. Of a
// key given twice it is the last.
func (t *Tree) At(path ...string) *Tree {
	for _, key := range path {
		var value *Tree
		for _, f := range t.Fields {
			if f.Key == key {
				value = f.Value
			}
		}
		if value == nil {
			return &Tree{}
		}
		t = value
	}
	return t
}

// Text is the scalar without space around it.
func (t *Tree) Text() string { return strings.TrimSpace(t.Scalar) }

// Empty reports whether t says nothing.
func (t *Tree) Empty() bool { return t.Scalar == "" && len(t.Items) == 0 && len(t.Fields) == 0 }

// Strings are the fields that are scalars, by name.
func (t *Tree) Strings() map[string]string {
	out := map[string]string{}
	for _, f := range t.Fields {
		out[f.Key] = f.Value.Text()
	}
	return out
}

// MoveBy adds to all lines of t.
func (t *Tree) MoveBy(lines int) {
	t.Line += lines
	for _, item := range t.Items {
		item.MoveBy(lines)
	}
	for i := range t.Fields {
		t.Fields[i].Line += lines
		t.Fields[i].Value.MoveBy(lines)
	}
}
