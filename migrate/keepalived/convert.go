// Package keepalived converts keepalived.conf.
package keepalived

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/migrate"
)

// Convert converts a keepalived.conf for one node. It returns an error if the file cannot be read.
func Convert(files []migrate.File, o migrate.Options) (*migrate.Result, error) {
	k := converter{Draft: migrate.NewDraft(o.File), options: o, table: Table(), checks: map[*migrate.Statement]string{}}
	file, err := parseLines(files[0], o.ConfigID, &k.Notes)
	if err != nil {
		return nil, err
	}
	k.file = file
	k.LeftOut(k.table, atTop, file.Block)
	for _, s := range file.All(inGlobals, inInstance, inGroup) {
		k.LeftOut(k.table, s.Keyword(), s.Block)
		for _, b := range s.All("vrrp_garp_master_refresh", "garp_master_refresh") {
			k.refresh(b)
		}
	}
	instances := file.All(inInstance)
	for _, s := range instances {
		k.instance(s)
	}
	for _, s := range file.All(inServer) {
		k.virtualServer(s)
	}
	if len(instances) > 0 {
		k.members(instances[0].Line)
	} else {
		k.ToDo(0, "", "has no vrrp_instance: there is no VIP to announce")
	}
	return k.Result("keepalived"), nil
}

// converter converts one file.
type converter struct {
	*migrate.Draft
	options migrate.Options
	table   []migrate.Row
	file    *migrate.Statement
	checks  map[*migrate.Statement]string // names of the checks of scripts; empty if not converted
	own     netip.Addr                    // unicast address of this node
	peers   []netip.Addr                  // unicast addresses of the others
}

// instance converts a vrrp_instance to one VIP for each link of its addresses.
func (k *converter) instance(s *migrate.Statement) {
	v := config.VIP{Announce: config.AnnounceARP, Preempt: len(s.All("nopreempt")) == 0}
	priority := s.Setting("priority", "")
	v.Priority = int(k.Number(priority, 1, 255, 0))
	for _, b := range s.All("unicast_src_ip", "unicast_peer") {
		k.unicast(b)
	}
	usual := s.Last("interface").Arg(0)
	var links []string // in the order of the addresses
	addrs := map[string][]netip.Addr{}
	for _, b := range s.All("virtual_ipaddress", "virtual_ipaddress_excluded") {
		for _, line := range b.Block {
			addr, link := k.address(line)
			if !addr.IsValid() {
				continue
			}
			link = cmp.Or(link, usual)
			if addrs[link] == nil {
				links = append(links, link)
			}
			addrs[link] = append(addrs[link], addr)
		}
	}
	if links == nil {
		links = []string{usual}
	}
	var lost []string
	v.Checks, lost = k.tracked(s)
	for i, link := range links {
		v := v
		v.Name = migrate.DNSName(s.Arg(0), "vip")
		if i > 0 {
			v.Name = migrate.DNSName(s.Arg(0)+"-"+link, "vip")
		}
		v.Interface, v.Addresses = link, addrs[link]
		path := k.AddVIP(v, s.Line, lost...)
		if priority.Line > 0 {
			k.Origins[path+".priority"] = priority.Line
		}
	}
}

// address parses a line of a virtual_ipaddress block: an address and its link, if given.
func (k *converter) address(s *migrate.Statement) (addr netip.Addr, link string) {
	addr, bits := migrate.ParseAddr(s.Keyword())
	switch {
	case !addr.IsValid():
		k.ToDo(s.Line, s.Keyword(), "is not an address: write it into the VIP by hand")
		return netip.Addr{}, ""
	case k.VIPAddrs[addr]:
		k.Note(s.Line, s.Keyword(), "is a VIP already: taken once")
		return netip.Addr{}, ""
	}
	k.VIPAddrs[addr] = true
	var idle []string
	for i := 1; i < len(s.Words); i++ {
		if s.Words[i] == "dev" && i+1 < len(s.Words) {
			i++
			link = s.Words[i]
		} else {
			idle = append(idle, s.Words[i])
		}
	}
	if len(idle) > 0 {
		k.Note(s.Line, s.Keyword(), "Herald binds only the address: %q is left out", migrate.Shown(strings.Join(idle, " ")))
	}
	if bits != addr.BitLen() {
		k.Note(s.Line, s.Keyword(), "Herald binds it as /%d: the link needs another address in that subnet, or clients elsewhere need a route to it", addr.BitLen())
	}
	return addr, link
}

// tracked returns the checks of an instance and its group, and the scripts that could not be converted.
func (k *converter) tracked(instance *migrate.Statement) (names, lost []string) {
	const script, link = "track_script", "track_interface"
	blocks := instance.All(script, link)
	for _, g := range k.file.All(inGroup) {
		for _, group := range g.All("group") {
			if slices.ContainsFunc(group.Block, func(s *migrate.Statement) bool { return slices.Contains(s.Words, instance.Arg(0)) }) {
				blocks = append(blocks, g.All(script, link)...)
			}
		}
	}
	for _, b := range blocks {
		for _, t := range b.Block {
			convert := k.trackedScript
			if b.Keyword() == link {
				convert = k.trackedLink
			}
			name := convert(t)
			switch {
			case name == "":
				lost = append(lost, migrate.Shown(t.Keyword()))
			case !slices.Contains(names, name):
				names = append(names, name)
			}
		}
	}
	return names, lost
}

