package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/status/admin"
)

// examineNetwork looks at the settings of the kernel that VIPs depend on.
func examineNetwork(c *config.Config, f *facts.Facts) []Finding {
	return slices.Concat(examineIPv6(c, f), examineReversePath(c, f), examineARPAnswers(c, f), examineARPQuestions(c, f), examineNeighbourTable(c, f))
}

// effective is a setting that is the greater of a link's own and that for all.
func effective(f *facts.Facts, name, link string) int {
	all, _ := strconv.Atoi(f.Settings["net/ipv4/conf/all/"+name])
	own, _ := strconv.Atoi(f.Settings["net/ipv4/conf/"+link+"/"+name])
	return max(all, own)
}

func examineIPv6(c *config.Config, f *facts.Facts) []Finding {
	const topic = "node"
	var out []Finding
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
			out = append(out, blocker(topic, dotted(setting), off+": IPv6 is off there",
				fmt.Sprintf("%s cannot be put on %s.", v.Addresses[i], link), "sysctl -w "+dotted(setting)+"=0"))
		}
	}
	return out
}

// examineReversePath is about nodes with several links: what a router sends by one may
// be answered by another, and a strict filter drops it.
func examineReversePath(c *config.Config, f *facts.Facts) []Finding {
	const topic, name, strict = "node", "rp_filter", 1
	why := "A connection to the VIP that comes in by one link while the way back is by another is dropped without a word."
	if !slices.ContainsFunc(facts.Addresses(c, config.AnnounceBGP), netip.Addr.Is4) {
		if !facts.Balances(c, config.Kernel) {
			return nil
		}
		why = "Answers of a backend that come in by another link than the way to it are dropped without a word."
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
		return []Finding{fine(topic, name, "not strict")}
	case len(uplinks) == 1:
		return []Finding{fine(topic, name, "strict, with which one link gets along")}
	}
	return []Finding{warning(topic, name, fmt.Sprintf("strict on %s, of %s with addresses", list(filtered), count(len(uplinks), "link")),
		why, "sysctl -w net.ipv4.conf.all.rp_filter=2")}
}

// examineARPAnswers is about VIPs on lo that lie in the subnet of a link: every node
// would answer ARP for them.
func examineARPAnswers(c *config.Config, f *facts.Facts) []Finding {
	const topic, name = "node", "arp_ignore"
	var out []Finding
	for _, addr := range facts.Addresses(c, config.AnnounceBGP) {
		if !addr.Is4() {
			continue
		}
		link, err := f.Host.For(addr)
		if err != nil {
			continue
		}
		if effective(f, name, link) == 0 {
			out = append(out, warning(topic, name, fmt.Sprintf("0 on %s, whose subnet has the VIP %s", link, addr),
				"Every node that has the VIP answers ARP for it there: clients on that segment go to any one, and the routes do not count.",
				"sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2, or a VIP outside of every subnet"))
		} else {
			out = append(out, fine(topic, name, fmt.Sprintf("set on %s, whose subnet has the VIP %s", link, addr)))
		}
	}
	return append(out, examineStrictARP(c, f)...)
}

// examineStrictARP is about kube-proxy in IPVS mode, which puts the addresses of all Services
// on a link of its own.
func examineStrictARP(c *config.Config, f *facts.Facts) []Finding {
	const link = "kube-ipvs0"
	if _, ipvs := f.Host.Links[link]; !ipvs || !c.Flat() {
		return nil
	}
	if effective(f, "arp_ignore", "all") > 0 {
		return []Finding{fine("node", link, "kube-proxy has strictARP")}
	}
	return []Finding{warning("node", link, "kube-proxy runs in IPVS mode without strictARP",
		"The node answers ARP for the address of every Service, even if another node holds it.",
		"set ipvs.strictARP: true in the kube-proxy ConfigMap of kube-system and restart kube-proxy")}
}

