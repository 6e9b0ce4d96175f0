package doctor

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/herald-vip/herald/config"
)

// rivals announce addresses themselves, by the names of their programs and images.
func rivals() []string {
	return []string{"kube-vip", "keepalived", "ucarp", "vrrpd", "speaker", "metallb"}
}

// routers are programs that speak BGP or BFD.
func routers() []string {
	return []string{"bird", "bird6", "bgpd", "bfdd", "gobgpd", "exabgp"}
}

// known is which of names a program is, by its name and the first of its arguments.
func known(names []string, program string, args []string) string {
	if slices.Contains(names, program) {
		return program
	}
	if len(args) > 0 && slices.Contains(names, path.Base(args[0])) {
		return path.Base(args[0])
	}
	return ""
}

// examineSoftware looks for programs that do the same, or hold ports and addresses
// that Herald needs.
func examineSoftware(c *config.Config, f *Facts) []Finding {
	const topic = "software"
	var out []Finding
	for _, p := range f.Programs {
		name := known(rivals(), p.Name, p.Args)
		if name == "" {
			continue
		}
		out = append(out, rival(fmt.Sprintf("%s, process %d", title(name), p.PID), "runs beside Herald", p.Mentions,
			"systemctl disable --now "+name+", or remove its pod"))
	}
	for _, m := range f.Manifests {
		out = append(out, rival(m.File, "is a static pod of "+m.Image, m.Mentions, "take it out of "+path.Dir(m.File)))
	}
	out = append(out, examineRouters(c, f)...)
	if len(out) == 0 {
		out = append(out, fine(topic, "this node", "nothing else that is known to announce addresses"))
	}
	return out
}

// title is what people know a program as.
func title(program string) string {
	if program == "speaker" {
		return "MetalLB's speaker"
	}
	return program
}

// rival judges something that announces addresses, with Herald's or others.
func rival(subject, seen string, mentions []netip.Addr, cure string) Finding {
	if len(mentions) > 0 {
		return blocker("software", subject, seen+", for the VIP "+join(mentions),
			"Two programs that manage one address take it from each other, and two nodes answer for it.", cure)
	}
	return warning("software", subject, seen, "No VIP of this file was found in its settings; see that it manages other addresses than Herald.", cure)
}

// examineRouters is about another BGP speaker here: a router that knows this node as
// one neighbour is confused by two.
func examineRouters(c *config.Config, f *Facts) []Finding {
	const bgp = 179
	if c.BGP == nil || f.local(c) {
		return nil
	}
	for _, s := range f.Sockets {
		if s.Network == "tcp" && s.Local.Port() == bgp && slices.Contains(routers(), s.Program) {
			return []Finding{warning("software", fmt.Sprintf("%s, process %d", s.Program, s.PID), "speaks BGP from this node, too",
				"A router has one session with a neighbour: if this one has it, Herald has none.",
				"peer from another localAddress, or have Herald peer with it: peers: [{address: 127.0.0.1, …}]")}
		}
	}
	return nil
}

// mentions are the VIPs that a text names.
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

// images are the images of rivals that a manifest names.
func images(manifest string) []string {
	var out []string
	for line := range strings.Lines(manifest) {
		image, found := strings.CutPrefix(strings.TrimLeft(line, " \t-\""), "image")
		if !found {
			continue
		}
		image = strings.Trim(image, "\": \t\r\n,")
		for _, name := range rivals() {
			if name != "speaker" && strings.Contains(image, name) {
				out = append(out, image)
				break
			}
		}
	}
	return out
}

func join(addrs []netip.Addr) string {
	names := make([]string, len(addrs))
	for i, addr := range addrs {
		names[i] = addr.String()
	}
	return list(names)
}
