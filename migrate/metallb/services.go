package metallb

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/migrate"
)

// service converts what MetalLB has been asked for on a Service. Its address is in
// its status, where Herald finds it.
func (m *converter) service(o *object) {
	namespace := cmp.Or(o.namespace, "default")
	var given []string
	for _, f := range o.metadata.At("annotations").Fields {
		prefix, name, _ := strings.Cut(f.Key, "/")
		if prefix != "metallb.io" && prefix != "metallb.universe.tf" {
			continue
		}
		row, known := migrate.Find(Table(), kindService, func(s string) bool { return s == name })
		annotation := strings.Trim(row.Becomes, "`")
		switch {
		case !known:
			o.Note(f.Line, o.about(f.Key), "is none that is known here: not carried over")
		case row.Becomes == "":
			// MetalLB's own remark: the table says so
		case f.Value.Text() != "" && !slices.ContainsFunc(given, func(s string) bool { return strings.HasPrefix(s, annotation+"=") }):
			given = append(given, annotation+"="+strings.ReplaceAll(f.Value.Text(), ", ", ","))
		}
	}
	if o.body.At("spec", "type").Scalar != "LoadBalancer" {
		if len(given) > 0 {
			o.Note(o.line, o.about(""), "is not of type LoadBalancer: its annotations mean nothing, and are not carried over")
		}
		return
	}
	if class := o.body.At("spec", "loadBalancerClass").Scalar; class != m.options.Class {
		o.Note(o.line, o.about("spec.loadBalancerClass"), "%s is not what MetalLB was told by --lb-class: if it is, migrate with that flag, and otherwise this Service is another's", migrate.Quoted(class))
		return
	}
	m.served++
	if len(given) > 0 {
		slices.Sort(given)
		words := []string{"kubectl", "-n", shellWord(namespace), "annotate", "--overwrite", "service", shellWord(o.name)}
		for _, s := range given {
			words = append(words, shellWord(s))
		}
		m.commands = append(m.commands, strings.Join(words, " "))
	}
	for _, ingress := range o.body.At("status", "loadBalancer", "ingress").Items {
		ip := ingress.At("ip")
		addr, err := netip.ParseAddr(ip.Scalar)
		if err == nil && !m.allows(addr) {
			o.ToDo(ip.Line, o.about("status"), "has %s, which is in no pool of these files: without one Herald does not announce it", addr)
		}
	}
}

// shellWord is s as one word of a shell's command.
func shellWord(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/=,:@"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
