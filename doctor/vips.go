package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
)

// examineVIPs looks at the link of each address, and at who has the address already.
func examineVIPs(c *config.Config, f *facts.Facts) []Finding {
	if f.HostError != nil {
		return []Finding{warning("vip", "all", "the node's links cannot be read: "+f.HostError.Error(), "Links and addresses are not examined.", "run herald doctor as root")}
	}
	var out []Finding
	for _, v := range c.VIPs {
		for _, addr := range v.Addresses {
			out = append(out, examineAddress(c, f, v, addr)...)
		}
	}
	return out
}

func examineAddress(c *config.Config, f *facts.Facts, v config.VIP, addr netip.Addr) []Finding {
	const topic = "vip"
	subject := v.Name + " " + addr.String()
	link, err := f.Carrier(v, addr)
	if err != nil {
		return []Finding{blocker(topic, subject, strings.TrimPrefix(err.Error(), "find the link for "+addr.String()+": "),
			"On a flat layer 2 a VIP belongs to the subnet of its clients' link.",
			"an address of a subnet below, or interface: "+subnets(f))}
	}
	l, there := f.Host.Links[link]
	switch {
	case !there:
		return []Finding{blocker(topic, subject, "there is no link "+link, "The VIP has nowhere to go.", "ip link; then interface: NAME")}
	case !l.Up && !(link == "lo" || l.Kind == "dummy"):
		return []Finding{blocker(topic, subject, "link "+link+" is down or has no carrier", "The VIP stays away until it is up.", "ip link set "+link+" up; look at cable, switch port and bond")}
	}
	for _, a := range f.Host.Addresses {
		if a.Prefix.Addr() == addr && !a.Herald {
			return []Finding{blocker(topic, subject, fmt.Sprintf("%s is on %s already, and Herald did not put it there", a.Prefix, a.Link),
				"Herald leaves an address alone that somebody else manages: it could neither announce it nor take it back.",
				fmt.Sprintf("ip address del %s dev %s, and stop what adds it", a.Prefix, a.Link))}
		}
	}
	if v.Announce != config.AnnounceARP {
		return []Finding{fine(topic, subject, "goes on "+link+", where nobody else has put it")}
	}
	if !slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return []Finding{warning(topic, subject, "no address of "+link+" is in its subnet",
			"Clients of that link find the holder, but it has no way back to them by that link.",
			fmt.Sprintf("ip address add an address of the VIP's subnet on %s, or another interface", link))}
	}
	return []Finding{examineWire(c, f, link, addr, subject)}
}

// subnets lists what there is to choose from.
func subnets(f *facts.Facts) string {
	var out []string
	for _, l := range f.Links() {
		for _, p := range l.Prefixes {
			if l.Name != "lo" {
				out = append(out, l.Name+" ("+p.String()+")")
			}
		}
	}
	return cmp.Or(strings.Join(out, ", "), "NAME; no link has a subnet yet")
}

// examineWire examines who answers for the address on its link.
func examineWire(c *config.Config, f *facts.Facts, link string, addr netip.Addr, subject string) Finding {
	const topic, why = "vip", "Two machines that answer for one address each get a part of its clients."
	use := f.Wire[addr]
	member := f.Member(c, use.MAC)
	switch {
	case use.Err != nil:
		return warning(topic, subject, "on "+link+"; whether somebody uses it already cannot be asked: "+use.Err.Error(),
			why, "run herald doctor as root")
	case use.MAC == nil:
		return fine(topic, subject, "on "+link+", and nobody else answers for it")
	case use.Stranger == nil && f.Members[member].TCP == facts.Refused:
		return blocker(topic, subject, fmt.Sprintf("on %s, in use by %s at %s, where Herald does not run", link, member, use.MAC), why,
			fmt.Sprintf("on %s: ip address show to %s, and stop what put it there; what a Herald leaves is gone after 10 s", member, addr))
	case use.Stranger == nil:
		return fine(topic, subject, fmt.Sprintf("on %s, held by %s at %s", link, member, use.MAC))
	}
	cure := fmt.Sprintf("find it by the switch's table of MAC addresses, or ip neigh | grep %s; take the address off it", use.Stranger)
	if far := farMembers(c, f, link); len(far) > 0 {
		return warning(topic, subject, fmt.Sprintf("on %s, in use by %s: whether that is %s cannot be told from here", link, use.Stranger, list(far)),
			why, fmt.Sprintf("compare ip link on %s; if it is none of theirs, %s", list(far), cure))
	}
	return blocker(topic, subject, fmt.Sprintf("on %s, in use by %s, which is no member", link, use.Stranger), why, cure)
}

// farMembers are the members that are in no subnet of the link, so that their hardware addresses on it are not known.
func farMembers(c *config.Config, f *facts.Facts, link string) []string {
	var out []string
	for _, name := range facts.Others(c) {
		addr := c.Election.Members[name].Addr()
		if !slices.ContainsFunc(f.Host.Links[link].Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			out = append(out, name)
		}
	}
	return out
}

// list joins names: a, b and c.
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
