package migrate

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/herald-vip/herald/internal/yaml"
)

// Tree is a value of a YAML document, with anchors, aliases and tags resolved. An empty or null value is
// the zero Tree, except for its line.
type Tree struct {
	Line   int
	Scalar string
	Items  []*Tree // of a list
	Fields []Field // of a mapping
}

// Field is a field of a mapping.
type Field struct {
	Key   string
	Line  int
	Value *Tree
}

// Trees parses the documents of a text, with the items of a Kubernetes List as documents. above is the number of
// lines before it.
func (l *Notes) Trees(content string, above int) ([]*Tree, error) {
	bodies, err := yaml.Parse(content)
	if err != nil {
		return nil, l.wrap(err)
	}
	var out []*Tree
	g := grower{above: above, left: 100_000}
	for _, body := range bodies {
		g.anchors = yaml.AnchorsOf(body)
		document := g.grow(body, yaml.MaxNesting)
		if strings.HasSuffix(document.At("kind").Scalar, "List") {
			out = append(out, document.At("items").Items...)
		} else {
			out = append(out, document)
		}
	}
	if g.left < 0 {
		return nil, l.wrap(errors.New("the file has aliases of aliases, or more than 100000 values: divide it"))
	}
	return out, nil
}

// grower makes the trees of a text.
type grower struct {
	anchors yaml.Anchors // of the document
	above   int
	left    int // number of values still allowed; negative after too many or too deep ones
}

// grow converts n, down to a depth, and at most g.left values.
func (g *grower) grow(n ast.Node, depth int) *Tree {
	if depth == 0 {
		g.left = 0
	}
	if g.left--; g.left < 0 {
		return &Tree{}
	}
	n, err := g.anchors.Resolve(n)
	if err != nil {
		return &Tree{} // an unresolved alias
	}
	t := &Tree{Line: g.line(n), Scalar: scalar(n)}
	switch n := n.(type) {
	case *ast.SequenceNode:
		for _, item := range n.Values {
			t.Items = append(t.Items, g.grow(item, depth-1))
		}
	case *ast.MappingNode:
		for _, entry := range n.Values {
			node, _ := g.anchors.Resolve(entry.Key)
			key := scalar(node)
			if entry.Key.IsMergeKey() {
				key = "<<"
			}
			t.Fields = append(t.Fields, Field{Key: key, Line: g.line(entry.Key), Value: g.grow(entry.Value, depth-1)})
		}
	}
	return t
}

func (g *grower) line(n ast.Node) int { return g.above + yaml.PositionOf(n).Line }

// scalar returns scalar n as written; empty if n is not a scalar.
func scalar(n ast.Node) string {
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

// At returns the value at a path of keys; an empty tree if there is none. The last of duplicate keys counts.
func (t *Tree) At(path ...string) *Tree {
	for _, key := range path {
		value := &Tree{}
		for _, f := range t.Fields {
			if f.Key == key {
				value = f.Value
			}
		}
		t = value
	}
	return t
}

// Text returns the scalar without surrounding space.
func (t *Tree) Text() string { return strings.TrimSpace(t.Scalar) }

// Empty reports whether t has no content.
func (t *Tree) Empty() bool { return t.Scalar == "" && len(t.Items) == 0 && len(t.Fields) == 0 }

// Strings returns the scalar fields by name.
func (t *Tree) Strings() map[string]string {
	out := map[string]string{}
	for _, f := range t.Fields {
		out[f.Key] = f.Value.Text()
	}
	return out
}
