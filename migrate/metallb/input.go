package metallb

import (
	"maps"
	"slices"
	"strings"

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
