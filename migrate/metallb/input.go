package metallb

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/migrate"
)

// object is a Kubernetes object, or the part of MetalLB's old ConfigMap that corresponds to one.
type object struct {
	*migrate.Notes
	line            int
	kind            string
	namespace, name string
	labels          map[string]string
	metadata, body  *migrate.Tree
}

// about returns the subject of notes on the object.
func (o *object) about(setting string) string {
	return strings.TrimSpace(o.kind + "/" + o.name + " " + setting)
}

// readObjects returns the objects of a file.
func (m *converter) readObjects(file migrate.File) (out []*object, err error) {
	text, above, err := m.Text(file)
	if err != nil {
		return nil, err
	}
	documents, err := m.Trees(text, above)
	for _, t := range documents {
		metadata := t.At("metadata")
		o := &object{
			Notes: &m.Notes, line: t.Line, kind: t.At("kind").Scalar,
			namespace: metadata.At("namespace").Scalar, name: metadata.At("name").Scalar,
			labels: metadata.At("labels").Strings(), metadata: metadata, body: t,
		}
		switch {
		case o.kind == "ConfigMap":
			parts, err := m.parts(o)
			if err != nil {
				return nil, err
			}
			out = append(out, parts...)
		case o.kind == "" && (!t.At("peers").Empty() || !t.At("address-pools").Empty()):
			out = append(out, m.split(o, t)...)
		default:
			out = append(out, o)
		}
	}
	return out, err
}

// parts converts a ConfigMap of MetalLB before 0.13 to objects.
func (m *converter) parts(o *object) ([]*object, error) {
	var out []*object
	for _, f := range o.body.At("data").Fields {
		switch f.Key {
		case "config":
			documents, err := m.Trees(f.Value.Scalar, f.Line) // a block begins on the line after its key
			if err != nil {
				return nil, err
			}
			for _, d := range documents {
				out = append(out, m.split(o, d)...)
			}
		case "extras":
			o.ToDo(f.Line, o.about(f.Key), "Herald does not use FRR: move these settings into bgp, BGPPeer and AddressPool, or to the router")
		default:
			o.Note(f.Line, o.about(f.Key), "is not a key of MetalLB: not carried over")
		}
	}
	return out, nil
}

// split converts the sections of the old file to objects.
func (m *converter) split(o *object, config *migrate.Tree) []*object {
	kinds := map[string]string{"peers": kindPeer, "address-pools": kindOldPool, "bfd-profiles": kindBFD}
	var out []*object
	for _, f := range config.Fields {
		kind, known := kinds[f.Key]
		switch {
		case known:
			for _, item := range f.Value.Items {
				out = append(out, o.part(kind, item))
			}
		case f.Key == "bgp-communities":
			maps.Copy(m.aliases, f.Value.Strings())
		default:
			o.Note(f.Line, o.about(f.Key), "is an unknown field: not carried over")
		}
	}
	return out
}

// part converts an item of the old file to an object.
func (o *object) part(kind string, item *migrate.Tree) *object {
	part := *o
	part.kind, part.line, part.labels = kind, item.Line, nil
	name := item.At("name").Scalar
	switch kind {
	case kindPeer:
		part.name = "peer-" + migrate.DNSName(item.At("peer-address").Scalar, "unknown")
	case kindOldPool:
		if part.name = migrate.DNSName(name, "pool"); part.name != name {
			part.Note(item.Line, part.about("name"), "was %s, which is not a valid name of an object: change references to it, such as annotations of Services", migrate.Quoted(name))
		}
	default:
		part.name = name
	}
	if kind != kindPeer {
		item.Fields = slices.DeleteFunc(item.Fields, func(f migrate.Field) bool { return f.Key == "name" })
	}
	part.body = &migrate.Tree{Fields: []migrate.Field{{Key: "spec", Value: item}}}
	return &part
}

// same compares names of fields: the old file has my-asn for myASN and localpref for localPref.
func same(field, name string) bool {
	return strings.EqualFold(strings.ReplaceAll(field, "-", ""), name)
}

// resource is the head of a Kubernetes object.
type resource struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// manifests returns the objects to apply as one YAML stream.
func (m *converter) manifests() []byte {
	w := m.Writer("json")
	w.Remark("By herald migrate metallb. Read the comments, fill in the open fields, then:",
		"kubectl apply -f FILE")
	w.Struct("", resource{"v1", "ConfigMap", metadata{"herald", m.options.Namespace}})
	w.Line("data:")
	w.Line("  herald.yaml: |")
	w.Tag, w.Depth = "yaml", 2
	w.Struct("", &m.Config)
	w.Tag, w.Depth = "json", 0
	const version = v1alpha1.Group + "/" + v1alpha1.Version
	spec := func(path yaml.Path, kind, name string, spec any) {
		w.Line("---")
		w.Struct("", resource{version, kind, metadata{Name: name}})
		w.Line("spec:")
		w.Depth++
		w.Struct(path, spec)
		w.Depth--
	}
	for i, p := range m.pools {
		if b := p.spec.BGP; b != nil && b.AggregationLength == 32 {
			b.AggregationLength = 0 // the default
		}
		if b := p.spec.BGP; b != nil && b.AggregationLengthV6 == 128 {
			b.AggregationLengthV6 = 0
		}
		spec(yaml.Path("pools").Item(i).Field("spec"), "AddressPool", p.name, &p.spec)
	}
	for i, p := range m.peers {
		spec(yaml.Path("peers").Item(i).Field("spec"), "BGPPeer", p.name, &p.spec)
	}
	return []byte(w.String())
}

