package config

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/yaml"
)

// maxName is the maximum length of a name of a VIP or check, in bytes: a DNS label (RFC 1035).
const maxName = 63

// The limits of an advertisement: its number of names, and the bytes of these and of the node's name.
const maxAdvertised, maxAdvertisedBytes = 32, 836

// validator validates a decoded configuration. Each method reports the mistakes of one section.
type validator struct {
	*yaml.Report
	config *Config
	named  string // the node name from outside the file

	vipNames, checkNames, peerNames known
}

func validate(r *yaml.Report, c *Config, o options) {
	v := validator{Report: r, config: c, named: o.nodeName}
	v.vipNames = v.names("VIP", "vips", len(c.VIPs), func(i int) string { return c.VIPs[i].Name })
	v.checkNames = v.names("check", "checks", len(c.Checks), func(i int) string { return c.Checks[i].Name })
	v.peerNames = known{kind: "peer", partly: c.BGP == nil || !v.WasRead("bgp.peers")}
	if c.BGP != nil {
		for _, peer := range c.BGP.Peers {
			v.peerNames.names = append(v.peerNames.names, peer.Name())
			v.peerNames.partly = v.peerNames.partly || peer.Name() == ""
		}
	}
	v.Limits("", c)
	v.nodeName()
	for i := range c.Checks {
		c.Checks[i].Validate(v.Report, yaml.Path("checks").Item(i))
	}
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
	v.balancers()
	v.socket("admin.socket", c.Admin.Socket)
	if c.Metrics.Listen != "" && !yaml.IsHostPort(c.Metrics.Listen, true) {
		v.Errorf("metrics.listen", `want host:port, or "" to turn it off, got %s`, yaml.Quote(c.Metrics.Listen))
	}
}

func (v validator) nodeName() {
	c := v.config
	switch {
	case c.NodeName == "":
		v.Errorf("nodeName", "missing, and the host has no name: give one")
	case !yaml.IsName(c.NodeName) && v.named != "":
		v.Errorf("nodeName", "the name %s, from --node-name or NODE_NAME, is not valid: want lower-case letters and digits, with '-' and '.' between", yaml.Quote(v.named))
	case !yaml.IsName(c.NodeName) && !v.Given("nodeName"):
		v.Errorf("nodeName", "missing, and the host's name %s is not valid: give one", yaml.Quote(c.NodeName))
	case !yaml.IsName(c.NodeName):
		v.Errorf("nodeName", "want lower-case letters and digits, with '-' and '.' between, got %s", yaml.Quote(c.NodeName))
	}
}

func (v validator) socket(p yaml.Path, socket string) {
	const limit = 107 // sun_path less its final zero, unix(7)
	if !strings.HasPrefix(socket, "/") || strings.HasSuffix(socket, "/") || len(socket) > limit {
		v.Errorf(p, "want an absolute path of at most %d bytes, got %s", limit, yaml.Quote(socket))
	}
}

// names returns the names of the list at p, and reports missing, invalid and repeated ones.
func (v validator) names(kind string, p yaml.Path, count int, name func(int) string) known {
	all := known{kind: kind, partly: !v.WasRead(p)}
	first := map[string]int{}
	for i := range count {
		p, name := p.Item(i).Field("name"), name(i)
		all.names = append(all.names, name)
		all.partly = all.partly || !isName(name)
		if !v.WasRead(p) {
			continue
		}
		j, taken := first[name]
		switch {
		case name == "":
			v.Errorf(p, "missing: give it a name")
		case !isName(name):
			v.Errorf(p, "want at most %d lower-case letters and digits, with '-' and '.' between, got %s", maxName, yaml.Quote(name))
		case taken:
			v.Errorf(p, "%s is the name of %s already", name, v.Name(p.Parent().Parent().Item(j), p))
		default:
			first[name] = i
		}
	}
	return all
}

func (v validator) vips() {
	c := v.config
	advertises := c.Election != nil && len(c.Checks) > 0
	if len(c.VIPs) == 0 && !v.mayServe() && !v.mayBalance() && !advertises {
		v.Errorf("vips", "at least one is needed, or balancers, or a services section")
	}
	owner := map[netip.Addr]yaml.Path{}
	for i := range c.VIPs {
		v.vip(yaml.Path("vips").Item(i), &c.VIPs[i], owner)
	}
	v.advertisement()
}

