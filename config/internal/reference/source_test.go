package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"regexp"
	"strings"
)

// parse collects the doc comments of types, under keys such as config.VIP, and of their fields, such as config.VIP.Name.
func parse(source ...[]byte) (map[string]string, error) {
	comments := map[string]string{}
	for _, text := range source {
		file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if group, ok := decl.(*ast.GenDecl); ok && group.Tok == token.TYPE {
				collect(comments, file.Name.Name, group)
			}
		}
	}
	return comments, nil
}

// collect adds the doc comments of the types that group declares in package pkg.
func collect(comments map[string]string, pkg string, group *ast.GenDecl) {
	for _, spec := range group.Specs {
		spec := spec.(*ast.TypeSpec)
		name := pkg + "." + spec.Name.Name
		comments[name] = prose(group.Doc)
		s, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range s.Fields.List {
			var field string
			if len(f.Names) > 0 {
				field = f.Names[0].Name
			} else if elsewhere, ok := f.Type.(*ast.SelectorExpr); ok { // embedded
				field = elsewhere.Sel.Name
			} else {
				field = fmt.Sprint(f.Type)
			}
			comments[name+"."+field] = prose(f.Doc)
		}
	}
}

// prose returns a doc comment without the markers of the CRD generator.
func prose(doc *ast.CommentGroup) string {
	text, _, _ := strings.Cut("\n"+doc.Text(), "\n+")
	return strings.TrimSpace(text)
}

// schemaOf returns the schema of type t by its doc comments.
func schemaOf(t reflect.Type, comments map[string]string) *schema {
	s := &schema{about: comments[t.String()]}
	switch {
	case t.Kind() == reflect.Slice:
		s.Items = schemaOf(t.Elem(), comments)
	case t.Kind() == reflect.Pointer:
		s = schemaOf(t.Elem(), comments)
	case s.about != "" && t.Kind() == reflect.Struct:
		s.Properties = map[string]*schema{}
		for f := range t.Fields() {
			name := fieldName(f, "yaml")
			field := schemaOf(f.Type, comments)
			if field.Description = comments[t.String()+"."+f.Name]; f.Anonymous && field.Description == "" {
				maps.Copy(s.Properties, field.Properties) // its fields are described one by one
				continue
			}
			s.Properties[name] = field
		}
	}
	return s
}

var goName = regexp.MustCompile(`\b[A-Z]+[a-z]+([A-Z][a-z]+)+\b`)

// spell replaces the Go names of fields in text by their names in the file. It leaves text in
// backquotes unchanged.
func spell(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = goName.ReplaceAllStringFunc(parts[i], func(name string) string {
			first := len(name) - len(strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
			initial := max(first-1, 1) // CAFile is caFile
			return "`" + strings.ToLower(name[:initial]) + name[initial:] + "`"
		})
	}
	return strings.Join(parts, "`")
}