// fields are the fields of an object that have not been taken yet.
type fields struct {
	*object
	in   string // section of the table
	path string // prefix of their names in the table
	left []migrate.Field
}

// fields returns the fields of the spec of o.
func (o *object) fields() *fields {
	return &fields{object: o, in: o.kind, left: slices.Clone(o.body.At("spec").Fields)}
}

// within takes a field and returns its fields.
func (f *fields) within(key string) *fields {
	return f.nested(key+".", f.take(key))
}

// nested returns the fields of a taken value, or of an item of it; path is the prefix of their names.
func (f *fields) nested(path string, value *migrate.Tree) *fields {
	return &fields{object: f.object, in: f.in, path: f.path + path, left: value.Fields}
}

// take removes a field and returns its value; an empty tree if there is none.
func (f *fields) take(key string) *migrate.Tree {
	value := &migrate.Tree{Line: f.line}
	f.left = slices.DeleteFunc(f.left, func(entry migrate.Field) bool {
		taken := same(entry.Key, key)
		if taken {
			value = entry.Value
			value.Line = cmp.Or(value.Line, entry.Line)
		}
		return taken
	})
	return value
}

// done notes the fields that were not taken.
func (f *fields) done() {
	for _, entry := range f.left {
		field := f.path + entry.Key
		switch row, known := migrate.Find(Table(), f.in, func(name string) bool { return same(field, name) }); {
		case !known:
			f.Note(entry.Line, f.about(field), "is an unknown field: not carried over")
		case !entry.Value.Empty() && !slices.Contains(row.Idle, entry.Value.Scalar):
			f.Add(entry.Line, row.ToDo, f.about(field), "%s", row.Text)
		}
	}
}

// text takes a field with text.
func (f *fields) text(key string) string { return f.take(key).Text() }

// texts takes a list of texts, each once.
func (f *fields) texts(key string) []string {
	var out []string
	for _, item := range f.take(key).Items {
		if s := item.Text(); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// boolean takes a field that is true or false. It returns otherwise if it is unset or invalid.
func (f *fields) boolean(key string, otherwise bool) bool {
	t := f.take(key)
	if t.Scalar == "" {
		return otherwise
	}
	b, err := strconv.ParseBool(t.Scalar)
	if err != nil {
		f.ToDo(t.Line, f.about(f.path+key), "%s is neither true nor false", migrate.Quoted(t.Scalar))
		return otherwise
	}
	return b
}

// number takes a field with a number of 0 to most. It returns otherwise if it is unset or invalid.
func (f *fields) number(key string, most uint32, otherwise uint32) uint32 {
	t := f.take(key)
	if t.Scalar == "" {
		return otherwise
	}
	return f.Number(migrate.Setting{Line: t.Line, Name: f.about(f.path + key), Value: t.Scalar}, 0, most, otherwise)
}

// duration takes a field with a time such as 90s; zero if it is unset or invalid.
func (f *fields) duration(key string) (d time.Duration, line int) {
	t := f.take(key)
	if t.Scalar == "" {
		return 0, 0
	}
	d, err := time.ParseDuration(t.Scalar)
	if err != nil || d < 0 {
		f.ToDo(t.Line, f.about(f.path+key), "%s is not a time such as 90s", migrate.Quoted(t.Scalar))
		return 0, 0
	}
	return d, t.Line
}

// selectors takes a list of label selectors.
func (f *fields) selectors(key string) []v1alpha1.LabelSelector {
	var out []v1alpha1.LabelSelector
	for _, item := range f.take(key).Items {
		in := f.nested(key+"[].", item)
		var s v1alpha1.LabelSelector
		if labels := in.take("matchLabels").Strings(); len(labels) > 0 {
			s.MatchLabels = labels
		}
		for _, e := range in.take("matchExpressions").Items {
			expression := f.nested(key+"[].", e)
			s.MatchExpressions = append(s.MatchExpressions, v1alpha1.LabelRequirement{
				Key: expression.text("key"), Operator: metav1.LabelSelectorOperator(expression.text("operator")), Values: expression.texts("values"),
			})
			expression.done()
		}
		in.done()
		if _, err := s.Selector(); err != nil {
			f.ToDo(item.Line, f.about(f.path+key), "selects nothing: %s", sentence(err)) // it stays: without selectors everything is selected
		}
		out = append(out, s)
	}
	return out
}

// sentence returns the innermost error for a note; it may quote the input.
func sentence(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return text.OneLine(err.Error())
}
