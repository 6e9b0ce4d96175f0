package migrate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/config"
)

// writer writes a draft as a human would: only what differs from the defaults, with comments.
type writer struct {
	*draft
	strings.Builder
	depth int  // of the line
	item  bool // the next line begins a list's item
}

// yaml is the draft as a configuration file.
func (d *draft) yaml(tool string) []byte {
	w := &writer{draft: d}
	w.remark(fmt.Sprintf("From %s by herald migrate %s. Look at the comments, fill in what is left open,", shown(d.file), tool),
		"then: herald validate --config FILE")
	w.file()
	return []byte(w.String())
}

// file writes the whole configuration.
func (w *writer) file() {
	d := w.draft
	w.field("", "apiVersion", d.APIVersion)
	w.field("", "kind", d.Kind)
	w.field("", "nodeName", scalar(d.NodeName))
	if d.Services != nil {
		w.services(d.Services)
	}
	if len(d.VIPs) > 0 {
		w.section("vips", func() {
			for i := range d.VIPs {
				w.vip(fmt.Sprintf("vips[%d]", i), &d.VIPs[i])
			}
		})
	}
	if len(d.Checks) > 0 {
		w.section("checks", func() {
			for i := range d.Checks {
				w.check(fmt.Sprintf("checks[%d]", i), &d.Checks[i])
			}
		})
	}
	if len(d.Balancers) > 0 {
		w.section("balancers", func() {
			for i := range d.Balancers {
				w.balancer(fmt.Sprintf("balancers[%d]", i), &d.Balancers[i])
			}
		})
	}
	if d.BGP != nil {
		w.block("bgp", func() { w.bgp(d.BGP) })
	}
	if d.Election != nil {
		w.block("election", func() { w.election(d.Election) })
	}
	if d.ARP.Refresh != 0 {
		w.block("arp", func() { w.field("arp", "refresh", duration(d.ARP.Refresh)) })
	}
	if d.Metrics.Listen != "" {
		w.block("metrics", func() { w.field("metrics", "listen", scalar(d.Metrics.Listen)) })
	}
}

// services writes the section of Services. It gives no addresses yet: who applies it
// does so beside MetalLB's controller, which goes on to. Those Services that have a
// class of their own are not those without one.
func (w *writer) services(s *config.Services) {
	w.block("services", func() {
		w.field("services", "loadBalancerClass", scalar(s.LoadBalancerClass))
		if s.LoadBalancerClass != "" {
			w.field("services", "defaultClass", "false")
		}
		w.remark("Remove this when MetalLB's controller is gone, then restart Herald's pods.")
		w.field("services", "assign", strconv.FormatBool(s.Assign))
	})
}

func (w *writer) vip(path string, v *config.VIP) {
	w.list(path, func() {
		w.field(path, "name", scalar(v.Name))
		w.field(path, "addresses", list(v.Addresses, netip.Addr.String))
		w.field(path, "announce", string(v.Announce))
		w.field(path, "interface", scalar(v.Interface))
		w.field(path, "checks", list(v.Checks, strings.Clone))
		w.field(path, "priority", number(v.Priority))
		if v.Preempt {
			w.field(path, "preempt", "true")
		}
	})
}

func (w *writer) check(path string, c *config.Check) {
	w.list(path, func() {
		w.field(path, "name", scalar(c.Name))
		w.asks(path, c.HTTP, c.TCP)
	})
}

// asks writes what a check asks, which may be nothing.
func (w *writer) asks(path string, h *config.HTTPCheck, t *config.TCPCheck) {
	if t != nil {
		path := path + ".tcp"
		w.block("tcp", func() { w.field(path, "address", scalar(t.Address)) })
	}
	if h == nil {
		return
	}
	path += ".http"
	w.block("http", func() {
		w.field(path, "url", scalar(h.URL))
		w.field(path, "caFile", scalar(h.CAFile))
		w.field(path, "serverName", scalar(h.ServerName))
		if h.InsecureSkipVerify {
			w.field(path, "insecureSkipVerify", "true")
		}
		w.field(path, "clientCertFile", scalar(h.ClientCertFile))
		w.field(path, "clientKeyFile", scalar(h.ClientKeyFile))
		if len(h.Status) > 0 {
			w.field(path, "status", strings.ReplaceAll(fmt.Sprint(h.Status), " ", ", "))
		}
	})
}

