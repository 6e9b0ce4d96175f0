package doctor

import (
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
)

// examineSoftware looks for other programs that announce addresses or speak BGP.
func examineSoftware(c *config.Config, f *facts.Facts, out *findings) {
	before := len(out.all)
	for _, p := range f.Programs {
		if name := p.Known(facts.Rivals()); name != "" {
			rival(fmt.Sprintf("%s, process %d", title(name), p.PID), "runs beside Herald", p.Mentions,
				"systemctl disable --now "+name+", or remove its pod", out)
		}
	}
	for _, m := range f.Manifests {
		rival(m.File, "is a static pod of "+m.Image, m.Mentions, "remove it from "+path.Dir(m.File), out)
	}
	examineRouters(c, f, out)
	if len(out.all) == before {
		out.fine("this node", "no other program that announces addresses")
	}
}

// title returns the common name of a program.
func title(program string) string {
	if program == "speaker" {
		return "MetalLB's speaker"
	}
	return program
}

// rival reports another announcer of addresses: a blocker if its settings mention a VIP.
func rival(subject, seen string, mentions []netip.Addr, cure string, out *findings) {
	if len(mentions) > 0 {
		out.blocker(subject, seen+", for the VIP "+join(mentions),
			"Two programs that manage one address take it from each other, and two nodes answer for it.", cure)
	} else {
		out.warning(subject, seen, "No VIP of this file was found in its settings; check that it manages other addresses than Herald.", cure)
	}
}

// examineRouters looks for another BGP speaker on this node: a router has one session with each
// neighbour address.
func examineRouters(c *config.Config, f *facts.Facts, out *findings) {
	const bgp = 179
	if c.BGP == nil || hasRouter(c, f) {
		return
	}
	for _, s := range f.Sockets {
		if s.Network == "tcp" && s.Local.Port() == bgp && slices.Contains(facts.Routers(), s.Program) {
			out.warning(fmt.Sprintf("%s, process %d", s.Program, s.PID), "also speaks BGP from this node",
				"A router has one session with a neighbour: if this one has it, Herald has none.",
				"peer from another localAddress, or have Herald peer with it: peers: [{address: 127.0.0.1, …}]")
			return
		}
	}
}

func join(addrs []netip.Addr) string {
	names := make([]string, len(addrs))
	for i, addr := range addrs {
		names[i] = addr.String()
	}
	return list(names)
}
