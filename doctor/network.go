package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/status/admin"
)

// effective returns a setting of link, which is the greater of the link's own value and that of "all".
func effective(f *facts.Facts, name, link string) int {
	all, _ := strconv.Atoi(f.Settings["net/ipv4/conf/all/"+name])
	own, _ := strconv.Atoi(f.Settings["net/ipv4/conf/"+link+"/"+name])
	return max(all, own)
}

func examineIPv6(c *config.Config, f *facts.Facts, out *findings) {
	for _, v := range c.VIPs {
		i := slices.IndexFunc(v.Addresses, netip.Addr.Is6)
		if i < 0 {
			continue
		}
		link, err := f.Carrier(v, v.Addresses[i])
		if err != nil {
			continue // a finding of its own
		}
		setting := "net/ipv6/conf/" + link + "/disable_ipv6"
		if off, known := f.Settings[setting]; known && off != "0" {
			out.blocker(dotted(setting), off+": IPv6 is off there",
				fmt.Sprintf("%s cannot be put on %s.", v.Addresses[i], link), "sysctl -w "+dotted(setting)+"=0")
		}
	}
}

// examineReversePath examines rp_filter on nodes with several links. A strict filter drops a packet
// unless the route back to its source uses the same link.
func examineReversePath(c *config.Config, f *facts.Facts, out *findings) {
	const name, strict = "rp_filter", 1
	why := "Packets to the VIP that arrive on another link than the route back to the client are dropped silently."
	if !slices.ContainsFunc(facts.Addresses(c, config.AnnounceBGP, config.AnnounceKernel), netip.Addr.Is4) {
		if len(facts.Places(c, balancer.Kernel)) == 0 {
			return
		}
		why = "Answers of a backend that arrive on another link than the route to it are dropped silently."
	}
	var uplinks, filtered []string
	for _, l := range f.Links() {
		if l.Name == "lo" || !l.Up || !slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() }) {
			continue
		}
		uplinks = append(uplinks, l.Name)
		if effective(f, name, l.Name) == strict {
			filtered = append(filtered, l.Name)
		}
	}
	switch {
	case len(filtered) == 0:
		out.fine(name, "not strict")
	case len(uplinks) == 1:
		out.fine(name, "strict, and there is only one link")
	default:
		out.warning(name, fmt.Sprintf("strict on %s, of %s with addresses", list(filtered), count(len(uplinks), "link")),
			why, "sysctl -w net.ipv4.conf.all.rp_filter=2")
	}
}

// examineARPAnswers examines arp_ignore for VIPs on lo that are in the subnet of a link: every node
// would answer ARP for them.
func examineARPAnswers(c *config.Config, f *facts.Facts, out *findings) {
	const name = "arp_ignore"
	for _, addr := range facts.Addresses(c, config.AnnounceBGP, config.AnnounceKernel) {
		link, err := f.Host.For(addr)
		switch {
		case err != nil || !addr.Is4():
		case effective(f, name, link) == 0:
			out.warning(name, fmt.Sprintf("0 on %s, and its subnet has the VIP %s", link, addr),
				"Every node that has the VIP answers ARP for it there: clients on that segment reach any of them, regardless of the routes.",
				"sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2, or a VIP outside of every subnet")
		default:
			out.fine(name, fmt.Sprintf("set on %s, and its subnet has the VIP %s", link, addr))
		}
	}
}

// examineStrictARP examines strictARP of kube-proxy in IPVS mode, which adds the addresses of all
// Services to a link of its own.
func examineStrictARP(c *config.Config, f *facts.Facts, out *findings) {
	const link = "kube-ipvs0"
	_, ipvs := f.Host.Links[link]
	switch {
	case !ipvs || !c.Flat():
	case effective(f, "arp_ignore", "all") > 0:
		out.fine(link, "kube-proxy has strictARP")
	default:
		out.warning(link, "kube-proxy runs in IPVS mode without strictARP",
			"The node answers ARP for the address of every Service, even if another node holds it.",
			"set ipvs.strictARP: true in the kube-proxy ConfigMap of kube-system and restart kube-proxy")
	}
}