func (w *writer) balancer(path string, b *config.Balancer) {
	w.list(path, func() {
		w.field(path, "name", scalar(b.Name))
		var places []string
		for _, l := range b.Listen {
			if l.VIP != "" {
				places = append(places, fmt.Sprintf("{vip: %s, port: %d}", scalar(l.VIP), l.Port))
			} else {
				places = append(places, "{address: "+scalar(l.Address.String())+"}")
			}
		}
		w.field(path, "listen", "["+strings.Join(places, ", ")+"]")
		switch m, s := b.Backends.Members, b.Backends.Static; {
		case m != nil:
			w.field(path, "backends", fmt.Sprintf("{members: {port: %d, checks: %s}}", m.Port, list(m.Checks, strings.Clone)))
		case s != nil:
			w.field(path, "backends", "{static: {addresses: "+list(s.Addresses, netip.AddrPort.String)+"}}")
		default: // to be filled in
			w.field(path, "backends", "")
		}
		if b.Check != nil {
			w.block("check", func() { w.asks(path+".check", b.Check.HTTP, b.Check.TCP) })
		}
		w.field(path, "method", string(b.Method))
	})
}

func (w *writer) bgp(b *config.BGP) {
	w.field("bgp", "asn", number(b.ASN))
	if b.RouterID.IsValid() {
		w.field("bgp", "routerID", scalar(b.RouterID.String()))
	}
	if len(b.Peers) == 0 {
		w.field("bgp", "peers", "")
		return
	}
	w.section("peers", func() {
		for i := range b.Peers {
			w.peer(fmt.Sprintf("bgp.peers[%d]", i), &b.Peers[i])
		}
	})
}

func (w *writer) peer(path string, p *config.Peer) {
	w.list(path, func() {
		w.field(path, "address", address(p.Address))
		w.field(path, "interface", scalar(p.Interface))
		w.field(path, "asn", number(p.ASN))
		w.field(path, "port", number(p.Port))
		w.field(path, "localAddress", address(p.LocalAddress))
		w.field(path, "passwordFile", scalar(p.PasswordFile))
		w.field(path, "holdTime", duration(p.HoldTime))
		w.field(path, "multihop", number(p.Multihop))
		w.field(path, "families", list(p.Families, func(f config.Family) string { return string(f) }))
		w.field(path, "nextHop4", address(p.NextHop4))
		w.field(path, "nextHop6", address(p.NextHop6))
		if p.BFD != nil {
			w.block("bfd", func() {
				w.field(path+".bfd", "interval", duration(p.BFD.Interval))
				w.field(path+".bfd", "multiplier", number(p.BFD.Multiplier))
			})
		}
	})
}

func (w *writer) election(e *config.Election) {
	if len(e.Members) == 0 {
		w.field("election", "members", "")
	} else {
		w.remark(w.comments["election.members"]...)
		w.block("members", func() {
			for _, name := range slices.Sorted(maps.Keys(e.Members)) {
				w.field("election.members", name, scalar(e.Members[name].String()))
			}
		})
	}
	w.field("election", "keyFile", scalar(e.KeyFile))
}

// field writes one line and its comments, or what is to be filled in instead, or
// nothing if there is no value.
func (w *writer) field(path, key, value string) {
	if path != "" {
		path += "."
	}
	path += key
	if hole := w.holes[path]; value == "" && hole != nil {
		w.remark(hole...)
	}
	if value != "" {
		w.remark(w.comments[path]...)
		w.line(key + ": " + value)
	}
}

// section writes a list under its key, at the same depth.
func (w *writer) section(key string, items func()) {
	w.remark(w.comments[key]...)
	w.line(key + ":")
	items()
}

// block writes fields under their key, one deeper.
func (w *writer) block(key string, fields func()) {
	w.line(key + ":")
	w.depth++
	fields()
	w.depth--
}

// list writes one item of a list.
func (w *writer) list(path string, fields func()) {
	w.remark(w.comments[path]...)
	w.item = true
	w.depth++
	fields()
	w.depth--
	if w.item { // none was written
		w.item = false
		w.line("- {}")
	}
}

func (w *writer) remark(lines ...string) {
	for _, line := range lines {
		w.WriteString(strings.Repeat("  ", w.depth) + "# " + line + "\n")
	}
}

func (w *writer) line(s string) {
	indent := strings.Repeat("  ", w.depth)
	if w.item {
		indent, w.item = indent[2:]+"- ", false
	}
	w.WriteString(indent + s + "\n")
}

// scalar is s as YAML text, in quotes unless it can be nothing else.
func scalar(s string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if s == "" {
		return ""
	}
	plain := strings.ContainsAny(s[:1], letters+"/")
	if _, err := netip.ParseAddr(s); err == nil {
		plain = !strings.Contains(s, ":")
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf":
		plain = false
	}
	if plain && strings.Trim(s, letters+"0123456789-._/:") == "" && !strings.HasSuffix(s, ":") {
		return s
	}
	return strconv.Quote(s)
}

// list is items as YAML on one line; nothing if there are none.
func list[T any](items []T, text func(T) string) string {
	if len(items) == 0 {
		return ""
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = scalar(text(item))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func number[T int | uint8 | uint16 | uint32](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return scalar(a.String())
}
