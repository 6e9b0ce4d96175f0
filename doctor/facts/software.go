package facts

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/herald-vip/herald/config"
)

// Rivals returns the program and image names of other announcers of addresses.
func Rivals() []string {
	return []string{"kube-vip", "keepalived", "ucarp", "vrrpd", "speaker", "metallb"}
}

// Routers returns the names of programs that speak BGP or BFD.
func Routers() []string {
	return []string{"bird", "bird6", "bgpd", "bfdd", "gobgpd", "exabgp"}
}

// Known returns the one of names that is the name or the first argument of p; empty if none.
func (p Program) Known(names []string) string {
	if slices.Contains(names, p.Name) {
		return p.Name
	}
	if len(p.Args) > 0 && slices.Contains(names, path.Base(p.Args[0])) {
		return path.Base(p.Args[0])
	}
	return ""
}

// mentions returns the VIPs that a text names.
func mentions(c *config.Config, text string) []netip.Addr {
	words := map[netip.Addr]bool{}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F') && r != '.' && r != ':'
	}) {
		word = strings.Trim(word, ".")
		if at, err := netip.ParseAddrPort(word); err == nil {
			words[at.Addr()] = true
		}
		if addr, err := netip.ParseAddr(word); err == nil {
			words[addr] = true
		}
	}
	var out []netip.Addr
	for _, v := range c.VIPs {
		for _, addr := range v.Addresses {
			if words[addr] {
				out = append(out, addr)
			}
		}
	}
	return out
}

// image returns the first image of a rival in a manifest; empty if there is none.
func image(manifest string) string {
	for line := range strings.Lines(manifest) {
		key, value, _ := strings.Cut(line, ":")
		words := strings.FieldsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"',", r) })
		if strings.Trim(key, " \t-\"") != "image" || len(words) == 0 {
			continue
		}
		for _, name := range Rivals() {
			if name != "speaker" && strings.Contains(words[0], name) {
				return words[0]
			}
		}
	}
	return ""
}
