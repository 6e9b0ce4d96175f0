package config

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The longest name of a VIP or check, and of a node, in bytes: a label and a name of DNS (RFC 1035).
const (
	maxName     = 63
	maxNodeName = 253
)

// validator judges a decoded configuration. Each method reports the mistakes of one section.
type validator struct {
	*report
	config *Config
	named  string // the node, from outside the file
	// The names of all checks and peers, and whether some are missing because
	// of mistakes of their own.
	checkNames, peerNames     []string
	partlyChecks, partlyPeers bool
}

func validate(r *report, c *Config, o options) {
	v := validator{report: r, config: c, named: o.nodeName}
	v.partlyChecks = !v.wasRead("checks")
	for _, check := range c.Checks {
		v.checkNames = append(v.checkNames, check.Name)
		v.partlyChecks = v.partlyChecks || !isName(check.Name, maxName)
	}
	v.partlyPeers = c.BGP == nil || !v.wasRead("bgp.peers")
	if c.BGP != nil {
		for _, peer := range c.BGP.Peers {
			v.peerNames = append(v.peerNames, peer.Name())
			v.partlyPeers = v.partlyPeers || peer.Name() == ""
		}
	}
	v.header()
	v.checks()
	v.vips()
	if c.Services != nil {
		v.services("services", c.Services)
	}
	if c.BGP != nil {
		v.bgp("bgp", c.BGP)
	}
	if c.Election != nil {
		v.election("election", c.Election)
	}
	v.arp("arp", &c.ARP)
	v.loadBalancer("loadBalancer", &c.LoadBalancer)
	v.balancers()
	v.socket("admin.socket", c.Admin.Socket)
	if c.Metrics.Listen != "" && !isHostPort(c.Metrics.Listen, true) {
		v.errorf("metrics.listen", `want host:port, or "" to turn it off, got %s`, quote(c.Metrics.Listen))
	}
}

func (v validator) header() {
	c := v.config
	v.constant("apiVersion", c.APIVersion, APIVersion)
	v.constant("kind", c.Kind, Kind)
	switch {
	case c.NodeName == "":
		v.errorf("nodeName", "missing, and the host has no name: give one")
	case !isName(c.NodeName, maxNodeName) && v.named != "":
		v.errorf("nodeName", "the name %s, of --node-name or NODE_NAME, will not do: want lower-case letters and digits, with '-' and '.' between", quote(v.named))
	case !isName(c.NodeName, maxNodeName) && v.positions["nodeName"] == position{}:
		v.errorf("nodeName", "missing, and the host's name %s will not do: give one", quote(c.NodeName))
	case !isName(c.NodeName, maxNodeName):
		v.errorf("nodeName", "want lower-case letters and digits, with '-' and '.' between, got %s", quote(c.NodeName))
	}
}

func (v validator) constant(p path, got, want string) {
	switch got {
	case want:
	case "":
		v.errorf(p, "missing: write %s: %s", p, want)
	default:
		v.errorf(p, "want %s, got %s", want, quote(got))
	}
}

func (v validator) socket(p path, socket string) {
	const limit = 107 // sun_path less its final zero, unix(7)
	if !strings.HasPrefix(socket, "/") || strings.HasSuffix(socket, "/") || len(socket) > limit {
		v.errorf(p, "want an absolute path of at most %d bytes, got %s", limit, quote(socket))
	}
}

// names reports the missing, bad and repeated ones of the list at p.
func (v validator) names(p path, count int, name func(int) string) {
	first := map[string]int{}
	for i := range count {
		p, name := p.item(i).field("name"), name(i)
		if !v.wasRead(p) {
			continue
		}
		j, taken := first[name]
		switch {
		case name == "":
			v.errorf(p, "missing: give it a name")
		case !isName(name, maxName):
			v.errorf(p, "want at most %d lower-case letters and digits, with '-' and '.' between, got %s", maxName, quote(name))
		case taken:
			v.errorf(p, "%s is the name of %s already", name, p.parent().parent().item(j))
		default:
			first[name] = i
		}
	}
}

