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

// Draft is a configuration in the making. Zero fields are not written, so that Herald's defaults
// apply. Paths name fields, as in vips[0].addresses.
type Draft struct {
	Notes
	config.Config
	Origins  map[yaml.Path]int // input lines of fields
	VIPAddrs map[netip.Addr]bool

	comments map[yaml.Path][]string // before a field
	holes    map[yaml.Path][]string // in place of a field that the user must fill in
	names    map[string]int         // names of VIPs, checks and balancers, with the last suffix tried
}

// NewDraft returns an empty draft for an input file.
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

// Comment adds comment lines before the field at path.
func (d *Draft) Comment(path yaml.Path, lines ...string) {
	d.comments[path] = append(d.comments[path], lines...)
}

// Leave leaves the field at path to the user. It writes the description what and the template in place
// of the field, and notes it for the input's line.
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

// Writer returns a writer with the draft's comments and holes, for structs with tags of that key.
func (d *Draft) Writer(tag string) *yaml.Writer {
	return &yaml.Writer{Tag: tag, Comments: d.comments, Holes: d.holes, Omit: func(value, usual reflect.Value) bool {
		if value.Kind() == reflect.Bool {
			return value.Bool() == usual.Bool()
		}
		return value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 || value.Kind() == reflect.Map && value.Len() == 0
	}}
}

