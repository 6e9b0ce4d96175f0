package migrate

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// service converts what MetalLB has been asked for on a Service. Its address is in
// its status, where Herald finds it.
func (m *metalLB) service(o *object) {
	namespace := cmp.Or(o.namespace, "default")
	var given []string
	for _, f := range o.metadata.at("annotations").fields {
		prefix, name, _ := strings.Cut(f.key, "/")
		if prefix != "metallb.io" && prefix != "metallb.universe.tf" {
			continue
		}
		row, known := metalLBRow{}, false
		for _, r := range metalLBTable() {
			if r.in == kindService && r.field == name {
				row, known = r, true
			}
		}
		annotation := strings.Trim(row.becomes, "`")
		switch {
		case !known:
			o.note(f.line, o.about(f.key), "is none that is known here: not carried over")
		case row.becomes == "":
			// MetalLB's own remark: the table says so
		case strings.TrimSpace(f.value.scalar) != "" && !slices.ContainsFunc(given, func(s string) bool { return strings.HasPrefix(s, annotation+"=") }):
			given = append(given, annotation+"="+strings.ReplaceAll(strings.TrimSpace(f.value.scalar), ", ", ","))
		}
	}
	if o.body.at("spec", "type").scalar != "LoadBalancer" {
		if len(given) > 0 {
			o.note(o.line, o.about(""), "is not of type LoadBalancer: its annotations mean nothing, and are not carried over")
		}
		return
	}
	if class := o.body.at("spec", "loadBalancerClass").scalar; class != m.options.Class {
		o.note(o.line, o.about("spec.loadBalancerClass"), "%s is not what MetalLB was told by --lb-class: if it is, migrate with that flag, and otherwise this Service is another's", strconv.Quote(shown(class)))
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
	for _, ingress := range o.body.at("status", "loadBalancer", "ingress").items {
		ip := ingress.at("ip")
		addr, err := netip.ParseAddr(ip.scalar)
		if err == nil && !m.allows(addr) {
			o.todo(ip.line, o.about("status"), "has %s, which is in no pool of these files: without one Herald does not announce it", addr)
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
