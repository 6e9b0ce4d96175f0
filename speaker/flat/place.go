package flat

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/speaker"
)

// place is an address on a flat layer 2 and the link that carries it.
type place struct {
	addr    netip.Addr
	link    string // empty if no link can carry it
	lost    error  // why no link can carry it
	fixed   bool   // the file names the link
	yield   bool   // give it up when another host uses it
	service bool   // a Service's address

	priority int  // of this node as the holder, for a Service's address
	preempt  bool // it moves here from a holder of lower priority
}

// same reports whether two places make the same VIP.
func (p place) same(o place) bool {
	return p.addr == o.addr && p.link == o.link && p.priority == o.priority && p.preempt == o.preempt
}

func (p place) linkCheck() string {
	if p.link == "" {
		return "link of " + p.addr.String()
	}
	return "link " + p.link
}

func (p place) addressCheck() string { return "address " + p.addr.String() }

// checks names the address's own checks, which its VIP needs as well.
func (p place) checks() []string {
	if p.yield {
		return []string{p.linkCheck(), p.addressCheck()}
	}
	return []string{p.linkCheck()}
}

func (p place) watched() arp.Watched {
	w := arp.Watched{Link: p.link, Addr: p.addr, Probe: p.yield}
	if p.yield {
		w.Policy = arp.Yield
	}
	return w
}

// placeVIPs places the addresses of the file's VIPs: on the link that the file names, else on the result of find. If
// find fails, an address stays on the link found before, since the subnet may return.
func placeVIPs(c Config, before []place, find func(netip.Addr) (string, error)) []place {
	var out []place
	for _, v := range c.VIPs {
		if v.Flat == nil {
			continue
		}
		for _, addr := range v.Addresses {
			p := place{addr: addr, link: v.Interface, fixed: v.Interface != "", yield: c.Yield[v.Name]}
			if !p.fixed {
				p.link, p.lost = find(addr)
				found := func(b place) bool { return b.addr == addr && !b.fixed && !b.service && b.link != "" }
				if i := slices.IndexFunc(before, found); p.lost != nil && i >= 0 {
					p.link, p.lost = before[i].link, nil
				}
			}
			out = append(out, p)
		}
	}
	return out
}

// placeServices places the addresses of Services; none while links is nil. An address in the file
// belongs to the file's VIP and not to a Service.
func placeServices(c Config, node string, chosen []Address, links map[string]link.Link) []place {
	if links == nil {
		return nil
	}
	subnets := maps.Clone(links) // a node has far more links than subnets
	maps.DeleteFunc(subnets, func(_ string, l link.Link) bool { return len(l.Prefixes) == 0 })
	var out []place
	for _, a := range chosen {
		if slices.ContainsFunc(c.VIPs, func(v speaker.VIP) bool { return slices.Contains(v.Addresses, a.Addr) }) {
			continue
		}
		among := subnets
		if len(a.Interfaces) > 0 {
			among = links
		}
		p := place{addr: a.Addr, service: true}
		p.priority, p.preempt = a.claim(node)
		p.link, p.lost = link.Among(among, a.Interfaces, a.Addr)
		out = append(out, p)
	}
	return out
}

// verdictsOf returns the health of the places' links and, where yield is set, of their addresses. The
// keys are the names of the checks; times are not set. links is nil until they are known.
func verdictsOf(places []place, links map[string]link.Link, found map[netip.Addr]arp.Finding) map[string]health.Verdict {
	out := make(map[string]health.Verdict)
	add := func(check string, state health.State, reason string) {
		out[check] = health.Verdict{Name: check, State: state, Reason: reason}
	}
	for _, p := range places {
		link, known := links[p.link]
		switch check := p.linkCheck(); {
		case p.lost != nil:
			add(check, health.Unhealthy, p.lost.Error())
		case links == nil:
			add(check, health.Unknown, "state not known yet")
		case !known:
			add(check, health.Unhealthy, "there is no link "+p.link)
		case !link.Up:
			add(check, health.Unhealthy, "down or without carrier")
		case link.PortOf != "" && link.PortOf != "vrf":
			add(check, health.Unhealthy, "port of a "+link.PortOf+", which receives its packets: put the subnet's address on the "+link.PortOf)
		default:
			add(check, health.Healthy, "up")
		}
		f, ok := found[p.addr]
		if !ok || !p.yield || f.Link != p.link {
			continue
		}
		switch check := p.addressCheck(); f.State {
		case arp.Unknown:
			add(check, health.Unknown, "probing whether another host uses it")
		case arp.Taken:
			add(check, health.Unhealthy, fmt.Sprintf("in use by %s, which is no member", f.MAC))
		default:
			add(check, health.Healthy, "no other host uses it")
		}
	}
	return out
}

// vips returns the VIPs of c on their links, and the addresses of Services. A VIP with addresses on several links is
// returned once per link, with the checks of all of them. So all its addresses are announced and withdrawn together.
func vips(c Config, places []place) []speaker.VIP {
	var out []speaker.VIP
	byAddr := make(map[netip.Addr]place)
	for _, p := range places {
		byAddr[p.addr] = p
	}
	for _, v := range c.VIPs {
		if v.Flat == nil {
			out = append(out, v)
			continue
		}
		checks := slices.Clone(v.Checks)
		links := make(map[string][]netip.Addr)
		for _, addr := range v.Addresses {
			p := byAddr[addr]
			links[p.link] = append(links[p.link], addr)
			for _, check := range p.checks() {
				if !slices.Contains(checks, check) {
					checks = append(checks, check)
				}
			}
		}
		for _, link := range slices.Sorted(maps.Keys(links)) {
			part := v
			part.Interface, part.Addresses, part.Checks = link, links[link], checks
			out = append(out, part)
		}
	}
	for _, p := range places {
		if p.service {
			out = append(out, speaker.VIP{
				Name: p.addr.String(), Addresses: []netip.Addr{p.addr}, Service: true, Interface: p.link, Checks: p.checks(), Linger: c.Linger,
				Flat: &speaker.Flat{Priority: p.priority, Preempt: p.preempt, Lifetime: c.Lifetime, Leases: LeasesOf("", p.addr)},
			})
		}
	}
	return out
}

// askAsNode sets arp_announce on the links of places, so that the kernel's ARP requests name the node's
// own address. A request from a VIP would tell neighbours that the VIP is here. It skips links that
// have the setting already, since /proc/sys may be read-only.
func askAsNode(places []place) error {
	asked := map[string]bool{"": true}
	for _, p := range places {
		if asked[p.link] || !p.addr.Is4() {
			continue
		}
		asked[p.link] = true
		if value, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + p.link + "/arp_announce"); err == nil && strings.TrimSpace(string(value)) == strconv.Itoa(link.AnnounceOwn) {
			continue
		}
		err := link.ARPAnnounce.Set(p.link, link.AnnounceOwn)
		if err != nil && !errors.Is(err, unix.ENODEV) { // the verdict of the link reports its absence
			return err
		}
	}
	return nil
}