// trackedLink returns the name of the check for a line of track_interface.
func (k *converter) trackedLink(t *migrate.Statement) string {
	isReverse := func(word string) bool { return word == "reverse" }
	check := health.Check{Link: &health.Link{Name: t.Keyword()}, Not: slices.ContainsFunc(t.Args(), isReverse)}
	check.Name = migrate.DNSName("link-"+t.Keyword(), "link")
	if check.Not {
		check.Name += "-down"
	}
	k.noWeight(t, slices.DeleteFunc(slices.Clone(t.Args()), isReverse))
	for _, c := range k.Checks {
		if c.Link != nil && *c.Link == *check.Link && c.Not == check.Not {
			return c.Name
		}
	}
	_, name := k.AddCheck(check, t.Line)
	return name
}

// noWeight notes the options of a tracked script or link that are not carried over.
func (k *converter) noWeight(t *migrate.Statement, options []string) {
	if len(options) > 0 {
		k.Note(t.Line, t.Keyword(), "a failing check withdraws the VIP: it does not lower a priority, and %q is left out", migrate.Shown(strings.Join(options, " ")))
	}
}

// trackedScript returns the name of the check for a line of track_script; empty if there is none.
func (k *converter) trackedScript(t *migrate.Statement) string {
	if slices.Contains(t.Words, "reverse") {
		k.ToDo(t.Line, t.Keyword(), "a reversed check has no counterpart: leave it out, or check the opposite")
		return ""
	}
	scripts := k.file.All(inScript)
	i := slices.IndexFunc(scripts, func(s *migrate.Statement) bool { return s.Arg(0) == t.Keyword() })
	if i < 0 {
		k.ToDo(t.Line, t.Keyword(), "the file has no vrrp_script of this name: write a check in its place")
		return ""
	}
	k.noWeight(t, t.Args())
	s := scripts[i]
	name, done := k.checks[s]
	if !done {
		name = k.script(s)
		k.checks[s] = name
	}
	return name
}

// script converts a vrrp_script to a check and returns its name.
func (k *converter) script(s *migrate.Statement) string {
	k.LeftOut(k.table, inScript, s.Block)
	commands := s.All("script")
	if len(commands) == 0 {
		k.ToDo(s.Line, s.Arg(0), "has no script: write a check in its place")
		return ""
	}
	b := commands[0]
	check := k.AddCommand(s.Arg(0), command(b), b.Line, "script")
	if check == nil {
		return ""
	}
	interval, timeout := s.Setting("interval", "1"), s.Setting("timeout", "")
	if timeout.Value == "" {
		timeout = interval
	}
	k.SetPace(check, interval, timeout, s.Setting("rise", "1"), s.Setting("fall", "1"))
	if check.Exec != nil {
		check.Exec.User = s.Last("user").Arg(0)
	}
	return check.Name
}

// refresh converts the interval between announcements.
func (k *converter) refresh(s *migrate.Statement) {
	refresh := time.Duration(k.Number(migrate.Setting{Line: s.Line, Name: s.Keyword(), Value: s.Arg(0)}, 0, 3600, 0)) * time.Second
	if refresh > 0 && (k.ARP.Refresh == 0 || refresh < k.ARP.Refresh) {
		k.ARP.Refresh = refresh
		k.Origins["arp.refresh"] = s.Line
	}
}

// unicast collects the unicast addresses of the nodes. Other settings of a peer, such as its TTL, are VRRP's.
func (k *converter) unicast(s *migrate.Statement) {
	entries := []*migrate.Statement{{Line: s.Line, Words: s.Args()}}
	if s.HasBlock {
		entries = s.Block
	}
	for _, e := range entries {
		none := true
		for _, w := range e.Words {
			addr, _ := migrate.ParseAddr(w)
			if !addr.IsValid() {
				continue
			}
			none = false
			switch {
			case s.Keyword() == "unicast_peer":
				if !slices.Contains(k.peers, addr) {
					k.peers = append(k.peers, addr)
				}
			case k.own.IsValid() && k.own != addr:
				k.ToDo(e.Line, s.Keyword(), "a second address of this node: choose the one for the members")
			default:
				k.own = addr
			}
		}
		if none {
			k.ToDo(e.Line, s.Keyword(), "has no address: check election.members")
		}
	}
}

// members sets the members: from the options, or else from the unicast addresses, or else none. Names made
// from addresses agree in all nodes' files.
func (k *converter) members(line int) {
	nodes := slices.Clone(k.peers)
	if k.own.IsValid() {
		nodes = append(nodes, k.own)
	}
	members := k.options.Members
	if len(members) == 0 && k.own.IsValid() && len(k.peers) > 0 {
		members = map[string]netip.AddrPort{}
		for _, addr := range nodes {
			members[memberName(addr)] = netip.AddrPortFrom(addr, migrate.GossipPort)
		}
		k.NodeName = memberName(k.own)
		k.Comment("nodeName", "This node's name among the members; it differs on each node.")
		k.Comment("election.members", "Named by their addresses, so that all nodes' files agree.")
	}
	known := map[netip.Addr]bool{}
	for _, m := range members {
		known[m.Addr()] = true
	}
	for _, addr := range nodes {
		if len(members) > 0 && !known[addr] {
			k.ToDo(line, addr.String(), "speaks VRRP but is not a member: pass it with --member, or stop keepalived there")
		}
	}
	k.Elect(line, members, k.options)
}

func memberName(addr netip.Addr) string {
	return "node-" + strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
}
