package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/yaml"
)

// Draft is the configuration as far as it is known. A zero field is not
// written, so that Herald's default holds. Lines are named by the path of their
// field, as in vips[0].addresses.
type Draft struct {
	Notes
	config.Config
	Origins  map[yaml.Path]int // where in the input a field comes from
	VIPAddrs map[netip.Addr]bool

	comments map[yaml.Path][]string // before a line
	holes    map[yaml.Path][]string // in place of a field that only a human can give
	names    map[string]int         // of VIPs, checks and balancers, each with the last number that was tried after it
}

// NewDraft makes the draft of what a file becomes.
func NewDraft(file string) *Draft {
	return &Draft{
		Notes:    Notes{File: Shown(file)},
		Config:   config.Config{APIVersion: config.APIVersion, Kind: config.Kind},
		comments: map[yaml.Path][]string{},
		holes:    map[yaml.Path][]string{},
		Origins:  map[yaml.Path]int{},
		names:    map[string]int{},
		VIPAddrs: map[netip.Addr]bool{},
	}
}

// Comment puts lines before the one of the field at path.
func (d *Draft) Comment(path yaml.Path, lines ...string) {
	d.comments[path] = append(d.comments[path], lines...)
}

// Leave leaves the field at path to be filled in: what is to be there is said in
// the file, in place of the field, and in a note on the input's line.
func (d *Draft) Leave(path yaml.Path, line int, what string, template ...string) {
	if d.holes[path] == nil {
		d.LeaveSilently(path, what, template...)
		d.ToDo(line, string(path), "fill in %s", what)
	}
}

// LeaveSilently is Leave without a note.
func (d *Draft) LeaveSilently(path yaml.Path, what string, template ...string) {
	d.holes[path] = append([]string{"FILL IN: " + what}, template...)
}

// Writer writes what is of the draft, its resources among them, whose fields have tags of that key.
func (d *Draft) Writer(tag string) *yaml.Writer {
	return &yaml.Writer{Tag: tag, Comments: d.comments, Holes: d.holes, Omit: func(value, usual reflect.Value) bool {
		if value.Kind() == reflect.Bool {
			return value.Bool() == usual.Bool()
		}
		return value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 || value.Kind() == reflect.Map && value.Len() == 0
	}}
}

// Elect writes the election section, with the members that are known, or none.
func (d *Draft) Elect(line int, members map[string]netip.AddrPort, o Options) {
	d.Election = &electorate.Settings{Members: members, KeyFile: cmp.Or(o.KeyFile, "/etc/herald/gossip.key")}
	if len(members) == 0 {
		voters := "all nodes that vote, this one among them, by the names of the hosts; the same on every node"
		if o.Namespace != "" {
			voters = "three or five Nodes that vote, such as the masters, by their names; all others take part without a vote"
		}
		d.Leave("election.members", line, voters, "members:", fmt.Sprintf("  NAME: ADDRESS:%d", GossipPort))
	}
	switch {
	case o.KeyFile != "":
	case o.Namespace != "":
		d.ToDo(line, "election.keyFile", "make the key that the nodes share: herald keygen gossip.key, then kubectl -n %s create secret generic herald --from-file=gossip.key", o.Namespace)
	default:
		d.Comment("election.keyFile", "Make it once, with herald keygen, and copy it to every member, mode 0600.")
		d.ToDo(line, "election.keyFile", "make the key that the members share: herald keygen %s, then copy it to all of them", d.Election.KeyFile)
	}
}

// DefaultCheck asks the local apiserver where kubeadm has it listen.
func DefaultCheck(port string) health.Check {
	return health.Check{Name: "apiserver", HTTP: &health.HTTP{
		URL:        "https://127.0.0.1:" + port + "/readyz",
		CAFile:     "/etc/kubernetes/pki/ca.crt",
		ServerName: "kubernetes",
	}}
}

// KubeadmPaths is what to know of DefaultCheck.
const KubeadmPaths = "Where kubeadm puts it; k3s has /var/lib/rancher/k3s/server/tls/server-ca.crt."

// Result writes the draft, which Herald has judged.
func (d *Draft) Result(tool string) *Result {
	if len(d.VIPs)+len(d.Balancers) == 0 {
		return &Result{Notes: d.Sorted()}
	}
	for i := range d.Checks {
		if d.asksVIP(&d.Checks[i]) {
			path := yaml.Path("checks").Item(i)
			d.Comment(path, "TO DO: this asks the VIP, which answers only once it is announced: let it ask this node's own server.")
			d.ToDo(d.origin(path), d.Checks[i].Name, "asks the VIP, which answers only once it is announced: let the check ask this node's own server")
		}
	}
	w := d.Writer("yaml")
	w.Remark(fmt.Sprintf("From %s by herald migrate %s. Look at the comments, fill in what is left open,", d.File, tool),
		"then: herald validate --config FILE")
	w.Struct("", &d.Config)
	d.Judge()
	return &Result{Config: []byte(w.String()), Notes: d.Sorted()}
}