func (v validator) vips() {
	c := v.config
	offers := c.Election != nil && len(c.Checks) > 0
	if len(c.VIPs) == 0 && !v.mayServe() && !v.mayBalance() && !offers {
		v.errorf("vips", "at least one is needed, or balancers, or a services section")
	}
	v.names("vips", len(c.VIPs), func(i int) string { return c.VIPs[i].Name })
	owner := map[netip.Addr]path{}
	for i := range c.VIPs {
		v.vip(path("vips").item(i), &c.VIPs[i], owner)
	}
}

// vip judges one VIP; owner holds the VIP of each address so far.
func (v validator) vip(p path, vip *VIP, owner map[netip.Addr]path) {
	if len(vip.Addresses) == 0 {
		v.errorf(p.field("addresses"), "list at least one address")
	}
	for i, addr := range vip.Addresses {
		p := p.field("addresses").item(i)
		if !addr.IsValid() {
			continue // could not be decoded
		}
		if !isUnicast(addr) || addr.IsLoopback() || addr.IsLinkLocalUnicast() {
			v.errorf(p, "want a unicast address that others can reach, got %s", addr)
			continue
		}
		if first, ok := owner[addr]; ok {
			v.errorf(p, "%s is an address of %s already", addr, first)
			continue
		}
		owner[addr] = p.parent().parent()
		if vip.Announce == AnnounceBGP {
			v.carried(p, addr, vip.Peers)
		}
	}
	v.announce(p.field("announce"), vip.Announce)
	v.vipLink(p.field("interface"), vip)
	v.vipChecks(p.field("checks"), vip.Checks)
	v.duration(p.field("linger"), vip.Linger, 0, 5*time.Minute, "0s to 5m")
	v.vipPeers(p.field("peers"), vip)
	v.duration(p.field("holdDown"), vip.HoldDown, 0, time.Hour, "0s to 1h")
	if vip.OnFailure != Withdraw && vip.OnFailure != Demote {
		v.errorf(p.field("onFailure"), "want withdraw or demote, got %s", quote(string(vip.OnFailure)))
	}
	if vip.Announce == AnnounceBGP {
		v.attributes(p, &vip.Attributes, v.hasInternalPeer(vip.Peers))
	}
	v.between(p.field("priority"), vip.Priority, 0, 1000)
	if vip.OnConflict != Defend && vip.OnConflict != Yield {
		v.errorf(p.field("onConflict"), "want defend or yield, got %s", quote(string(vip.OnConflict)))
	}
	if *vip.Bridge && v.config.Election == nil && v.wasRead("election") {
		v.errorf(p.field("bridge"), "needs an election section, by which healthy masters are known: add one")
	}
	v.idleFields(p, vip)
}

// vipLink judges the link of a VIP, which may be left open only on a flat layer 2.
func (v validator) vipLink(p path, vip *VIP) {
	switch {
	case vip.Announce == AnnounceARP && vip.Interface == "lo":
		v.errorf(p, "nobody hears a VIP on lo: name the link of its network, or remove it")
	case vip.Interface != "" || vip.Announce == AnnounceBGP:
		v.link(p, vip.Interface)
	}
}

// idleFields refuses what a VIP asks for in vain, given its way of announcing.
func (v validator) idleFields(p path, vip *VIP) {
	var idle []string
	switch vip.Announce {
	case AnnounceBGP:
		idle = []string{"priority", "preempt", "onConflict"}
	case AnnounceARP:
		idle = []string{"peers", "onFailure", "communities", "largeCommunities", "med", "localPref", "prepend"}
	}
	var plain VIP
	plain.setDefaults()
	given, usual := reflect.ValueOf(vip).Elem(), reflect.ValueOf(&plain).Elem()
	for _, f := range fieldsOf(given.Type()) {
		differs := !reflect.DeepEqual(given.FieldByIndex(f.index).Interface(), usual.FieldByIndex(f.index).Interface())
		if slices.Contains(idle, f.name) && differs {
			v.errorf(p.field(f.name), "has no effect with announce: %s: remove it", vip.Announce)
		}
	}
}