// advertisement reports too many names for the members' advertisements, if whenAllFail: keep depends on them.
func (v validator) advertisement() {
	names := slices.Clone(v.checkNames.names)
	for _, vip := range v.config.VIPs {
		if vip.WhenAllFail == Keep {
			names = append(names, AdvertisedVIP+vip.Name)
		}
	}
	count, bytes, most := len(names), len(strings.Join(names, " ")), maxAdvertisedBytes-len(v.config.NodeName)
	if count > len(v.config.Checks) && (count > maxAdvertised || bytes > most) {
		v.Errorf("vips", "members advertise all checks and the VIPs with whenAllFail: keep: at most %d with %d bytes of names, got %d with %d: use fewer or shorter names",
			maxAdvertised, most, count, bytes)
	}
}

// vip validates one VIP; owner maps each address so far to its VIP.
func (v validator) vip(p yaml.Path, vip *VIP, owner map[netip.Addr]yaml.Path) {
	if len(vip.Addresses) == 0 {
		v.Errorf(p.Field("addresses"), "list at least one address")
	}
	for i, addr := range vip.Addresses {
		p := p.Field("addresses").Item(i)
		switch first, taken := owner[addr]; {
		case !addr.IsValid(): // could not be decoded
		case !yaml.IsUnicast(addr) || addr.IsLoopback() || addr.IsLinkLocalUnicast():
			v.Errorf(p, "want a unicast address that others can reach, got %s", addr)
		case taken:
			v.Errorf(p, "%s is an address of %s already", addr, v.Name(first, p))
		default:
			owner[addr] = p.Parent().Parent()
			if vip.Announce == AnnounceBGP {
				v.carried(p, addr, vip.Peers)
			}
		}
	}
	switch {
	case vip.Announce == AnnounceBGP && v.config.BGP == nil && v.WasRead("bgp"):
		v.Errorf(p.Field("announce"), "bgp needs a bgp section: add one")
	case vip.Announce == AnnounceARP && v.config.Election == nil && v.WasRead("election"):
		v.Errorf(p.Field("announce"), "arp needs an election section: add one")
	}
	switch link := p.Field("interface"); {
	case vip.Announce == AnnounceARP && vip.Interface == "lo":
		v.Errorf(link, "no other host is on lo: name the link of the VIP's network, or remove it")
	case vip.Interface != "" || vip.Announce == AnnounceBGP:
		v.Link(link, vip.Interface)
	}
	checks, peers := p.Field("checks"), p.Field("peers")
	if len(vip.Checks) == 0 {
		v.Errorf(checks, "list at least one check: a VIP is announced only while its checks pass")
	}
	v.checkNames.referAll(v, checks, vip.Checks)
	if vip.Peers != nil && len(vip.Peers) == 0 {
		v.Errorf(peers, "list at least one peer, or remove it for all of them")
	}
	v.peerNames.referAll(v, peers, vip.Peers)
	if vip.Announce == AnnounceBGP {
		v.attributes(p, &vip.Attributes, v.hasInternalPeer(vip.Peers))
	}
	if *vip.Bridge && v.config.Election == nil && v.WasRead("election") {
		v.Errorf(p.Field("bridge"), "needs an election section to know the healthy masters: add one")
	}
	keep := p.Field("whenAllFail")
	switch {
	case vip.WhenAllFail != Keep:
	case v.config.Election == nil && v.WasRead("election"):
		v.Errorf(keep, "keep needs an election section to know the VIPs that other members serve: add one")
	case len(AdvertisedVIP+vip.Name) > maxName:
		v.Errorf(keep, "members can advertise only VIPs with names of at most %d characters: give it a shorter name", maxName-len(AdvertisedVIP))
	case vip.OnFailure == Demote:
		v.Errorf(keep, "has no effect with onFailure: demote, which keeps the VIP after every failure: remove one of the two")
	}
	if vip.Kernel != nil && vip.Kernel.Table == unix.RT_TABLE_LOCAL {
		v.Errorf(p.Field("kernel").Field("table"), "255 holds the kernel's own routes to this host: use another table, such as 201")
	}
	v.prefixes(p.Field("prefixes"), vip)
	v.idleFields(p, vip)
}