// examineNeighbourTable compares the size of the neighbour table with its entries and the VIPs.
func examineNeighbourTable(c *config.Config, f *facts.Facts, out *findings) {
	for _, family := range []struct {
		setting string
		present func(netip.Addr) bool
	}{
		{"net/ipv4/neigh/default/gc_thresh3", netip.Addr.Is4},
		{"net/ipv6/neigh/default/gc_thresh3", netip.Addr.Is6},
	} {
		room, err := strconv.Atoi(f.Settings[family.setting])
		used := 0
		for _, n := range f.Host.Neighbours {
			if family.present(n.Addr) {
				used++
			}
		}
		for _, vip := range facts.Addresses(c, config.AnnounceARP) {
			if family.present(vip) {
				used++
			}
		}
		if err != nil || used < room*3/4 { // network namespaces have no such setting
			continue
		}
		out.warning(dotted(family.setting), fmt.Sprintf("%d, and %d neighbours and VIPs", room, used),
			"When the table is full, the node cannot reach new neighbours.",
			fmt.Sprintf("sysctl -w %s=%d, and likewise on the other nodes and routers of the segment", dotted(family.setting), 4*room))
	}
}

// examineFence examines the fence, which stops a frozen holder from answering.
func examineFence(c *config.Config, f *facts.Facts, out *findings) {
	const subject = "fence"
	const why = "If Herald freezes, this node and the next holder may both answer for a VIP for up to 10 s."
	running := f.Running != nil && f.Running.Election != nil
	switch err := f.FenceError; {
	case !c.Flat():
	case c.ARP.Fence == config.FenceOff:
		out.warning(subject, "arp.fence is off", why, "arp: {fence: auto}")
	case running && f.Running.Election.Fence == admin.FenceOn:
		out.fine(subject, "on")
	case running:
		out.warning(subject, "Herald runs without: "+f.Running.Election.Fence, why, "modprobe nf_tables, or CAP_NET_ADMIN")
	case err == nil && f.FenceLeft:
		out.fine(subject, "left by an earlier Herald; the next one takes it over")
	case err == nil:
		out.fine(subject, "the kernel supports all required features of nftables")
	case !errors.Is(err, fence.ErrUnsupported):
		out.warning(subject, "cannot be tested: "+err.Error(), why, "run herald doctor as root")
	case c.ARP.Fence == config.FenceRequired:
		out.blocker(subject, err.Error(), "With arp.fence: required Herald does not start.", "modprobe nf_tables, and run as root")
	default:
		out.warning(subject, err.Error(), why, "modprobe nf_tables, and run as root")
	}
}

// examineFilters looks for filters of forwarded packets with the policy drop, such as Docker's. It does
// not examine their rules.
func examineFilters(c *config.Config, f *facts.Facts, out *findings) {
	for _, chain := range f.ForwardDrops {
		var addrs, cures []string
		for _, addr := range facts.Passed(c) {
			if chain.Sees(addr) {
				addrs, cures = append(addrs, addr.String()), append(cures, accept(chain, addr))
			}
		}
		if len(addrs) > 0 {
			out.warning("forwarding", "the policy of chain "+chain.String()+" is drop",
				"Connections to "+strings.Join(addrs, ", ")+" that Herald passes on from other hosts to another node may be dropped, unless a rule accepts them.",
				"nft list chain "+chain.String()+"; if no rule accepts them: "+strings.Join(cures, "; "))
		}
	}
}

// accept returns the command that makes a chain accept connections to addr and their answers.
func accept(chain ruleset.ChainID, addr netip.Addr) string {
	family, iptables := "ip", "iptables"
	if addr.Is6() {
		family, iptables = "ip6", "ip6tables"
	}
	if chain == (ruleset.ChainID{Family: family, Table: "filter", Name: "FORWARD"}) { // iptables cannot list a chain that has rules of nft
		return fmt.Sprintf("%s -I FORWARD -m conntrack --ctorigdst %s -j ACCEPT", iptables, addr)
	}
	return fmt.Sprintf("nft insert rule %s ct original %s daddr %s accept", chain, family, addr)
}
