package yaml

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"

	"github.com/herald-vip/herald/internal/text"
)

// maxValues bounds the work that aliases of aliases can cause. A file without aliases cannot reach it.
const maxValues = maxTokens

// decoder fills Go values from a YAML document. Unlike the YAML library's decoder
// it continues after a mistake and records where each field is.
type decoder struct {
	*Report
	anchors Anchors
	left    int // of maxValues; below zero after too many
}

// Decode sets the defaults of the struct that into points to, fills it from the only document in data by its fields'
// yaml tags, and reports every mistake. It returns false if it stopped early: then validating the struct would mislead.
func Decode(r *Report, data []byte, into any) bool {
	text, err := Text(data)
	var bodies []ast.Node
	if err == nil {
		bodies, err = parse(text, true)
	}
	var syntax *SyntaxError
	switch {
	case errors.As(err, &syntax):
		r.errorAt(syntax.Position, "", "%s", syntax.Message)
		return false
	case len(bodies) == 0:
		r.errorAt(Position{}, "", "the file is empty")
		return false
	}
	d := &decoder{Report: r, anchors: Anchors{}, left: maxValues}
	ast.Walk(d, bodies[0])
	d.decode("", bodies[0], reflect.ValueOf(into).Elem())
	return d.left >= 0
}

// Visit collects the anchors of a document.
func (d *decoder) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		name := anchor.Name.GetToken().Value
		if first, ok := d.anchors[name]; ok {
			d.errorAt(PositionOf(n), "", "the anchor %s is defined already on line %d", Quote(name), PositionOf(first).Line)
			return d
		}
		d.anchors[name] = anchor
	}
	return d
}

// refuse reports a mistake in field p and marks it as unread.
func (d *decoder) refuse(p Path, format string, args ...any) {
	d.Errorf(p, format, args...)
	d.unread[p] = true
}

// decode sets v to the value of node n, which is field p, and reports its mistakes.
func (d *decoder) decode(p Path, n ast.Node, v reflect.Value) {
	if d.left--; d.left < 0 {
		if d.left == -1 {
			d.errorAt(PositionOf(n), p, "the file has more than %d values, those of its aliases included", maxValues)
		}
		return
	}
	d.positions[p] = PositionOf(n)
	n, err := d.anchors.Resolve(n)
	if err != nil {
		d.refuse(p, "%v", err)
		return
	}
	d.positions[p] = PositionOf(n) // an alias must be corrected where it points to
	if n.Type() == ast.NullType {
		d.refuse(p, "has no value: give one or remove the line")
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	v = unwrapped(v)
	switch v := v.Addr().Interface().(type) {
	case *netip.Addr:
		d.address(p, n, v)
		return
	case *time.Duration:
		parsed(d, p, n, v, "a duration such as 200ms", time.ParseDuration)
		return
	case *netip.Prefix:
		d.prefix(p, n, v)
		return
	case *netip.AddrPort:
		parsed(d, p, n, v, "an IP address with a port such as 10.0.1.1:7946", addressPort)
		return
	case json.Unmarshaler:
		d.numberOrWord(p, n, v)
		return
	case encoding.TextUnmarshaler:
		d.parse(p, n, v)
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

func (d *decoder) mapping(p Path, n ast.Node, v reflect.Value) {
	setDefaults(v, "")
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.refuse(p, "want fields (name: value), got %s", describe(n))
		return
	}
	fields := FieldsOf(v.Type(), "yaml")
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	lines := map[string]int{} // line of each field given
	var unknown []*ast.MappingValueNode
	for _, entry := range m.Values {
		pos := PositionOf(entry.Key)
		key, ok := entry.Key.(*ast.StringNode)
		if !ok {
			d.errorAt(pos, p, "want the name of a field, got %s", describe(entry.Key))
			continue
		}
		name := key.Value
		i := slices.Index(names, name)
		if i < 0 {
			unknown = append(unknown, entry)
			continue
		}
		if line, ok := lines[name]; ok {
			d.errorAt(pos, p.Field(name), "given already on line %d: remove one", line)
			continue
		}
		lines[name] = pos.Line
		d.decode(p.Field(name), entry.Value, v.FieldByIndex(fields[i].Index))
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return lines[name] > 0 })
	for _, entry := range unknown {
		meant := d.unknownField(p, entry.Key.(*ast.StringNode), names, missing)
		for _, f := range fields {
			if slices.Contains(missing, f.Name) && (f.Name == meant || isSection(entry.Value) && holdsSection(v.FieldByIndex(f.Index).Type())) {
				d.unread[p.Field(f.Name)] = true // the unknown field may be meant for f, so f is not reported as missing
			}
		}
	}
}

// isSection reports whether a node is fields or a list.
func isSection(n ast.Node) bool { return n.Type() == ast.MappingType || n.Type() == ast.SequenceType }

// holdsSection reports whether the value of a field of type t can be fields or a list.
func holdsSection(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map || t.Kind() == reflect.Slice
}

// unknownField reports a field with a name that is not in names. It returns the name that was probably meant,
// preferably a missing name; empty without a guess.
func (d *decoder) unknownField(p Path, key *ast.StringNode, names, missing []string) (meant string) {
	shown := key.Value
	if strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) || len(shown) > 40 {
		shown = Quote(shown)
	}
	hint := ""
	if meant = cmp.Or(Closest(key.Value, missing), Closest(key.Value, names)); meant != "" {
		hint = ", did you mean " + meant + "?"
	} else if len(names) <= 2 {
		hint = ", want " + strings.Join(names, " or ")
	}
	d.errorAt(PositionOf(key), p.Field(shown), "unknown field%s", hint)
	return meant
}