// prefixes validates the aggregates of a VIP.
func (v validator) prefixes(p yaml.Path, vip *VIP) {
	way := func(v VIP) VIP { // how it announces a prefix
		return VIP{Announce: v.Announce, Kernel: v.Kernel, Peers: v.Peers, PrefixWhile: v.PrefixWhile, Attributes: v.Attributes}
	}
	for i, prefix := range vip.Prefixes {
		p := p.Item(i)
		contains := func(addr netip.Addr) bool { return prefix.Contains(addr) }
		overlaps := func(other netip.Prefix) bool { return other.Overlaps(prefix) }
		other := slices.IndexFunc(v.config.VIPs, func(other VIP) bool {
			return slices.Contains(other.Prefixes, prefix) && !reflect.DeepEqual(way(other), way(*vip))
		})
		switch {
		case !prefix.IsValid(): // could not be decoded
		case vip.Kernel != nil && vip.Kernel.Table == unix.RT_TABLE_MAIN:
			v.Errorf(p, "in the main table it would attract this node's own packets to its other addresses: give kernel.table another number")
		case prefix.Bits() == 0:
			v.Errorf(p, "a default route is too wide: give the prefix that contains the VIPs")
		case !slices.ContainsFunc(vip.Addresses, contains):
			v.Errorf(p, "contains no address of the VIP: add one in %s, or remove it", prefix)
		case slices.ContainsFunc(vip.Prefixes[:i], overlaps):
			v.Errorf(p, "overlaps another prefix: remove one")
		case other >= 0:
			v.Errorf(p, "%s announces it differently: give both the same announce, kernel, peers, prefixWhile and attributes", v.config.VIPs[other].Name)
		}
	}
}

// idleFields refuses fields that have no effect with the VIP's way of announcement.
func (v validator) idleFields(p yaml.Path, vip *VIP) {
	leaseFields := []string{"priority", "preempt", "onConflict"}
	routeFields := []string{"peers", "communities", "largeCommunities", "med", "localPref", "prepend"}
	var idle []string
	switch vip.Announce {
	case AnnounceBGP:
		idle = append(leaseFields, "kernel")
	case AnnounceKernel:
		idle = append(append(leaseFields, routeFields...), "interface")
	case AnnounceARP:
		idle = append(routeFields, "kernel", "prefixes", "prefixWhile", "onFailure")
	}
	var plain VIP
	yaml.SetDefaults(&plain)
	given, usual := reflect.ValueOf(vip).Elem(), reflect.ValueOf(&plain).Elem()
	for _, f := range yaml.FieldsOf(given.Type(), "yaml") {
		differs := !reflect.DeepEqual(given.FieldByIndex(f.Index).Interface(), usual.FieldByIndex(f.Index).Interface())
		if slices.Contains(idle, f.Name) && differs {
			v.Errorf(p.Field(f.Name), "has no effect with announce: %s: remove it", vip.Announce)
		}
	}
}

// carried reports the VIP address at p if no BGP session carries its family, of
// the peers with the given names or of all.
func (v validator) carried(p yaml.Path, addr netip.Addr, names []string) {
	if v.config.BGP == nil || len(v.config.BGP.Peers) == 0 {
		return // reported elsewhere
	}
	family, found := familyOf(addr), false
	for i, peer := range v.config.BGP.Peers {
		if names != nil && !slices.Contains(names, peer.Name()) {
			continue
		}
		found = true
		p := yaml.Path("bgp.peers").Item(i).Field("families")
		unclear := !v.WasRead(p) || len(peer.Families) == 0
		if unclear || slices.ContainsFunc(peer.Families, func(f v1alpha1.Family) bool { return f == family || !isFamily(f) }) {
			return
		}
	}
	switch {
	case names == nil:
		v.Errorf(p, "no peer carries %s routes: add %[1]s to the families of one", family)
	case found:
		v.Errorf(p, "no peer of the VIP carries %s routes: add %[1]s to the families of one", family)
	}
}