// carried reports the VIP address at p if no BGP session that hears of it, out
// of those with the given names or of all, is for its family.
func (v validator) carried(p path, addr netip.Addr, names []string) {
	if v.config.BGP == nil || len(v.config.BGP.Peers) == 0 {
		return // reported as such
	}
	family, heard := familyOf(addr), false
	for i, peer := range v.config.BGP.Peers {
		if names != nil && !slices.Contains(names, peer.Name()) {
			continue
		}
		heard = true
		p := path("bgp.peers").item(i).field("families")
		unclear := !v.wasRead(p) || len(peer.Families) == 0
		if unclear || slices.ContainsFunc(peer.Families, func(f Family) bool { return f == family || !f.valid() }) {
			return
		}
	}
	switch {
	case names == nil:
		v.errorf(p, "no peer carries %s routes: add %[1]s to the families of one", family)
	case heard:
		v.errorf(p, "none of the VIP's peers carries %s routes: add %[1]s to the families of one", family)
	}
}

func (v validator) announce(p path, a Announce) {
	switch a {
	case AnnounceBGP:
		if v.config.BGP == nil && v.wasRead("bgp") {
			v.errorf(p, "bgp needs a bgp section: add one")
		}
	case AnnounceARP:
		if v.config.Election == nil && v.wasRead("election") {
			v.errorf(p, "arp needs an election section: add one")
		}
	case "":
		v.errorf(p, "missing: write announce: bgp or announce: arp")
	default:
		v.errorf(p, "want bgp or arp, got %s", quote(string(a)))
	}
}

func (v validator) vipChecks(p path, names []string) {
	if len(names) == 0 {
		v.errorf(p, "list at least one check: a VIP is announced only while its checks pass")
	}
	v.references(p, names, "check", v.checkNames, v.partlyChecks)
}

// vipPeers judges the names of the peers that are to hear of a VIP.
func (v validator) vipPeers(p path, vip *VIP) {
	if vip.Peers != nil && len(vip.Peers) == 0 {
		v.errorf(p, "list at least one peer, or remove it for all of them")
	}
	v.references(p, vip.Peers, "peer", v.peerNames, v.partlyPeers)
}

// references judges a list of names of what is configured elsewhere; partly
// says that known lacks some that have mistakes of their own.
func (v validator) references(p path, names []string, kind string, known []string, partly bool) {
	for i, name := range names {
		item := p.item(i)
		if slices.Contains(names[:i], name) {
			v.errorf(item, "%s is listed twice", quote(name))
			continue
		}
		v.reference(item, name, kind, known, partly)
	}
}

// reference judges one name of what is configured elsewhere.
func (v validator) reference(p path, name, kind string, known []string, partly bool) {
	if slices.Contains(known, name) || partly {
		return
	}
	if meant, ok := closest(name, known); ok {
		v.errorf(p, "no %s has the name %s, did you mean %s?", kind, quote(name), meant)
	} else {
		v.errorf(p, "no %s has the name %s", kind, quote(name))
	}
}

func (v validator) link(p path, name string) {
	const limit = 15 // IFNAMSIZ less its final zero
	if name == "" || len(name) > limit || name == "." || name == ".." || strings.ContainsAny(name, "/: \t") {
		v.errorf(p, "want the name of a link, at most %d characters, got %s", limit, quote(name))
	}
}

func (v validator) duration(p path, d, least, most time.Duration, want string) {
	if d < least || d > most {
		v.errorf(p, "want %s, got %s", want, d)
	}
}

func (v validator) between(p path, n, least, most int) {
	if n < least || n > most {
		v.errorf(p, "want %d to %d, got %d", least, most, n)
	}
}

// isName reports whether s is a name in the manner of DNS (RFC 1123), as Kubernetes names nodes.
func isName(s string, limit int) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(s) > 0 && len(s) <= limit &&
		strings.Trim(s, letters+"-.") == "" &&
		strings.ContainsAny(s[:1], letters) && strings.ContainsAny(s[len(s)-1:], letters)
}

// isHostPort reports whether s is host:port; to listen on, the host may be empty and the port 0.
func isHostPort(s string, listen bool) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, " /") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && (listen || host != "" && n > 0)
}

// isUnicast reports whether addr can be the address of one host.
func isUnicast(addr netip.Addr) bool {
	return !addr.IsUnspecified() && !addr.IsMulticast() && addr != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func (f Family) valid() bool { return f == IPv4 || f == IPv6 }

func familyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}