// Judge has Herald validate the draft: what it refuses, except what is to be filled
// in, is one more thing to do.
func (d *Draft) Judge() {
	w := d.Writer("yaml")
	w.Struct("", &d.Config)
	for _, mistake := range Validate([]byte(w.String()), d.node()) {
		if path := yaml.Path(mistake.Field); !d.IsHole(path) {
			d.ToDo(d.origin(path), mistake.Field, "Herald refuses what came of it: %s", mistake.Message)
		}
	}
}

// asksVIP reports whether a check leads to a VIP.
func (d *Draft) asksVIP(c *health.Check) bool {
	switch {
	case c.TCP != nil:
		return d.leadsToVIP(c.TCP.Address)
	case c.HTTP != nil:
		return d.leadsToVIP(c.HTTP.URL)
	}
	return c.Exec != nil && slices.ContainsFunc(c.Exec.Command, d.leadsToVIP)
}

// leadsToVIP reports whether s is an address, with or without a port, or a URL of a VIP.
func (d *Draft) leadsToVIP(s string) bool {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		s = u.Hostname()
	} else if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	addr, err := netip.ParseAddr(strings.TrimPrefix(s, "@")) // as dig has it
	return err == nil && d.VIPAddrs[addr]
}

// node is a name that the file has to be good for: a member's, if there are any.
func (d *Draft) node() string {
	if d.Election != nil && len(d.Election.Members) > 0 {
		return slices.Min(slices.Collect(maps.Keys(d.Election.Members)))
	}
	return "node"
}

// Validate is what Herald finds wrong with a configuration on a node. Files that it names are not looked at.
func Validate(data []byte, node string) config.Errors {
	_, err := config.Parse("", data, config.Hostname(node))
	var mistakes config.Errors
	if err != nil && !errors.As(err, &mistakes) {
		mistakes = config.Errors{{Message: err.Error()}}
	}
	return mistakes
}

// IsHole reports whether a mistake in field is that it, or what it belongs to, is to be filled in.
func (d *Draft) IsHole(field yaml.Path) bool {
	for ; field != ""; field = field.Parent() {
		if d.holes[field] != nil {
			return true
		}
	}
	return false
}

// origin is the input's line that field, or what it belongs to, comes from.
func (d *Draft) origin(field yaml.Path) int {
	for ; field != ""; field = field.Parent() {
		if line, ok := d.Origins[field]; ok {
			return line
		}
	}
	return 0
}

// AddVIP adds v under a name that no other has, and returns its path. Addresses and checks are left to be filled in if it
// has none; lost are the checks that could not be made.
func (d *Draft) AddVIP(v config.VIP, line int, lost ...string) yaml.Path {
	path := d.add("vips", len(d.VIPs), &v.Name, line)
	d.VIPs = append(d.VIPs, v)
	for _, addr := range v.Addresses {
		d.VIPAddrs[addr] = true
	}
	if len(v.Addresses) == 0 {
		d.Leave(path+".addresses", line, "the VIP's addresses, in its prefixes if it has any, that clients use: none could be read", "addresses: [ADDRESS]")
	}
	switch {
	case len(v.Checks) == 0:
		d.Leave(path+".checks", line, "what has to be healthy for the VIP to be announced, as Herald announces nothing unchecked",
			"checks: [NAME]  # of the checks at the top level, {name: NAME, tcp: {address: 127.0.0.1:PORT}} or http: {url: URL}")
	case len(lost) > 0:
		d.Comment(path+".checks", "TO DO: checks of what these asked: "+strings.Join(lost, ", "))
	}
	return path
}

// Place has v announce an address, or the prefix of several, each once.
func (d *Draft) Place(v *config.VIP, line int, subject, s string) {
	addr, bits := ParseAddr(s)
	switch {
	case !addr.IsValid():
		d.ToDo(line, subject, "%s is no address: write it into the VIP by hand", Quoted(s))
	case bits < addr.BitLen():
		v.Prefixes = append(v.Prefixes, netip.PrefixFrom(addr, bits).Masked())
	case d.VIPAddrs[addr]:
		d.Note(line, subject, "%s is a VIP already: taken once", addr)
	default:
		d.VIPAddrs[addr] = true
		v.Addresses = append(v.Addresses, addr)
	}
}

// AddCheck adds c under a name that no other has, and returns its path.
func (d *Draft) AddCheck(c health.Check, line int) (path yaml.Path, name string) {
	path = d.add("checks", len(d.Checks), &c.Name, line)
	d.Checks = append(d.Checks, c)
	return path, c.Name
}

// AddBalancer adds b under a name that no other has, and returns its path.
func (d *Draft) AddBalancer(b balancer.Config, line int) yaml.Path {
	path := d.add("balancers", len(d.Balancers), &b.Name, line)
	d.Balancers = append(d.Balancers, b)
	return path
}

// add is the path of the i-th of a list, whose name gets the first number that makes it no other's, if it is one's.
func (d *Draft) add(list yaml.Path, i int, name *string, line int) yaml.Path {
	base := string(list.Field(*name))
	unique, n := base, d.names[base]
	for d.names[unique] > 0 {
		n++
		unique = fmt.Sprintf("%s-%d", base, n)
	}
	d.names[base], d.names[unique] = max(n, 1), 1
	*name = strings.TrimPrefix(unique, string(list)+".")
	path := list.Item(i)
	d.Origins[path] = line
	return path
}
