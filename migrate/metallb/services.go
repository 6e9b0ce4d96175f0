package metallb

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/service/pool"
)

// service converts the annotations of a Service. Herald finds its address in its status.
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
			o.Note(f.Line, o.about(f.Key), "is an unknown annotation: not carried over")
		case row.Becomes == "":
			// MetalLB's own remark
		case f.Value.Text() != "" && !slices.ContainsFunc(given, func(s string) bool { return strings.HasPrefix(s, annotation+"=") }):
			given = append(given, annotation+"="+strings.ReplaceAll(f.Value.Text(), ", ", ","))
		}
	}
	if o.body.At("spec", "type").Scalar != "LoadBalancer" {
		if len(given) > 0 {
			o.Note(o.line, o.about(""), "is not of type LoadBalancer: its annotations have no effect and are not carried over")
		}
		return
	}
	if class := o.body.At("spec", "loadBalancerClass").Scalar; class != m.options.Class {
		o.Note(o.line, o.about("spec.loadBalancerClass"), "%s differs from --lb-class: if MetalLB has this class, migrate with --lb-class, else the Service belongs to another load balancer", migrate.Quoted(class))
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
		contains := func(p *lbPool) bool {
			return slices.ContainsFunc(p.ranges, func(r pool.Range) bool { return r.Contains(addr) })
		}
		if err == nil && !slices.ContainsFunc(m.pools, contains) {
			o.ToDo(ip.Line, o.about("status"), "has %s, which no pool of these files contains: without one Herald does not announce it", addr)
		}
	}
}

// shellWord quotes s as one word of a shell command.
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
