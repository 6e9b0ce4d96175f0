package migrate

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/herald-vip/herald/config"
)

// draft is the configuration as far as it is known. A zero field is not
// written, so that Herald's default holds. Lines are named by the path of their
// field, as in vips[0].addresses.
type draft struct {
	noteList
	config.Config
	comments map[string][]string // before a line
	holes    map[string][]string // in place of a field that only a human can give
	origins  map[string]int      // where in the input a field comes from
	taken    map[string]bool     // names of VIPs and checks
	numbers  map[string]int      // how many of a name there have been
	vipAddrs map[netip.Addr]bool // addresses of VIPs
}

func newDraft(file string) *draft {
	return &draft{
		noteList: noteList{file: shown(file)},
		Config:   config.Config{APIVersion: config.APIVersion, Kind: config.Kind},
		comments: map[string][]string{},
		holes:    map[string][]string{},
		origins:  map[string]int{},
		taken:    map[string]bool{},
		numbers:  map[string]int{},
		vipAddrs: map[netip.Addr]bool{},
	}
}

// comment puts lines before the one of the field at path.
func (d *draft) comment(path string, lines ...string) {
	d.comments[path] = append(d.comments[path], lines...)
}

// leave leaves the field at path to be filled in: what is to be there is said in
// the file, in place of the field, and in a note on the input's line.
func (d *draft) leave(path string, line int, what string, template ...string) {
	if d.holes[path] != nil {
		return
	}
	d.holes[path] = append([]string{"FILL IN: " + what}, template...)
	d.todo(line, path, "fill in %s", what)
}

// elect writes the election section, with the members that are known, or none.
func (d *draft) elect(line int, members map[string]netip.AddrPort, o Options) {
	d.Election = &config.Election{Members: members, KeyFile: o.KeyFile}
	if len(members) == 0 {
		d.leave("election.members", line, "all nodes that vote, this one among them, by the names of the hosts; the same on every node",
			"members:", fmt.Sprintf("  NAME: ADDRESS:%d", GossipPort))
	}
	if o.KeyFile == "" {
		d.Election.KeyFile = "/etc/herald/gossip.key"
		d.comment("election.keyFile", "Make it once, with herald keygen, and copy it to every member, mode 0600.")
		d.todo(line, "election.keyFile", "make the key that the members share: herald keygen %s, then copy it to all of them", d.Election.KeyFile)
	}
}

// defaultCheck asks the local apiserver where kubeadm has it listen.
func defaultCheck(port string) config.Check {
	return config.Check{Name: "apiserver", HTTP: &config.HTTPCheck{
		URL:        "https://127.0.0.1:" + port + "/readyz",
		CAFile:     "/etc/kubernetes/pki/ca.crt",
		ServerName: "kubernetes",
	}}
}

// kubeadmPaths is what to know of defaultCheck.
const kubeadmPaths = "Where kubeadm puts it; k3s has /var/lib/rancher/k3s/server/tls/server-ca.crt."

// result writes the draft and has Herald judge it: what it refuses, but for the
// lines that are to be filled in, is one more thing to do.
func (d *draft) result(tool string) *Result {
	if len(d.VIPs)+len(d.Balancers) == 0 {
		return &Result{Notes: d.sorted()}
	}
	for i := range d.Checks {
		if d.asksVIP(&d.Checks[i]) {
			path := fmt.Sprintf("checks[%d]", i)
			d.comment(path, "TO DO: this asks the VIP, which answers only once it is announced: let it ask this node's own server.")
			d.todo(d.origin(path), d.Checks[i].Name, "asks the VIP, which answers only once it is announced: let the check ask this node's own server")
		}
	}
	out := d.yaml(tool)
	for _, mistake := range judge(out, d.node()) {
		if !d.isHole(mistake.Field) {
			d.todo(d.origin(mistake.Field), mistake.Field, "Herald refuses what came of it: %s", mistake.Message)
		}
	}
	return &Result{Config: out, Notes: d.sorted()}
}

// asksVIP reports whether a check leads to a VIP.
func (d *draft) asksVIP(c *config.Check) bool {
	var host string
	if c.TCP != nil {
		host, _, _ = net.SplitHostPort(c.TCP.Address)
	} else if u, err := url.Parse(c.HTTP.URL); err == nil {
		host = u.Hostname()
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && d.vipAddrs[addr]
}

// node is a name that the file has to be good for: a member's, if there are any.
func (d *draft) node() string {
	if d.Election != nil && len(d.Election.Members) > 0 {
		return slices.Min(slices.Collect(maps.Keys(d.Election.Members)))
	}
	return "node"
}

// judge is what Herald finds wrong with a configuration on a node. Files that it names are not looked at.
func judge(data []byte, node string) config.Errors {
	_, err := config.Parse("", data, config.Hostname(node))
	var mistakes config.Errors
	if err != nil && !errors.As(err, &mistakes) {
		mistakes = config.Errors{{Message: err.Error()}}
	}
	return mistakes
}

// isHole reports whether a mistake in field is that it, or what it belongs to, is to be filled in.
func (d *draft) isHole(field string) bool {
	for ; field != ""; field = parent(field) {
		if d.holes[field] != nil {
			return true
		}
	}
	return false
}

// origin is the input's line that field, or what it belongs to, comes from.
func (d *draft) origin(field string) int {
	for ; field != ""; field = parent(field) {
		if line, ok := d.origins[field]; ok {
			return line
		}
	}
	return 0
}

func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// addVIP adds v under a name that no other has, and returns its path.
func (d *draft) addVIP(v config.VIP, line int) string {
	v.Name = d.unique("VIP ", v.Name)
	d.VIPs = append(d.VIPs, v)
	for _, addr := range v.Addresses {
		d.vipAddrs[addr] = true
	}
	path := fmt.Sprintf("vips[%d]", len(d.VIPs)-1)
	d.origins[path] = line
	return path
}

// addCheck adds c under a name that no other has, and returns its path.
func (d *draft) addCheck(c config.Check, line int) (path, name string) {
	c.Name = d.unique("check ", c.Name)
	d.Checks = append(d.Checks, c)
	path = fmt.Sprintf("checks[%d]", len(d.Checks)-1)
	d.origins[path] = line
	return path, c.Name
}

// addBalancer adds b under a name that no other has, and returns its path.
func (d *draft) addBalancer(b config.Balancer, line int) string {
	b.Name = d.unique("balancer ", b.Name)
	d.Balancers = append(d.Balancers, b)
	path := fmt.Sprintf("balancers[%d]", len(d.Balancers)-1)
	d.origins[path] = line
	return path
}

// unique is name, or name with the first number that makes it no one else's of its kind.
func (d *draft) unique(kind, name string) string {
	s := name
	for n := d.numbers[kind+name]; d.taken[kind+s]; d.numbers[kind+name] = n {
		n++
		s = fmt.Sprintf("%s-%d", name, n+1)
	}
	d.taken[kind+s] = true
	return s
}