// examineARPQuestions is about what Herald sets for links with VIPs, or cannot.
func examineARPQuestions(c *config.Config, f *facts.Facts) []Finding {
	const topic, name, wanted = "node", "arp_announce", 2
	const why = "The kernel may ask for neighbours in the name of a VIP, which tells them that it is here."
	if f.Running != nil && f.Running.Election != nil {
		if asks := f.Running.Election.AsksAsVIP; asks != "" {
			return []Finding{warning(topic, name, "Herald cannot: "+asks, why, "run that on the host, and keep it in /etc/sysctl.d")}
		}
		return nil
	}
	if !f.ReadOnlySettings {
		return nil
	}
	var out []Finding
	seen := map[string]bool{}
	for _, v := range c.VIPs {
		if v.Announce != config.AnnounceARP || !slices.ContainsFunc(v.Addresses, netip.Addr.Is4) {
			continue
		}
		link, err := f.Carrier(v, v.Addresses[slices.IndexFunc(v.Addresses, netip.Addr.Is4)])
		if err != nil || seen[link] || effective(f, name, link) == wanted {
			continue
		}
		seen[link] = true
		out = append(out, warning(topic, name, fmt.Sprintf("not %d on %s, and /proc/sys cannot be written", wanted, link),
			why, "sysctl -w net/ipv4/conf/"+link+"/arp_announce=2 on the host"))
	}
	return out
}

// examineNeighbourTable compares the room for neighbours with how many there are.
func examineNeighbourTable(c *config.Config, f *facts.Facts) []Finding {
	const topic = "node"
	var out []Finding
	for _, family := range []struct {
		setting string
		is      func(netip.Addr) bool
	}{
		{"net/ipv4/neigh/default/gc_thresh3", netip.Addr.Is4},
		{"net/ipv6/neigh/default/gc_thresh3", netip.Addr.Is6},
	} {
		room, err := strconv.Atoi(f.Settings[family.setting])
		used := 0
		for _, n := range f.Host.Neighbours {
			if family.is(n.Addr) {
				used++
			}
		}
		for _, vip := range facts.Addresses(c, config.AnnounceARP) {
			if family.is(vip) {
				used++
			}
		}
		if err != nil || used < room*3/4 { // inside a network namespace there is no such setting
			continue
		}
		out = append(out, warning(topic, dotted(family.setting), fmt.Sprintf("%d, and %d neighbours and VIPs", room, used),
			"When the table is full the node cannot reach neighbours that it does not know yet.",
			fmt.Sprintf("sysctl -w %s=%d, and likewise on the other nodes and routers of the segment", dotted(family.setting), 4*room)))
	}
	return out
}

// examineFence looks at what keeps a frozen holder from answering.
func examineFence(c *config.Config, f *facts.Facts) []Finding {
	const topic, subject = "node", "fence"
	if !c.Flat() {
		return nil
	}
	const why = "Should Herald freeze, this node may answer for a VIP beside the next holder for up to 10 s."
	if c.ARP.Fence == config.FenceOff {
		return []Finding{warning(topic, subject, "arp.fence is off", why, "arp: {fence: auto}")}
	}
	if f.Running != nil && f.Running.Election != nil {
		if e := f.Running.Election; e.Fence != admin.FenceOn {
			return []Finding{warning(topic, subject, "Herald runs without: "+e.Fence, why, "modprobe nf_tables, or CAP_NET_ADMIN")}
		}
		return []Finding{fine(topic, subject, "on")}
	}
	switch err := f.FenceError; {
	case err == nil && f.FenceLeft:
		return []Finding{fine(topic, subject, "closed by a Herald that has ended; the next one takes it over")}
	case err == nil:
		return []Finding{fine(topic, subject, "the kernel has all that it needs of nftables")}
	case !errors.Is(err, fence.ErrUnsupported):
		return []Finding{warning(topic, subject, "cannot be tried: "+err.Error(), why, "run herald doctor as root")}
	case c.ARP.Fence == config.FenceRequired:
		return []Finding{blocker(topic, subject, err.Error(), "With arp.fence: required Herald does not start.", "modprobe nf_tables, and run as root")}
	default:
		return []Finding{warning(topic, subject, err.Error(), why, "modprobe nf_tables, and run as root")}
	}
}
