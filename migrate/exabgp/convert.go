// Package exabgp converts configurations of ExaBGP with processes that run its healthcheck.
package exabgp

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/yaml"
	"github.com/herald-vip/herald/migrate"
)

// text is the content of a file and the number of lines in the files before it.
type text struct {
	name, text string
	above      int
}

// converter converts one configuration.
type converter struct {
	*migrate.Draft
	table []migrate.Row
	files []text              // the first one, and the files of --config
	heard map[string][]string // peers that receive the announcements of a process, by its name
}

// Convert converts a configuration of ExaBGP 4 or 5. Further files are read by healthchecks with
// --config. The error names an unreadable file.
func Convert(files []migrate.File, o migrate.Options) (*migrate.Result, error) {
	e := converter{Draft: migrate.NewDraft(o.File), table: Table(), heard: map[string][]string{}}
	for _, f := range files {
		s, above, err := e.Text(f)
		if err != nil {
			return nil, err
		}
		e.files = append(e.files, text{f.Name, s, above})
	}
	p := migrate.Parser{Notes: &e.Notes, Comments: "#", Marks: ";[],", End: ";"}
	file, err := p.Read(e.files[0].text)
	if err != nil {
		return nil, err
	}
	e.LeftOut(e.table, atTop, file.Block)
	e.BGP = new(config.BGP)
	processes, templates := file.All("process"), map[string][]*migrate.Statement{}
	for _, t := range file.All("template") {
		for _, s := range t.All("neighbor") {
			e.LeftOut(e.table, inNeighbor, s.Block)
			templates[s.Arg(0)] = s.Block
		}
	}
	for _, s := range file.All("neighbor") {
		e.neighbor(s, templates, processes)
	}
	for _, s := range processes {
		e.process(s)
	}
	switch {
	case len(e.VIPs) == 0:
		e.ToDo(0, "", "no process runs ExaBGP's healthcheck: there is no VIP to announce")
	case len(e.BGP.Peers) == 0:
		e.BGP = nil
		e.Leave("bgp", 0, "the routers: no neighbor of the file could be read", "bgp: {asn: ASN, peers: [{address: ADDRESS, asn: ASN}]}")
	}
	return e.Result("exabgp"), nil
}

// neighbor converts a neighbor to a peer, with the statements of its templates.
func (e *converter) neighbor(s *migrate.Statement, templates map[string][]*migrate.Statement, processes []*migrate.Statement) {
	e.LeftOut(e.table, inNeighbor, s.Block)
	addr, bits := migrate.ParseAddr(s.Arg(0))
	switch {
	case !addr.IsValid() || bits < addr.BitLen():
		e.ToDo(s.Line, "neighbor", "%s is not the address of a router: write the peers into bgp.peers by hand", migrate.Quoted(s.Arg(0)))
		return
	case slices.ContainsFunc(e.BGP.Peers, func(p v1alpha1.Peer) bool { return p.Address == addr }):
		e.Note(s.Line, "neighbor", "%s is a peer already: taken once", addr)
		return
	}
	var block []*migrate.Statement
	for _, inherit := range s.All("inherit") {
		for _, name := range inherit.Args() {
			block = append(block, templates[name]...)
		}
	}
	s = &migrate.Statement{Line: s.Line, Words: s.Words, Block: append(block, s.Block...)}
	path := yaml.Path("bgp.peers").Item(len(e.BGP.Peers))
	e.Origins[path] = s.Line
	e.local(s)
	p := v1alpha1.Peer{Address: addr, ASN: v1alpha1.ASN(e.ASN(path+".asn", s.Setting("peer-as", "")))}
	e.session(&p, path, s)
	e.BGP.Peers = append(e.BGP.Peers, p)
	for _, process := range processes {
		name := process.Arg(0)
		if slices.ContainsFunc(s.All("api"), func(api *migrate.Statement) bool {
			return api.Last("processes-match").Line > 0 || slices.Contains(api.Last("processes").Args(), name)
		}) {
			e.heard[name] = append(e.heard[name], p.Name())
		}
	}
}

