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

// examineVIPs examines the link of each VIP address and whether the address is in use.
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

// examineArrivals reports how long an announced VIP has had no new connection, as a running Herald counts
// them. Clients may simply not have opened one.
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
			out.fine(v.Name+" "+v.Address.String(), fmt.Sprintf("announced; no new TCP connection for %v: if other nodes get some, %s", since, elsewhere))
		}
	}
}

// nonlocalBind is the setting that lets servers bind IPv6 addresses that no link has.
const nonlocalBind = "net/ipv6/ip_nonlocal_bind"

func examineAddress(c *config.Config, f *facts.Facts, v config.VIP, addr netip.Addr, out *findings) {
	subject := v.Name + " " + addr.String()
	carrier, err := f.Carrier(v, addr)
	l, there := f.Host.Links[carrier]
	inTable := v.Announce == config.AnnounceKernel
	foreign := slices.IndexFunc(f.Host.Addresses, func(a link.Address) bool { return a.Prefix.Addr() == addr && !a.Herald })
	switch {
	case err != nil:
		out.blocker(subject, strings.TrimPrefix(err.Error(), "find the link for "+addr.String()+": "),
			"On a flat layer 2 a VIP belongs to the subnet of its clients' link.",
			"choose an address in one of these subnets, or set interface: "+subnets(f))
	case inTable && f.TunError != nil:
		out.blocker(subject, fmt.Sprintf("%s cannot be opened: %v", route.TunDevice, f.TunError),
			"Herald creates the link for the VIP's route there, so that the route ends with Herald.", "modprobe tun; in a container, mount "+route.TunDevice)
	case !there && !inTable:
		out.blocker(subject, "there is no link "+carrier, "The VIP cannot be put on a link.", "ip link; then correct interface")
	case there && !l.Up && !(carrier == "lo" || l.Kind == "dummy"):
		out.blocker(subject, "link "+carrier+" is down or has no carrier", "The VIP waits until it is up.", "ip link set "+carrier+" up; check cable, switch port and bond")
	case foreign >= 0:
		a := f.Host.Addresses[foreign]
		out.blocker(subject, fmt.Sprintf("%s is on %s already, and Herald did not put it there", a.Prefix, a.Link),
			"Herald does not manage an address that another program has added: it neither announces nor removes it.",
			fmt.Sprintf("ip address del %s dev %s, and stop what adds it", a.Prefix, a.Link))
	case inTable && addr.Is6() && f.Settings[nonlocalBind] == "0":
		out.warning(subject, dotted(nonlocalBind)+" is 0",
			"No link has the VIP, so a server can neither bind it nor answer datagrams from it. A TCP server that listens on all addresses can answer.",
			"sysctl -w "+dotted(nonlocalBind)+"=1, or have the server ask for IPV6_FREEBIND")
	case inTable:
		out.fine(subject, fmt.Sprintf("a routing daemon on this node must announce it from table %d, which is not visible from here", v.Kernel.Table))
	case v.Announce != config.AnnounceARP:
		out.fine(subject, "goes on "+carrier+", and no other program has put it there")
	case !reaches(l, addr):
		out.warning(subject, "no address of "+carrier+" is in its subnet",
			"Clients on that link reach the holder, but it has no route back to them on that link.",
			fmt.Sprintf("ip address add an address of the VIP's subnet on %s, or another interface", carrier))
	default:
		examineWire(c, f, carrier, addr, subject, out)
	}
}

// reaches reports whether addr is in a subnet of the link.
func reaches(l link.Link, addr netip.Addr) bool {
	return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// subnets lists the links and their subnets, without lo.
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

// examineWire examines which machine answers for addr on its link.
func examineWire(c *config.Config, f *facts.Facts, link string, addr netip.Addr, subject string, out *findings) {
	const why = "Two machines that answer for one address each get a part of its clients."
	use := f.Wire[addr]
	member, far := f.Member(c, use.MAC), farMembers(c, f, link)
	cure := fmt.Sprintf("find it by the switch's table of MAC addresses, or ip neigh | grep %s; take the address off it", use.Stranger)
	switch {
	case use.Err != nil:
		out.warning(subject, "on "+link+"; cannot probe for other machines that use it: "+use.Err.Error(),
			why, "run herald doctor as root")
	case use.MAC == nil:
		out.fine(subject, "on "+link+", and no other machine answers for it")
	case use.Stranger == nil && f.Members[member].TCP == facts.Refused:
		out.blocker(subject, fmt.Sprintf("on %s, in use by %s at %s, where Herald does not run", link, member, use.MAC), why,
			fmt.Sprintf("on %s: ip address show to %s, and stop the program that added it; an address that Herald left expires after 10 s", member, addr))
	case use.Stranger == nil:
		out.fine(subject, fmt.Sprintf("on %s, held by %s at %s", link, member, use.MAC))
	case len(far) > 0:
		out.warning(subject, fmt.Sprintf("on %s, in use by %s, which may or may not be %s", link, use.Stranger, list(far)),
			why, fmt.Sprintf("compare ip link on %s; if it is none of theirs, %s", list(far), cure))
	default:
		out.blocker(subject, fmt.Sprintf("on %s, in use by %s, which is no member", link, use.Stranger), why, cure)
	}
}

// farMembers returns the members outside the subnets of the link: their MAC addresses on it are unknown.
func farMembers(c *config.Config, f *facts.Facts, link string) []string {
	return slices.DeleteFunc(facts.Others(c), func(name string) bool { return reaches(f.Host.Links[link], c.Election.Members[name].Addr()) })
}

// list joins names as "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
