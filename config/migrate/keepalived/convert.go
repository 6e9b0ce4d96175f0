// Package keepalived converts keepalived.conf.
package keepalived

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/config/migrate"
)

// Convert converts a keepalived.conf, as it is for one node. The error says
// why the file cannot be read.
func Convert(data []byte, o migrate.Options) (*migrate.Result, error) {
	k := converter{Draft: migrate.NewDraft(o.File), options: o, table: Table(), checks: map[*statement]string{}}
	file, err := parseLines(data, o.ConfigID, &k.Notes)
	if err != nil {
		return nil, err
	}
	k.file = file
	k.leftOut(atTop, file.block)
	for _, s := range file.all(inGlobals, inInstance, inGroup) {
		k.leftOut(s.keyword(), s.block)
		for _, b := range s.all("vrrp_garp_master_refresh", "garp_master_refresh") {
			k.refresh(b)
		}
	}
	instances := file.all(inInstance)
	for _, s := range instances {
		k.instance(s)
	}
	for _, s := range file.all(inServer) {
		k.virtualServer(s)
	}
	if len(instances) > 0 {
		k.members(instances[0].line)
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
	file    *statement
	checks  map[*statement]string // names of the checks that scripts became; empty if none
	own     netip.Addr            // the node's address and those of the others, if they use unicast
	peers   []netip.Addr
}

// leftOut notes the statements that are not carried over, a block as one.
func (k *converter) leftOut(in string, statements []*statement) {
	for _, s := range statements {
		row, known := k.row(in, s.keyword())
		subject := s.keyword()
		if s.hasBlock && s.end > s.line {
			subject += fmt.Sprintf(" (to line %d)", s.end)
		}
		switch {
		case subject == "{": // said by the parser
		case !known:
			k.ToDo(s.line, subject, "is no keyword that is known here: not carried over")
		case row.Becomes == "":
			k.Add(s.line, row.ToDo, subject, "%s", row.Text)
		}
	}
}

// instance converts a vrrp_instance: a VIP for each link that its addresses are on.
func (k *converter) instance(s *statement) {
	v := config.VIP{Announce: config.AnnounceARP, Preempt: len(s.all("nopreempt")) == 0}
	priority := s.last("priority")
	if n, err := strconv.Atoi(priority.arg(0)); err == nil && 1 <= n && n <= 255 {
		v.Priority = n
	} else if priority.line > 0 {
		k.ToDo(priority.line, "priority", "%s is no number from 1 to 255: 100, the default of both, is left", migrate.Quoted(priority.arg(0)))
	}
	for _, b := range s.all("unicast_src_ip", "unicast_peer") {
		k.unicast(b)
	}
	usual := s.last("interface").arg(0)
	var links []string // that of the first address first
	addrs := map[string][]netip.Addr{}
	for _, b := range s.all("virtual_ipaddress", "virtual_ipaddress_excluded") {
		for _, line := range b.block {
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
		v.Name = migrate.DNSName(s.arg(0), "vip")
		if i > 0 {
			v.Name = migrate.DNSName(s.arg(0)+"-"+link, "vip")
		}
		v.Interface, v.Addresses = link, addrs[link]
		path := k.AddVIP(v, s.line)
		if priority.line > 0 {
			k.Origins[path+".priority"] = priority.line
		}
		if len(v.Addresses) == 0 {
			k.Leave(path+".addresses", s.line, "the VIP's addresses: the instance has none that could be read", "addresses: [ADDRESS]")
		}
		k.LeaveChecks(path, s.line, v.Checks, lost)
	}
}

// address reads a line of a virtual_ipaddress block: an address, and the link it is to be on if it says so.
func (k *converter) address(s *statement) (addr netip.Addr, link string) {
	addr, bits := migrate.ParseAddr(s.keyword())
	switch {
	case !addr.IsValid():
		k.ToDo(s.line, s.keyword(), "is no address: write it into the VIP by hand")
		return netip.Addr{}, ""
	case k.VIPAddrs[addr]:
		k.Note(s.line, s.keyword(), "is a VIP already: taken once")
		return netip.Addr{}, ""
	}
	k.VIPAddrs[addr] = true
	var idle []string
	for i := 1; i < len(s.words); i++ {
		if s.words[i] == "dev" && i+1 < len(s.words) {
			i++
			link = s.words[i]
		} else {
			idle = append(idle, s.words[i])
		}
	}
	if len(idle) > 0 {
		k.Note(s.line, s.keyword(), "Herald binds the address alone: %q is left out", migrate.Shown(strings.Join(idle, " ")))
	}
	if bits != addr.BitLen() {
		k.Note(s.line, s.keyword(), "Herald binds it as /%d: the link needs an address of that subnet of its own, or clients elsewhere have to be routed to it", addr.BitLen())
	}
	return addr, link
}

// tracked are the checks of an instance and its group, and the scripts that none could be made of.
func (k *converter) tracked(instance *statement) (names, lost []string) {
	blocks := instance.all("track_script")
	for _, g := range k.file.all(inGroup) {
		for _, group := range g.all("group") {
			if slices.ContainsFunc(group.block, func(s *statement) bool { return slices.Contains(s.words, instance.arg(0)) }) {
				blocks = append(blocks, g.all("track_script")...)
			}
		}
	}
	for _, b := range blocks {
		for _, t := range b.block {
			name := k.track(t)
			switch {
			case name == "":
				lost = append(lost, migrate.Shown(t.keyword()))
			case !slices.Contains(names, name):
				names = append(names, name)
			}
		}
	}
	return names, lost
}

// track is the name of the check that a line of track_script asks for, empty if there is none.
func (k *converter) track(t *statement) string {
	if slices.Contains(t.words, "reverse") {
		k.ToDo(t.line, t.keyword(), "a check that fails when all is well has no counterpart: leave it out, or ask the opposite")
		return ""
	}
	scripts := k.file.all(inScript)
	i := slices.IndexFunc(scripts, func(s *statement) bool { return s.arg(0) == t.keyword() })
	if i < 0 {
		k.ToDo(t.line, t.keyword(), "no vrrp_script has this name here: write a check of what it asked")
		return ""
	}
	if len(t.words) > 1 {
		k.Note(t.line, t.keyword(), "a failing check takes the VIP away: it does not lower a priority, and %q is left out", migrate.Shown(strings.Join(t.words[1:], " ")))
	}
	s := scripts[i]
	name, done := k.checks[s]
	if !done {
		name = k.script(s)
		k.checks[s] = name
	}
	return name
}

// script makes a check of a vrrp_script.
func (k *converter) script(s *statement) string {
	k.leftOut(inScript, s.block)
	commands := s.all("script")
	if len(commands) == 0 {
		k.ToDo(s.line, s.arg(0), "has no script: write a check of what it asked")
		return ""
	}
	b := commands[0]
	check := k.AddCommand(s.arg(0), b.command(), b.line, "script")
	if check == nil {
		return ""
	}
	interval, timeout := s.setting("interval", "1"), s.setting("timeout", "")
	if timeout.Value == "" {
		timeout = interval
	}
	k.SetPace(check, interval, timeout, s.setting("rise", "1"), s.setting("fall", "1"))
	if check.Exec != nil {
		check.Exec.User = s.last("user").arg(0)
	}
	return check.Name
}

// refresh carries the time between announcements over.
func (k *converter) refresh(s *statement) {
	seconds, err := strconv.ParseUint(s.arg(0), 10, 31)
	refresh := time.Duration(seconds) * time.Second
	switch {
	case err != nil || refresh > time.Hour:
		k.Note(s.line, s.keyword(), "Herald takes 1s to 1h: every 60s, its default, is left")
	case refresh > 0 && (k.ARP.Refresh == 0 || refresh < k.ARP.Refresh):
		k.ARP.Refresh = refresh
		k.Origins["arp.refresh"] = s.line
	}
}

// unicast remembers whose addresses the nodes have. What else is said of a peer, as its TTL, is VRRP's.
func (k *converter) unicast(s *statement) {
	entries := []*statement{{line: s.line, words: s.args()}}
	if s.hasBlock {
		entries = s.block
	}
	for _, e := range entries {
		none := true
		for _, w := range e.words {
			addr, _ := migrate.ParseAddr(w)
			if !addr.IsValid() {
				continue
			}
			none = false
			switch {
			case s.keyword() == "unicast_peer":
				if !slices.Contains(k.peers, addr) {
					k.peers = append(k.peers, addr)
				}
			case k.own.IsValid() && k.own != addr:
				k.ToDo(e.line, s.keyword(), "a second address of this node: see which one the members are to reach it at")
			default:
				k.own = addr
			}
		}
		if none {
			k.ToDo(e.line, s.keyword(), "no address here: see that election.members has what is meant")
		}
	}
}

// members are those of the options; or else those of unicast, named by their
// addresses, so that all nodes' files agree; or else to be filled in.
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
		k.Comment("nodeName", "This node's name among the members; the others have theirs.")
		k.Comment("election.members", "Named by their addresses, so that all nodes' files agree.")
	}
	known := map[netip.Addr]bool{}
	for _, m := range members {
		known[m.Addr()] = true
	}
	for _, addr := range nodes {
		if len(members) > 0 && !known[addr] {
			k.ToDo(line, addr.String(), "speaks VRRP, and is no member: give it with --member, or see that it goes")
		}
	}
	k.Elect(line, members, k.options)
}

func memberName(addr netip.Addr) string {
	return "node-" + strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
}
