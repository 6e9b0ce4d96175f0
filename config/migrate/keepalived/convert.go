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
	k := converter{Draft: migrate.NewDraft(o.File), options: o, table: Table()}
	statements, err := parseLines(data, o.ConfigID, &k.Notes)
	if err != nil {
		return nil, err
	}
	k.read(statements)
	if len(k.instances) == 0 {
		k.ToDo(0, "", "has no vrrp_instance: there is no VIP to announce")
	}
	for _, s := range k.instances {
		k.instance(s)
	}
	k.virtualServers()
	if len(k.VIPs) > 0 {
		k.members()
	}
	return k.Result("keepalived"), nil
}

// converter converts one file.
type converter struct {
	*migrate.Draft
	options   migrate.Options
	table     []migrate.Row
	instances []*statement
	scripts   []*statement
	groups    []*statement
	servers   []*statement
	checks    map[*statement]string // names of the checks that scripts became; empty if none
	own       netip.Addr            // the node's address and those of the others, if they use unicast
	peers     []netip.Addr
}

// read sorts the statements, and notes those that nothing becomes of.
func (k *converter) read(statements []*statement) {
	k.checks = map[*statement]string{}
	for _, s := range statements {
		switch s.keyword() {
		case "vrrp_instance":
			k.instances = append(k.instances, s)
			k.leftOut(inInstance, s.block)
		case "vrrp_script":
			k.scripts = append(k.scripts, s)
		case "vrrp_sync_group":
			k.groups = append(k.groups, s)
			k.leftOut(atTop, []*statement{s})
			k.leftOut(inGroup, s.block)
		case "virtual_server":
			k.servers = append(k.servers, s)
		case "global_defs":
			k.leftOut(inGlobals, s.block)
			for _, s := range s.block {
				k.refresh(s, "vrrp_garp_master_refresh")
			}
		default:
			k.leftOut(atTop, []*statement{s})
		}
	}
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
	v := config.VIP{Announce: config.AnnounceARP, Preempt: true}
	link, priority := "", 0
	var addrs []carried
	for _, b := range s.block {
		switch b.keyword() {
		case "interface":
			link = b.arg(0)
		case "priority":
			priority = b.line
			n, err := strconv.Atoi(b.arg(0))
			if err != nil || n < 1 || n > 255 {
				k.ToDo(b.line, "priority", "%s is no number from 1 to 255: 100, the default of both, is left", migrate.Quoted(b.arg(0)))
				n = 0
			}
			v.Priority = n
		case "nopreempt":
			v.Preempt = false
		case "virtual_ipaddress", "virtual_ipaddress_excluded":
			addrs = append(addrs, k.addresses(b)...)
		case "unicast_src_ip", "unicast_peer":
			k.unicast(b)
		}
		k.refresh(b, "garp_master_refresh")
	}
	var lost []string
	v.Checks, lost = k.tracked(s)
	for i, link := range links(addrs, link) {
		v := v
		v.Name = migrate.DNSName(s.arg(0), "vip")
		if i > 0 {
			v.Name = migrate.DNSName(s.arg(0)+"-"+link, "vip")
		}
		v.Interface = link
		v.Addresses = nil
		for _, a := range addrs {
			if a.link == link {
				v.Addresses = append(v.Addresses, a.Addr)
			}
		}
		path := k.AddVIP(v, s.line)
		if priority > 0 {
			k.Origins[path+".priority"] = priority
		}
		if len(v.Addresses) == 0 {
			k.Leave(path+".addresses", s.line, "the VIP's addresses: the instance has none that could be read", "addresses: [ADDRESS]")
		}
		switch {
		case len(v.Checks) == 0:
			k.Leave(path+".checks", s.line, "what has to be healthy for the VIP to be announced, as Herald announces nothing unchecked",
				"checks: [NAME]  # of the checks at the top level, {name: NAME, tcp: {address: 127.0.0.1:PORT}} or http: {url: URL}")
		case len(lost) > 0:
			k.Comment(path+".checks", "TO DO: checks of what these asked: "+strings.Join(lost, ", "))
		}
	}
}

// carried is an address and the link that it is to be on.
type carried struct {
	netip.Addr
	link string
}

// links are those of addrs, the first of them first; usual stands for none. There is one at least.
func links(addrs []carried, usual string) []string {
	var links []string
	for i := range addrs {
		addrs[i].link = cmp.Or(addrs[i].link, usual)
		if !slices.Contains(links, addrs[i].link) {
			links = append(links, addrs[i].link)
		}
	}
	if links == nil {
		return []string{usual}
	}
	return links
}