// known are the names of all configured items of one kind.
type known struct {
	kind   string
	names  []string
	partly bool // some names are missing because of mistakes of their own
}

// refer validates a name at p that refers to a configured item.
func (n known) refer(v validator, p yaml.Path, name string) {
	if slices.Contains(n.names, name) || n.partly {
		return
	}
	hint := ""
	if meant := yaml.Closest(name, n.names); meant != "" {
		hint = ", did you mean " + meant + "?"
	}
	v.Errorf(p, "no %s has the name %s%s", n.kind, yaml.Quote(name), hint)
}

// referAll validates a list of names that refer to configured items.
func (n known) referAll(v validator, p yaml.Path, list []string) {
	for i, name := range list {
		if slices.Contains(list[:i], name) {
			v.Errorf(p.Item(i), "%s is listed twice", yaml.Quote(name))
		} else {
			n.refer(v, p.Item(i), name)
		}
	}
}

// isName reports whether s is a valid name of a VIP, check or the like.
func isName(s string) bool { return len(s) <= maxName && yaml.IsName(s) }

// isVIP reports whether addr is an address of a VIP.
func (v validator) isVIP(addr netip.Addr) bool {
	return addr.IsValid() && slices.ContainsFunc(v.config.VIPs, func(vip VIP) bool { return slices.Contains(vip.Addresses, addr) })
}

func isFamily(f v1alpha1.Family) bool { return f == v1alpha1.IPv4 || f == v1alpha1.IPv6 }

func familyOf(addr netip.Addr) v1alpha1.Family {
	if addr.Is4() {
		return v1alpha1.IPv4
	}
	return v1alpha1.IPv6
}

// CheckPeer sets the derived defaults of a peer from outside the file, and validates it by the rules of
// the file; asn is this node's ASN towards it. The error has a clause for each mistake, in one line.
func (c *Config) CheckPeer(asn uint32, p *v1alpha1.Peer) error {
	derivePeer(p)
	around := *c
	around.BGP = &BGP{ASN: asn, Peers: []v1alpha1.Peer{*p}}
	r := yaml.NewReport("")
	r.Limits("", p)
	validator{Report: r, config: &around}.peer("", p)
	var mistakes Errors
	if !errors.As(r.Err(), &mistakes) {
		return nil
	}
	var said []string
	for _, e := range mistakes {
		if e.Field != "" {
			e.Message = e.Field + ": " + e.Message
		}
		said = append(said, e.Message)
	}
	return errors.New(strings.Join(said, "; "))
}

// mayServe reports whether there is a services section, with or without mistakes.
func (v validator) mayServe() bool { return v.config.Services != nil || !v.WasRead("services") }

func (v validator) services(p yaml.Path, s *Services) {
	v.File(p.Field("kubeconfig"), s.Kubeconfig)
	if !isClass(s.LoadBalancerClass) {
		v.Errorf(p.Field("loadBalancerClass"), "want a name such as herald.dev/vip, got %s", yaml.Quote(s.LoadBalancerClass))
	}
	if s.Namespace != "" && (!isName(s.Namespace) || strings.Contains(s.Namespace, ".")) {
		v.Errorf(p.Field("namespace"), "want the name of a namespace: lower-case letters and digits, with '-' between, got %s", yaml.Quote(s.Namespace))
	}
	for i, key := range s.ExcludeTaints {
		if !isClass(key) {
			v.Errorf(p.Field("excludeTaints").Item(i), "want the key of a taint, such as node.kubernetes.io/out-of-service, got %s", yaml.Quote(key))
		}
	}
}

// isClass reports whether s can be the class of a Service: a Kubernetes label key,
// which is a name with an optional domain as its prefix.
func isClass(s string) bool {
	domain, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		domain, name = "", s
	}
	return (!prefixed || yaml.IsName(domain)) && isName(strings.ToLower(strings.ReplaceAll(name, "_", "-")))
}