// table fills a map; its keys are names that the user chose.
func (d *decoder) table(p Path, n ast.Node, v reflect.Value) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.refuse(p, "want entries (name: value), got %s", describe(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, entry := range m.Values {
		pos := PositionOf(entry.Key)
		key, ok := entry.Key.(*ast.StringNode)
		if !ok || !IsName(key.Value) {
			d.errorAt(pos, p, "want a name of lower-case letters and digits, with '-' and '.' between, got %s", describe(entry.Key))
			d.unread[p] = true
			continue
		}
		name := reflect.ValueOf(key.Value)
		if v.MapIndex(name).IsValid() {
			d.errorAt(pos, p.Field(key.Value), "given already: remove one")
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.decode(p.Field(key.Value), entry.Value, value)
		v.SetMapIndex(name, value)
	}
}

func (d *decoder) sequence(p Path, n ast.Node, v reflect.Value) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.refuse(p, "want a list, got %s", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values)))
	for i, item := range s.Values {
		d.decode(p.Item(i), item, v.Index(i))
	}
}

func (d *decoder) string(p Path, n ast.Node, v reflect.Value) {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.MappingNode, *ast.MappingValueNode: // such as 65000:100
		d.refuse(p, "want text, got %s: put it in quotes", describe(n))
		return
	}
	if s, ok := d.text(p, n, "text"); ok {
		v.SetString(s)
	}
}

// text returns the string in n. It reports other nodes, with want as the expected value, and returns false.
func (d *decoder) text(p Path, n ast.Node, want string) (string, bool) {
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

func (d *decoder) number(p Path, n ast.Node, v reflect.Value) {
	node, ok := n.(*ast.IntegerNode)
	if !ok {
		d.refuse(p, "want a whole number, got %s", describe(n))
		return
	}
	digits := node.GetToken().Value
	if !decimal(digits) { // 010 could mean eight or ten
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

// numberOrWord reads a number or a word by its JSON decoder.
func (d *decoder) numberOrWord(p Path, n ast.Node, v json.Unmarshaler) {
	var text []byte
	switch n := n.(type) {
	case *ast.IntegerNode:
		text = []byte(n.GetToken().Value)
	case *ast.StringNode:
		text, _ = json.Marshal(n.Value) // cannot fail
	}
	if err := v.UnmarshalJSON(text); err != nil {
		d.refuse(p, "%v, got %s", err, describe(n))
	}
}

// parse reads a text by the UnmarshalText method of its type.
func (d *decoder) parse(p Path, n ast.Node, v encoding.TextUnmarshaler) {
	var s string
	d.string(p, n, reflect.ValueOf(&s).Elem())
	if d.unread[p] {
		return
	}
	if err := v.UnmarshalText([]byte(s)); err != nil {
		d.refuse(p, "%v", err)
	}
}

func decimal(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s == "0" || s != "" && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// parsed reads a text with parse; want describes the expected value.
func parsed[T any](d *decoder, p Path, n ast.Node, v *T, want string, parse func(string) (T, error)) {
	s, ok := d.text(p, n, want)
	if !ok {
		return
	}
	value, err := parse(s)
	if err != nil {
		d.refuse(p, "want %s, got %s", want, describe(n))
		return
	}
	*v = value
}

func (d *decoder) address(p Path, n ast.Node, v *netip.Addr) {
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

func (d *decoder) prefix(p Path, n ast.Node, v *netip.Prefix) {
	parsed(d, p, n, v, "a prefix such as 10.99.0.0/24", func(s string) (netip.Prefix, error) {
		prefix, err := netip.ParsePrefix(s)
		if prefix.Addr().Is4In6() {
			err = strconv.ErrRange
		}
		return prefix, err
	})
	if *v != v.Masked() {
		d.refuse(p, "%s has bits beyond its length: did you mean %s?", v, v.Masked())
		*v = netip.Prefix{}
	}
}

func addressPort(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if a.Port() == 0 || a.Addr().Is4In6() {
		err = strconv.ErrRange
	}
	return a, err
}

// describe names the value of n for an error.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return "the text " + Quote(n.Value)
	case *ast.LiteralNode:
		return "the text " + Quote(n.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "fields (name: value)"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias"
	case *ast.MergeKeyNode:
		return "a merge key (<<), which is not supported"
	}
	return "something else"
}

// Quote returns s in quotes, cut after 64 characters.
func Quote(s string) string {
	const limit = 64
	return strconv.Quote(text.Cut(s, limit+1)) // with the ellipsis
}

// maxName is the maximum length of a DNS name (RFC 1035), in bytes.
const maxName = 253

// IsName reports whether s is a lower-case DNS name (RFC 1123), as Kubernetes uses for nodes.
func IsName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(s) > 0 && len(s) <= maxName &&
		strings.Trim(s, letters+"-.") == "" &&
		strings.ContainsAny(s[:1], letters) && strings.ContainsAny(s[len(s)-1:], letters)
}