// addresses reads the lines of a virtual_ipaddress block.
func (k *converter) addresses(block *statement) []carried {
	var addrs []carried
	for _, s := range block.block {
		addr, bits := migrate.ParseAddr(s.keyword())
		if !addr.IsValid() {
			k.ToDo(s.line, s.keyword(), "is no address: write it into the VIP by hand")
			continue
		}
		if k.VIPAddrs[addr] {
			k.Note(s.line, s.keyword(), "is a VIP already: taken once")
			continue
		}
		k.VIPAddrs[addr] = true
		a := carried{Addr: addr}
		var idle []string
		for i := 1; i < len(s.words); i++ {
			if s.words[i] == "dev" && i+1 < len(s.words) {
				i++
				a.link = s.words[i]
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
		addrs = append(addrs, a)
	}
	return addrs
}

// tracked are the checks of an instance and its group, and the scripts that none could be made of.
func (k *converter) tracked(instance *statement) (names, lost []string) {
	blocks := slices.Clone(instance.block)
	for _, g := range k.groups {
		if contains(g.block, "group", instance.arg(0)) {
			blocks = append(blocks, g.block...)
		}
	}
	for _, b := range blocks {
		if b.keyword() != "track_script" {
			continue
		}
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

// contains reports whether the block of the keyword has a line with the word.
func contains(statements []*statement, keyword, word string) bool {
	return slices.ContainsFunc(statements, func(s *statement) bool {
		return s.keyword() == keyword && slices.ContainsFunc(s.block, func(s *statement) bool { return slices.Contains(s.words, word) })
	})
}

// track is the name of the check that a line of track_script asks for, empty if there is none.
func (k *converter) track(t *statement) string {
	if slices.Contains(t.words, "reverse") {
		k.ToDo(t.line, t.keyword(), "a check that fails when all is well has no counterpart: leave it out, or ask the opposite")
		return ""
	}
	i := slices.IndexFunc(k.scripts, func(s *statement) bool { return s.arg(0) == t.keyword() })
	if i < 0 {
		k.ToDo(t.line, t.keyword(), "no vrrp_script has this name here: write a check of what it asked")
		return ""
	}
	if len(t.words) > 1 {
		k.Note(t.line, t.keyword(), "a failing check takes the VIP away: it does not lower a priority, and %q is left out", migrate.Shown(strings.Join(t.words[1:], " ")))
	}
	s := k.scripts[i]
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
	i := slices.IndexFunc(s.block, func(b *statement) bool { return b.keyword() == "script" })
	if i < 0 {
		k.ToDo(s.line, s.arg(0), "has no script: write a check of what it asked")
		return ""
	}
	b := s.block[i]
	command := strings.Join(b.words[1:], " ")
	found, ok := readScript(command)
	if !ok {
		program, _, _ := strings.Cut(command, " ") // its arguments may hold a password
		k.ToDo(b.line, "script", "%s is here none of curl, nc, /dev/tcp or a check of the apiserver that can be read: write a check, http or tcp, of what it asked", migrate.Quoted(program))
		return ""
	}
	found.check.Name = migrate.DNSName(s.arg(0), "check")
	path, name := k.AddCheck(found.check, b.line)
	for field, remark := range found.remarks {
		k.Comment(path.Field(field), remark)
	}
	if found.doubt != "" {
		k.Comment(path, "Compare with the script "+migrate.Shown(found.file)+", which was not read.")
		k.ToDo(b.line, "script", "%s", found.doubt)
	}
	return name
}

// refresh carries the time between announcements over, if s is the keyword that sets it.
func (k *converter) refresh(s *statement, keyword string) {
	if s.keyword() != keyword {
		return
	}
	seconds, err := strconv.ParseUint(s.arg(0), 10, 31)
	refresh := time.Duration(seconds) * time.Second
	switch {
	case err != nil || refresh > time.Hour:
		k.Note(s.line, keyword, "Herald takes 1s to 1h: every 60s, its default, is left")
	case refresh > 0 && (k.ARP.Refresh == 0 || refresh < k.ARP.Refresh):
		k.ARP.Refresh = refresh
		k.Origins["arp.refresh"] = s.line
	}
}

// unicast remembers whose addresses the nodes have. What else is said of a peer, as its TTL, is VRRP's.
func (k *converter) unicast(s *statement) {
	entries := []*statement{{line: s.line, words: s.words[1:]}}
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
				k.addPeer(addr)
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

func (k *converter) addPeer(addr netip.Addr) {
	if !slices.Contains(k.peers, addr) {
		k.peers = append(k.peers, addr)
	}
}

// members are those of the options; or else those of unicast, named by their
// addresses, so that all nodes' files agree; or else to be filled in.
func (k *converter) members() {
	line := k.instances[0].line
	members := k.options.Members
	if len(members) == 0 && k.own.IsValid() && len(k.peers) > 0 {
		members = map[string]netip.AddrPort{}
		for _, addr := range append(slices.Clip(k.peers), k.own) {
			members[memberName(addr)] = netip.AddrPortFrom(addr, migrate.GossipPort)
		}
		k.NodeName = memberName(k.own)
		k.Comment("nodeName", "This node's name among the members; the others have theirs.")
		k.Comment("election.members", "Named by their addresses, so that all nodes' files agree.")
	}
	for _, addr := range append(slices.Clip(k.peers), k.own) {
		if addr.IsValid() && len(members) > 0 && !hasAddress(members, addr) {
			k.ToDo(line, addr.String(), "speaks VRRP, and is no member: give it with --member, or see that it goes")
		}
	}
	k.Elect(line, members, k.options)
}

func memberName(addr netip.Addr) string {
	return "node-" + strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
}

func hasAddress(members map[string]netip.AddrPort, addr netip.Addr) bool {
	for _, m := range members {
		if m.Addr() == addr {
			return true
		}
	}
	return false
}
