package metallb

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/herald-vip/herald/config/migrate"
	"github.com/herald-vip/herald/config/yaml"
)

// object is a Kubernetes object, or a part of MetalLB's old ConfigMap that became
// an object of its own later.
type object struct {
	*migrate.Notes // of its file
	line           int
	kind           string
	namespace      string
	name           string
	labels         map[string]string
	metadata       *migrate.Tree
	body           *migrate.Tree
}

// about is what notes on the object begin with.
func (o *object) about(setting string) string {
	return strings.TrimSpace(o.kind + "/" + o.name + " " + setting)
}

// readObjects are the objects of a file, and of Lists in it.
func readObjects(file File, notes *migrate.Notes) ([]*object, error) {
	s, err := yaml.Text(file.Data)
	if err != nil {
		return nil, err
	}
	documents, err := migrate.Trees(s)
	if err != nil {
		return nil, err
	}
	var out []*object
	for _, d := range documents {
		items := []*migrate.Tree{d}
		if strings.HasSuffix(d.At("kind").Scalar, "List") {
			items = d.At("items").Items
		}
		for _, t := range items {
			o := &object{
				Notes: notes, line: t.Line, kind: t.At("kind").Scalar,
				namespace: t.At("metadata", "namespace").Scalar, name: t.At("metadata", "name").Scalar,
				labels: t.At("metadata", "labels").Strings(), metadata: t.At("metadata"), body: t,
			}
			switch {
			case o.kind == "ConfigMap":
				parts, err := o.parts()
				if err != nil {
					return nil, err
				}
				out = append(out, parts...)
			case o.kind == "" && (!t.At("peers").Empty() || !t.At("address-pools").Empty()):
				out = append(out, o.split(t)...)
			default:
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// parts are the objects that a ConfigMap of MetalLB before 0.13 stands for.
func (o *object) parts() ([]*object, error) {
	var out []*object
	for _, f := range o.body.At("data").Fields {
		switch f.Key {
		case "config":
			documents, err := migrate.Trees(f.Value.Scalar)
			if err != nil {
				return nil, err
			}
			for _, d := range documents {
				d.MoveBy(f.Line) // the text of a block begins on the line after its key's
				out = append(out, o.split(d)...)
			}
		case "extras":
			o.ToDo(f.Line, o.about(f.Key), "Herald speaks BGP by itself: what this says to FRR has to be said in bgp, BGPPeer and AddressPool, or to the router")
		default:
			o.Note(f.Line, o.about(f.Key), "is none of MetalLB's: not carried over")
		}
	}
	return out, nil
}

// split makes objects of the sections of the old file.
func (o *object) split(config *migrate.Tree) []*object {
	kinds := map[string]string{"peers": kindPeer, "address-pools": kindOldPool, "bfd-profiles": kindBFD}
	var out []*object
	for _, f := range config.Fields {
		kind, known := kinds[f.Key]
		switch {
		case known:
			for _, item := range f.Value.Items {
				modernise(item)
				name := item.At("name").Scalar
				part := *o
				part.kind, part.line, part.labels = kind, item.Line, nil
				item.Fields = slices.DeleteFunc(item.Fields, func(f migrate.Field) bool { return f.Key == "name" && kind != kindPeer })
				part.name = name
				if kind == kindPeer {
					part.name = "peer-" + migrate.DNSName(item.At("peerAddress").Scalar, "unknown")
				}
				if kind == kindOldPool {
					part.name = migrate.DNSName(name, "pool")
				}
				if kind == kindOldPool && part.name != name {
					part.Note(item.Line, part.about("name"), "was %s, which no object can be called: change what names it, such as annotations of Services", strconv.Quote(migrate.Shown(name)))
				}
				part.body = &migrate.Tree{Line: item.Line, Fields: []migrate.Field{{Key: "spec", Value: item}}}
				out = append(out, &part)
			}
		case f.Key == "bgp-communities":
			part := *o
			part.kind, part.line, part.name = kindCommunity, f.Line, f.Key
			part.body = &migrate.Tree{Fields: []migrate.Field{{Key: "spec", Value: aliasesOf(f.Value)}}}
			out = append(out, &part)
		default:
			o.Note(f.Line, o.about(f.Spelled), "is no field that is known here: not carried over")
		}
	}
	return out
}

// aliasesOf is a mapping of names to communities as a Community has them.
func aliasesOf(t *migrate.Tree) *migrate.Tree {
	list := &migrate.Tree{}
	for _, f := range t.Fields {
		name := &migrate.Tree{Line: f.Line, Scalar: f.Key}
		list.Items = append(list.Items, &migrate.Tree{Line: f.Line, Fields: []migrate.Field{
			{Key: "name", Line: f.Line, Value: name}, {Key: "value", Line: f.Line, Value: f.Value},
		}})
	}
	return &migrate.Tree{Fields: []migrate.Field{{Key: "communities", Spelled: "bgp-communities", Line: t.Line, Value: list}}}
}

// modernise gives the fields of the old file the names they have in resources.
func modernise(t *migrate.Tree) {
	irregular := map[string]string{
		"my-asn": "myASN", "peer-asn": "peerASN", "router-id": "routerID", "ebgp-multihop": "ebgpMultiHop",
		"avoid-buggy-ips": "avoidBuggyIPs", "localpref": "localPref",
	}
	for i, f := range t.Fields {
		if f.Key != "match-labels" { // whose names are those of labels
			modernise(f.Value)
		}
		if name, ok := irregular[f.Key]; ok {
			t.Fields[i].Key = name
		} else {
			t.Fields[i].Key = camel(f.Key)
		}
	}
	for _, item := range t.Items {
		modernise(item)
	}
}

// camel is some-thing as someThing.
func camel(s string) string {
	words := strings.Split(s, "-")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = string(unicode.ToUpper(rune(w[0]))) + w[1:]
		}
	}
	return strings.Join(words, "")
}