// Elect adds the election section, with o.KeyFile and these members, or leaves them to the user.
func (d *Draft) Elect(line int, members map[string]netip.AddrPort, o Options) {
	d.Election = &electorate.Settings{Members: members, KeyFile: cmp.Or(o.KeyFile, "/etc/herald/gossip.key")}
	if len(members) == 0 {
		voters := "all nodes that vote, this one included, by host name; the same on every node"
		if o.Namespace != "" {
			voters = "three or five voting Nodes, such as the masters, by name; all others take part without a vote"
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

// DefaultCheck returns a check of the local apiserver as kubeadm sets it up.
func DefaultCheck(port string) health.Check {
	return health.Check{Name: "apiserver", HTTP: &health.HTTP{
		URL:        "https://127.0.0.1:" + port + "/readyz",
		CAFile:     "/etc/kubernetes/pki/ca.crt",
		ServerName: "kubernetes",
	}}
}

// KubeadmPaths is the comment for DefaultCheck.
const KubeadmPaths = "The path with kubeadm; k3s has /var/lib/rancher/k3s/server/tls/server-ca.crt."

// Result validates the draft and returns it as YAML, with the notes.
func (d *Draft) Result(tool string) *Result {
	if len(d.VIPs)+len(d.Balancers) == 0 {
		return &Result{Notes: d.Sorted()}
	}
	for i := range d.Checks {
		if d.asksVIP(&d.Checks[i]) {
			path := yaml.Path("checks").Item(i)
			d.Comment(path, "TO DO: this asks the VIP, which answers only once it is announced: ask this node's own server instead.")
			d.ToDo(d.origin(path), d.Checks[i].Name, "asks the VIP, which answers only once it is announced: ask this node's own server instead")
		}
	}
	w := d.Writer("yaml")
	w.Remark(fmt.Sprintf("From %s by herald migrate %s. Read the comments, fill in the open fields,", d.File, tool),
		"then: herald validate --config FILE")
	w.Struct("", &d.Config)
	d.Judge()
	return &Result{Config: []byte(w.String()), Notes: d.Sorted()}
}

// Judge validates the draft with package config and notes each mistake, except fields that the user must fill in.
func (d *Draft) Judge() {
	w := d.Writer("yaml")
	w.Struct("", &d.Config)
	node := "node"
	if d.Election != nil && len(d.Election.Members) > 0 {
		node = slices.Min(slices.Collect(maps.Keys(d.Election.Members)))
	}
	for _, mistake := range Validate([]byte(w.String()), node) {
		if path := yaml.Path(mistake.Field); !d.IsHole(path) {
			d.ToDo(d.origin(path), mistake.Field, "Herald refuses the result: %s", mistake.Message)
		}
	}
}

// asksVIP reports whether a check probes a VIP.
func (d *Draft) asksVIP(c *health.Check) bool {
	switch {
	case c.TCP != nil:
		return d.leadsToVIP(c.TCP.Address)
	case c.HTTP != nil:
		return d.leadsToVIP(c.HTTP.URL)
	}
	return c.Exec != nil && slices.ContainsFunc(c.Exec.Command, d.leadsToVIP)
}

// leadsToVIP reports whether s is the address of a VIP, with or without a port, or a URL with it.
func (d *Draft) leadsToVIP(s string) bool {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		s = u.Hostname()
	} else if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	addr, err := netip.ParseAddr(strings.TrimPrefix(s, "@")) // as dig has it
	return err == nil && d.VIPAddrs[addr]
}

// Validate returns the mistakes of a configuration on a node. It does not read files that it names.
func Validate(data []byte, node string) config.Errors {
	_, err := config.Parse("", data, config.Hostname(node))
	var mistakes config.Errors
	if err != nil && !errors.As(err, &mistakes) {
		mistakes = config.Errors{{Message: err.Error()}}
	}
	return mistakes
}

// IsHole reports whether field, or a field around it, is left to the user.
func (d *Draft) IsHole(field yaml.Path) bool {
	for ; field != ""; field = field.Parent() {
		if d.holes[field] != nil {
			return true
		}
	}
	return false
}

// origin returns the input line of field, or of a field around it; 0 if unknown.
func (d *Draft) origin(field yaml.Path) int {
	for ; field != ""; field = field.Parent() {
		if line, ok := d.Origins[field]; ok {
			return line
		}
	}
	return 0
}

// AddVIP adds v under a unique name and returns its path. Missing addresses and checks are left to the
// user; lost describes checks that could not be converted.
func (d *Draft) AddVIP(v config.VIP, line int, lost ...string) yaml.Path {
	path := d.add("vips", len(d.VIPs), &v.Name, line)
	d.VIPs = append(d.VIPs, v)
	for _, addr := range v.Addresses {
		d.VIPAddrs[addr] = true
	}
	if len(v.Addresses) == 0 {
		d.Leave(path+".addresses", line, "the VIP's addresses that clients use, within its prefixes if it has any: none could be read", "addresses: [ADDRESS]")
	}
	switch {
	case len(v.Checks) == 0:
		d.Leave(path+".checks", line, "the VIP's checks: Herald announces it only while they pass",
			"checks: [NAME]  # of the checks at the top level, {name: NAME, tcp: {address: 127.0.0.1:PORT}} or http: {url: URL}")
	case len(lost) > 0:
		d.Comment(path+".checks", "TO DO: write checks in place of: "+strings.Join(lost, ", "))
	}
	return path
}

// Place adds the address or prefix s to v. It notes a duplicate or an invalid address.
func (d *Draft) Place(v *config.VIP, line int, subject, s string) {
	addr, bits := ParseAddr(s)
	switch {
	case !addr.IsValid():
		d.ToDo(line, subject, "%s is not an address: write it into the VIP by hand", Quoted(s))
	case bits < addr.BitLen():
		v.Prefixes = append(v.Prefixes, netip.PrefixFrom(addr, bits).Masked())
	case d.VIPAddrs[addr]:
		d.Note(line, subject, "%s is a VIP already: taken once", addr)
	default:
		d.VIPAddrs[addr] = true
		v.Addresses = append(v.Addresses, addr)
	}
}

// AddCheck adds c under a unique name and returns its path and name.
func (d *Draft) AddCheck(c health.Check, line int) (path yaml.Path, name string) {
	path = d.add("checks", len(d.Checks), &c.Name, line)
	d.Checks = append(d.Checks, c)
	return path, c.Name
}

// AddBalancer adds b under a unique name and returns its path.
func (d *Draft) AddBalancer(b balancer.Config, line int) yaml.Path {
	path := d.add("balancers", len(d.Balancers), &b.Name, line)
	d.Balancers = append(d.Balancers, b)
	return path
}

// add makes a name unique in a list, by a numeric suffix if needed, and returns the path of item i.
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
