package config

import (
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// maxValues bounds the work that aliases of aliases can cause.
const maxValues = 50_000

// decoder fills Go values from a YAML document. Unlike the YAML library's own
// it goes on after a mistake and remembers where each field is.
type decoder struct {
	*report
	anchors map[string]*ast.AnchorNode
	left    int // of maxValues
}

func newDecoder(r *report, root ast.Node) *decoder {
	d := &decoder{report: r, anchors: map[string]*ast.AnchorNode{}, left: maxValues}
	ast.Walk(d, root)
	return d
}

// Visit collects the anchors of a document.
func (d *decoder) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		name := anchor.Name.GetToken().Value
		if first, ok := d.anchors[name]; ok {
			d.errorAt(nodePosition(n), "", "the anchor %s is defined already on line %d", quote(name), nodePosition(first).line)
			return d
		}
		d.anchors[name] = anchor
	}
	return d
}

// refuse reports why field p has no value.
func (d *decoder) refuse(p path, format string, args ...any) {
	d.errorf(p, format, args...)
	d.unread[p] = true
}

// decode sets v to the value of node n, which is field p, as far as it has no mistakes.
func (d *decoder) decode(p path, n ast.Node, v reflect.Value) {
	if d.left--; d.left < 0 {
		if d.left == -1 {
			d.errorAt(nodePosition(n), p, "the file has more than %d values, those of its aliases included", maxValues)
		}
		return
	}
	d.positions[p] = nodePosition(n)
	if n = d.resolve(p, n); n == nil {
		return
	}
	d.positions[p] = nodePosition(n) // where an alias points to is where to mend it
	if n.Type() == ast.NullType {
		d.refuse(p, "has no value: give one or remove the line")
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch v := v.Addr().Interface().(type) {
	case *netip.Addr:
		d.address(p, n, v)
		return
	case *time.Duration:
		d.duration(p, n, v)
		return
	case *netip.AddrPort:
		d.addressPort(p, n, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(p, n, v)
	case reflect.Map:
		d.table(p, n, v)
	case reflect.Slice:
		d.sequence(p, n, v)
	case reflect.String:
		d.string(p, n, v)
	case reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok {
			v.SetBool(b.Value)
		} else {
			d.refuse(p, "want true or false, got %s", describe(n))
		}
	default:
		d.number(p, n, v)
	}
}

// resolve follows anchors and aliases to the node that holds the value.
func (d *decoder) resolve(p path, n ast.Node) ast.Node {
	for range maxNesting {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.AliasNode:
			name := node.Value.GetToken().Value
			anchor, ok := d.anchors[name]
			if !ok {
				d.refuse(p, "no anchor %s is defined", quote(name))
				return nil
			}
			n = anchor.Value
		default:
			return n
		}
	}
	d.refuse(p, "the alias refers to itself")
	return nil
}

func (d *decoder) mapping(p path, n ast.Node, v reflect.Value) {
	setDefaults(v)
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.refuse(p, "want fields (name: value), got %s", describe(n))
		return
	}
	fields := fieldsOf(v.Type())
	lines := map[string]int{} // of the fields given
	var unknown, misshapen []*ast.MappingValueNode
	for _, entry := range m.Values {
		pos := nodePosition(entry.Key)
		key, ok := entry.Key.(*ast.StringNode)
		if !ok {
			d.errorAt(pos, p, "want the name of a field, got %s", describe(entry.Key))
			continue
		}
		name := key.Value
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			unknown = append(unknown, entry)
			continue
		}
		if line, ok := lines[name]; ok {
			d.errorAt(pos, p.field(name), "given already on line %d: remove one", line)
			continue
		}
		lines[name] = pos.line
		d.decode(p.field(name), entry.Value, v.FieldByIndex(fields[i].index))
		if !fields[i].fits(entry.Value) {
			misshapen = append(misshapen, entry)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return lines[f.name] > 0 })
	for _, entry := range unknown {
		d.unknownField(p, entry, fields, missing)
	}
	for _, entry := range misshapen {
		d.meant(p, entry.Value, missing)
	}
}

// unknownField reports an entry whose name is none of fields', and takes it for those of the
// missing that it may be meant for.
func (d *decoder) unknownField(p path, entry *ast.MappingValueNode, fields, missing []field) {
	name := entry.Key.(*ast.StringNode).Value
	shown := name
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) || len(name) > 40 {
		shown = quote(name)
	}
	fitting := slices.DeleteFunc(slices.Clone(missing), func(f field) bool { return !f.fits(entry.Value) })
	meant, ok := closest(name, names(fitting))
	if !ok {
		meant, ok = closest(name, names(fields))
	}
	if !ok {
		d.errorAt(nodePosition(entry.Key), p.field(shown), "unknown field")
		d.meant(p, entry.Value, missing)
		return
	}
	d.errorAt(nodePosition(entry.Key), p.field(shown), "unknown field, did you mean %s?", meant)
	if slices.Contains(names(missing), meant) {
		d.unread[p.field(meant)] = true // given after all, in a way: not to be called missing, too
	}
}