// local converts the local ASN and router ID, which Herald has once for all peers.
func (e *converter) local(s *migrate.Statement) {
	as, id := s.Setting("local-as", ""), s.Setting("router-id", "")
	addr, _ := migrate.ParseAddr(id.Value)
	if len(e.BGP.Peers) == 0 {
		e.BGP.ASN, e.BGP.RouterID = e.ASN("bgp.asn", as), addr
		e.Origins["bgp.routerID"] = id.Line
		e.Comment("bgp.routerID", "Differs on each node.")
		return
	}
	if as.Value != strconv.FormatUint(uint64(e.BGP.ASN), 10) {
		e.ToDo(as.Line, as.Name, "Herald has one autonomous system for all peers: the first neighbor's")
	}
	if addr != e.BGP.RouterID {
		e.Note(id.Line, id.Name, "Herald has one identifier for all peers: the first neighbor's")
	}
}

// session converts the settings of a session.
func (e *converter) session(p *v1alpha1.Peer, path yaml.Path, s *migrate.Statement) {
	p.LocalAddress, _ = migrate.ParseAddr(s.Setting("local-address", "").Value) // or auto
	if hold := s.Setting("hold-time", ""); hold.Line > 0 {
		p.HoldTime.Duration = e.Seconds(hold)
	}
	if password := s.Last("md5-password"); password.Line > 0 {
		e.LeavePassword(p, path, password.Line, "md5-password")
	}
	p.Port = uint16(e.Number(s.Setting("connect", ""), 0, math.MaxUint16, 0))
	ttl, least := e.Number(s.Setting("outgoing-ttl", ""), 0, 255, 1), e.Number(s.Setting("incoming-ttl", ""), 0, 255, 0)
	switch {
	case least > 1:
		p.TTLSecurity = uint8(256 - least)
	case ttl > 1 && uint32(p.ASN) != e.BGP.ASN:
		p.Multihop = uint8(ttl)
	}
	family := s.Last("family")
	if family.Line == 0 {
		p.Families = []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6}
	}
	for _, b := range family.Block {
		if name := strings.Join(b.Words, " "); name == "ipv4 unicast" || name == "ipv6 unicast" {
			p.Families = append(p.Families, v1alpha1.Family(b.Keyword()))
		} else {
			e.Note(b.Line, name, "Herald has unicast routes only")
		}
	}
}

// healthcheck returns the arguments of ExaBGP's healthcheck; ok is false if words do not start it.
func healthcheck(words []string) (args []string, ok bool) {
	for i, w := range words {
		switch base := path.Base(w); {
		case slices.Contains([]string{"healthcheck", "healthcheck.py", "exabgp.application.healthcheck"}, base):
			return words[i+1:], true
		case !strings.HasPrefix(base, "python") && !strings.HasPrefix(w, "-") && !slices.Contains([]string{"exabgp", "env", "sudo"}, base):
			return nil, false
		}
	}
	return nil, false
}

// options returns the options of a command line as the block of a statement. The options in its
// --config file come first.
func (e *converter) options(words []string, line int) *migrate.Statement {
	o := &migrate.Statement{Line: line, Block: e.args(words, line)}
	file := o.Setting("--config", "")
	if file.Line == 0 {
		return o
	}
	i := slices.IndexFunc(e.files, func(f text) bool { return path.Base(f.name) == path.Base(file.Value) })
	if i < 0 {
		e.ToDo(file.Line, file.Name, "the file was not read: pass %s after the first file and migrate again", migrate.Quoted(file.Value))
		return o
	}
	var block []*migrate.Statement
	number := e.files[i].above
	for line := range strings.Lines(e.files[i].text) {
		number++
		name, value, given := strings.Cut(strings.TrimSpace(line), "=")
		words := []string{"--" + strings.TrimSpace(name)}
		if given {
			words[0] += "=" + strings.TrimSpace(value)
		}
		if name != "" && name[0] != '#' {
			block = append(block, e.args(words, number)...)
		}
	}
	o.Block = append(block, o.Block...)
	return o
}

// args converts options to statements, by the first name of their row, and notes those without counterpart.
func (e *converter) args(words []string, line int) (out []*migrate.Statement) {
	for i := 0; i < len(words); i++ {
		name, value, given := strings.Cut(words[i], "=")
		if !strings.HasPrefix(name, "-") {
			e.ToDo(line, "", "healthcheck takes options only, and this line has other words: check them") // not shown: one may be a password
			continue
		}
		row, known := migrate.Find(e.table, inOption, func(n string) bool { return n == name })
		if known && !row.Boolean && !given && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			value = words[i]
		}
		s := &migrate.Statement{Line: line, Words: []string{name, value}}
		e.LeftOut(e.table, inOption, []*migrate.Statement{s})
		if known && row.Becomes != "" {
			s.Words[0] = row.Names[0]
			out = append(out, s)
		}
	}
	return out
}
