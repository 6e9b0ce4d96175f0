package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// examineVIPs looks at the link of each address, and at who has the address already.
func examineVIPs(c *config.Config, f *facts.Facts, out *findings) {
	if f.HostError != nil {
		out.warning("all", "the node's links cannot be read: "+f.HostError.Error(), "Links and addresses are not examined.", "run herald doctor as root")
		return
	}
	for _, v := range c.VIPs {
		for _, addr := range v.Addresses {
			examineAddress(c, f, v, addr, out)
		}
	}
	examineArrivals(f, out)
}

// examineArrivals says for how long no connection has come to a VIP that is announced, as a running Herald counts
// them. Whether anybody wanted one cannot be told from here.
func examineArrivals(f *facts.Facts, out *findings) {
	if f.Running == nil {
		return
	}
	for _, v := range f.Running.VIPs {
		elsewhere := "a router does not use this node's route"
		if v.Announce == speaker.ByARP {
			elsewhere = "the switch or a gateway sends its packets elsewhere"
		}
		if since := v.Quiet(f.Now); since > 0 {
			out.fine(v.Name+" "+v.Address.String(), fmt.Sprintf("announced; no new TCP connection has come here for %v: if other nodes get some, %s", since, elsewhere))
		}
	}
}

// nonlocalBind lets servers bind addresses of IPv6 that are on no link.
const nonlocalBind = "net/ipv6/ip_nonlocal_bind"

func examineAddress(c *config.Config, f *facts.Facts, v config.VIP, addr netip.Addr, out *findings) {
	subject := v.Name + " " + addr.String()
	on, err := f.Carrier(v, addr)
	l, there := f.Host.Links[on]
	inTable := v.Announce == config.AnnounceKernel
	foreign := slices.IndexFunc(f.Host.Addresses, func(a link.Address) bool { return a.Prefix.Addr() == addr && !a.Herald })
	switch {
	case err != nil:
		out.blocker(subject, strings.TrimPrefix(err.Error(), "find the link for "+addr.String()+": "),
			"On a flat layer 2 a VIP belongs to the subnet of its clients' link.",
			"an address of a subnet below, or interface: "+subnets(f))
	case inTable && f.TunError != nil:
		out.blocker(subject, fmt.Sprintf("%s cannot be opened: %v", route.TunDevice, f.TunError),
			"The VIP's route needs a link that goes with Herald, and that is made there.", "modprobe tun; in a container, mount "+route.TunDevice)
	case !there && !inTable:
		out.blocker(subject, "there is no link "+on, "The VIP has nowhere to go.", "ip link; then interface: NAME")
	case there && !l.Up && !(on == "lo" || l.Kind == "dummy"):
		out.blocker(subject, "link "+on+" is down or has no carrier", "The VIP stays away until it is up.", "ip link set "+on+" up; look at cable, switch port and bond")
	case foreign >= 0:
		a := f.Host.Addresses[foreign]
		out.blocker(subject, fmt.Sprintf("%s is on %s already, and Herald did not put it there", a.Prefix, a.Link),
			"Herald leaves an address alone that somebody else manages: it could neither announce it nor take it back.",
			fmt.Sprintf("ip address del %s dev %s, and stop what adds it", a.Prefix, a.Link))
	case inTable && addr.Is6() && f.Settings[nonlocalBind] == "0":
		out.warning(subject, dotted(nonlocalBind)+" is 0",
			"A server that binds the VIP, or answers datagrams in its name, cannot: it is no address of a link. One that listens on all addresses by TCP can.",
			"sysctl -w "+dotted(nonlocalBind)+"=1, or have the server ask for IPV6_FREEBIND")
	case inTable:
		out.fine(subject, fmt.Sprintf("a routing daemon of this node has to announce it from table %d, which cannot be seen from here", v.Kernel.Table))
	case v.Announce != config.AnnounceARP:
		out.fine(subject, "goes on "+on+", where nobody else has put it")
	case !reaches(l, addr):
		out.warning(subject, "no address of "+on+" is in its subnet",
			"Clients of that link find the holder, but it has no way back to them by that link.",
			fmt.Sprintf("ip address add an address of the VIP's subnet on %s, or another interface", on))
	default:
		examineWire(c, f, on, addr, subject, out)
	}
}

// reaches says whether addr is in a subnet of the link.
func reaches(l link.Link, addr netip.Addr) bool {
	return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
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
func examineWire(c *config.Config, f *facts.Facts, link string, addr netip.Addr, subject string, out *findings) {
	const why = "Two machines that answer for one address each get a part of its clients."
	use := f.Wire[addr]
	member, far := f.Member(c, use.MAC), farMembers(c, f, link)
	cure := fmt.Sprintf("find it by the switch's table of MAC addresses, or ip neigh | grep %s; take the address off it", use.Stranger)
	switch {
	case use.Err != nil:
		out.warning(subject, "on "+link+"; whether somebody uses it already cannot be asked: "+use.Err.Error(),
			why, "run herald doctor as root")
	case use.MAC == nil:
		out.fine(subject, "on "+link+", and nobody else answers for it")
	case use.Stranger == nil && f.Members[member].TCP == facts.Refused:
		out.blocker(subject, fmt.Sprintf("on %s, in use by %s at %s, where Herald does not run", link, member, use.MAC), why,
			fmt.Sprintf("on %s: ip address show to %s, and stop what put it there; what a Herald leaves is gone after 10 s", member, addr))
	case use.Stranger == nil:
		out.fine(subject, fmt.Sprintf("on %s, held by %s at %s", link, member, use.MAC))
	case len(far) > 0:
		out.warning(subject, fmt.Sprintf("on %s, in use by %s: whether that is %s cannot be told from here", link, use.Stranger, list(far)),
			why, fmt.Sprintf("compare ip link on %s; if it is none of theirs, %s", list(far), cure))
	default:
		out.blocker(subject, fmt.Sprintf("on %s, in use by %s, which is no member", link, use.Stranger), why, cure)
	}
}

// farMembers are the members that are in no subnet of the link, so that their hardware addresses on it are not known.
func farMembers(c *config.Config, f *facts.Facts, link string) []string {
	var out []string
	for _, name := range facts.Others(c) {
		if !reaches(f.Host.Links[link], c.Election.Members[name].Addr()) {
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
