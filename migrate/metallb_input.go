package migrate

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// object is a Kubernetes object, or a part of MetalLB's old ConfigMap that became
// an object of its own later.
type object struct {
	*noteList // of its file
	line      int
	kind      string
	namespace string
	name      string
	labels    map[string]string
	metadata  *tree
	body      *tree
}

// about is what notes on the object begin with.
func (o *object) about(setting string) string {
	return strings.TrimSpace(o.kind + "/" + o.name + " " + setting)
}

// readObjects are the objects of a file, and of Lists in it.
func readObjects(file File, notes *noteList) ([]*object, error) {
	s, err := text(file.Data)
	if err != nil {
		return nil, err
	}
	documents, err := trees(s)
	if err != nil {
		return nil, err
	}
	var out []*object
	for _, d := range documents {
		items := []*tree{d}
		if strings.HasSuffix(d.at("kind").scalar, "List") {
			items = d.at("items").items
		}
		for _, t := range items {
			o := &object{
				noteList: notes, line: t.line, kind: t.at("kind").scalar,
				namespace: t.at("metadata", "namespace").scalar, name: t.at("metadata", "name").scalar,
				labels: t.at("metadata", "labels").strings(), metadata: t.at("metadata"), body: t,
			}
			switch {
			case o.kind == "ConfigMap":
				parts, err := o.parts()
				if err != nil {
					return nil, err
				}
				out = append(out, parts...)
			case o.kind == "" && (!t.at("peers").empty() || !t.at("address-pools").empty()):
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
	for _, f := range o.body.at("data").fields {
		switch f.key {
		case "config":
			documents, err := trees(f.value.scalar)
			if err != nil {
				return nil, err
			}
			for _, d := range documents {
				d.moveBy(f.line) // the text of a block begins on the line after its key's
				out = append(out, o.split(d)...)
			}
		case "extras":
			o.todo(f.line, o.about(f.key), "Herald speaks BGP by itself: what this says to FRR has to be said in bgp, BGPPeer and AddressPool, or to the router")
		default:
			o.note(f.line, o.about(f.key), "is none of MetalLB's: not carried over")
		}
	}
	return out, nil
}

// moveBy adds to all lines of t.
func (t *tree) moveBy(lines int) {
	t.line += lines
	for _, item := range t.items {
		item.moveBy(lines)
	}
	for i := range t.fields {
		t.fields[i].line += lines
		t.fields[i].value.moveBy(lines)
	}
}

// split makes objects of the sections of the old file.
func (o *object) split(config *tree) []*object {
	kinds := map[string]string{"peers": kindPeer, "address-pools": kindOldPool, "bfd-profiles": kindBFD}
	var out []*object
	for _, f := range config.fields {
		kind, known := kinds[f.key]
		switch {
		case known:
			for _, item := range f.value.items {
				modernise(item)
				name := item.at("name").scalar
				part := *o
				part.kind, part.line, part.labels = kind, item.line, nil
				item.fields = slices.DeleteFunc(item.fields, func(f field) bool { return f.key == "name" && kind != kindPeer })
				part.name = name
				if kind == kindPeer {
					part.name = "peer-" + dnsName(item.at("peerAddress").scalar, "unknown")
				}
				if kind == kindOldPool {
					part.name = dnsName(name, "pool")
				}
				if kind == kindOldPool && part.name != name {
					part.note(item.line, part.about("name"), "was %s, which no object can be called: change what names it, such as annotations of Services", strconv.Quote(shown(name)))
				}
				part.body = &tree{line: item.line, fields: []field{{key: "spec", value: item}}}
				out = append(out, &part)
			}
		case f.key == "bgp-communities":
			part := *o
			part.kind, part.line, part.name = kindCommunity, f.line, f.key
			part.body = &tree{fields: []field{{key: "spec", value: aliasesOf(f.value)}}}
			out = append(out, &part)
		default:
			o.note(f.line, o.about(f.spelled), "is no field that is known here: not carried over")
		}
	}
	return out
}

// aliasesOf is a mapping of names to communities as a Community has them.
func aliasesOf(t *tree) *tree {
	list := &tree{}
	for _, f := range t.fields {
		name := &tree{line: f.line, scalar: f.key}
		list.items = append(list.items, &tree{line: f.line, fields: []field{
			{key: "name", line: f.line, value: name}, {key: "value", line: f.line, value: f.value},
		}})
	}
	return &tree{fields: []field{{key: "communities", spelled: "bgp-communities", line: t.line, value: list}}}
}

// modernise gives the fields of the old file the names they have in resources.
func modernise(t *tree) {
	irregular := map[string]string{
		"my-asn": "myASN", "peer-asn": "peerASN", "router-id": "routerID", "ebgp-multihop": "ebgpMultiHop",
		"avoid-buggy-ips": "avoidBuggyIPs", "localpref": "localPref",
	}
	for i, f := range t.fields {
		if f.key != "match-labels" { // whose names are those of labels
			modernise(f.value)
		}
		if name, ok := irregular[f.key]; ok {
			t.fields[i].key = name
		} else {
			t.fields[i].key = camel(f.key)
		}
	}
	for _, item := range t.items {
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