// meant notes that section n, which is where it does not belong, may be any of the missing fields that
// are sections like it: none of them is to be called missing, too.
func (d *decoder) meant(p path, n ast.Node, missing []field) {
	for _, f := range missing {
		if isSection(n) && f.fits(n) {
			d.unread[p.field(f.name)] = true
		}
	}
}

// table fills a map whose keys are names of the user's own.
func (d *decoder) table(p path, n ast.Node, v reflect.Value) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.refuse(p, "want entries (name: value), got %s", describe(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, entry := range m.Values {
		pos := nodePosition(entry.Key)
		key, ok := entry.Key.(*ast.StringNode)
		if !ok || !isName(key.Value, maxNodeName) {
			d.errorAt(pos, p, "want a name of lower-case letters and digits, with '-' and '.' between, got %s", describe(entry.Key))
			d.unread[p] = true
			continue
		}
		name := reflect.ValueOf(key.Value)
		if v.MapIndex(name).IsValid() {
			d.errorAt(pos, p.field(key.Value), "given already: remove one")
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.decode(p.field(key.Value), entry.Value, value)
		v.SetMapIndex(name, value)
	}
}

func (d *decoder) sequence(p path, n ast.Node, v reflect.Value) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.refuse(p, "want a list, got %s", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values)))
	for i, item := range s.Values {
		d.decode(p.item(i), item, v.Index(i))
	}
}

func (d *decoder) string(p path, n ast.Node, v reflect.Value) {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		d.refuse(p, "want text, got %s: put it in quotes", describe(n))
		return
	}
	if s, ok := d.text(p, n, "text"); ok {
		v.SetString(s)
	}
}

// text is the string in n; it reports that want was wanted if there is none.
func (d *decoder) text(p path, n ast.Node, want string) (string, bool) {
	var s string
	switch n := n.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = n.Value.Value
	default:
		d.refuse(p, "want %s, got %s", want, describe(n))
		return "", false
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		d.refuse(p, "want one line without control characters")
		return "", false
	}
	return s, true
}

func (d *decoder) number(p path, n ast.Node, v reflect.Value) {
	node, ok := n.(*ast.IntegerNode)
	if !ok {
		d.refuse(p, "want a whole number, got %s", describe(n))
		return
	}
	digits := node.GetToken().Value
	if !decimal(digits) { // whether 010 is eight or ten is not left to guess
		d.refuse(p, "want a decimal number, got %s", digits)
		return
	}
	i, err := strconv.ParseInt(digits, 10, 64)
	if v.CanInt() {
		if err != nil || v.OverflowInt(i) {
			d.refuse(p, "the number %s is out of range", digits)
			return
		}
		v.SetInt(i)
		return
	}
	if err != nil || i < 0 || v.OverflowUint(uint64(i)) {
		d.refuse(p, "want a number from 0 to %d, got %s", uint64(math.MaxUint64)>>(64-v.Type().Bits()), digits)
		return
	}
	v.SetUint(uint64(i))
}

func decimal(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s == "0" || s != "" && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

func (d *decoder) duration(p path, n ast.Node, v *time.Duration) {
	s, ok := d.text(p, n, "a duration such as 200ms")
	if !ok {
		return
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		d.refuse(p, "want a duration such as 200ms, got %s", describe(n))
		return
	}
	*v = parsed
}

func (d *decoder) address(p path, n ast.Node, v *netip.Addr) {
	s, ok := d.text(p, n, "an IP address")
	if !ok {
		return
	}
	addr, err := netip.ParseAddr(s)
	if prefix, e := netip.ParsePrefix(s); e == nil {
		if !prefix.IsSingleIP() {
			d.refuse(p, "want one address, got the network %s", s)
			return
		}
		addr, err = prefix.Addr(), nil
	}
	switch {
	case err != nil:
		d.refuse(p, "want an IP address, got %s", describe(n))
	case addr.Is4In6():
		d.refuse(p, "want a plain IPv4 address, got %s: write %s", s, addr.Unmap())
	case addr.Zone() != "" && !addr.IsLinkLocalUnicast():
		d.refuse(p, "only a link-local address has a zone: remove %%%s", addr.Zone())
	default:
		*v = addr
	}
}

func (d *decoder) addressPort(p path, n ast.Node, v *netip.AddrPort) {
	const want = "an IP address with a port such as 10.0.1.1:7946"
	s, ok := d.text(p, n, want)
	if !ok {
		return
	}
	parsed, err := netip.ParseAddrPort(s)
	if err != nil || parsed.Port() == 0 || parsed.Addr().Is4In6() {
		d.refuse(p, "want %s, got %s", want, describe(n))
		return
	}
	*v = parsed
}

// describe names the value of n in an error.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return "the text " + quote(n.Value)
	case *ast.LiteralNode:
		return "the text " + quote(n.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode:
		return "fields (name: value)"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias"
	case *ast.MergeKeyNode:
		return "a merge key (<<), which is not supported"
	}
	return "something else"
}

// quote is s in quotes, cut if it is long.
func quote(s string) string {
	const limit = 64
	if runes := []rune(s); len(runes) > limit {
		return strconv.Quote(string(runes[:limit]) + "…")
	}
	return strconv.Quote(s)
}
