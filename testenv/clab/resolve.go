package clab

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// topology turns the file into a Topology: inheritance merged, every name resolved.
// Relative bind paths start at dir.
func (f *file) topology(dir string) (*Topology, error) {
	if !validName(f.Name) {
		return nil, mistakef(position{}, "name: %q is no name for a lab; want letters, digits, '-', '.' and '_'", f.Name)
	}
	t := &Topology{Name: f.Name}
	names := make(map[string]string) // the nodes' names by their names in the file
	for _, e := range f.Topology.Nodes {
		n, err := f.node(e, dir)
		if err != nil {
			return nil, err
		}
		if _, twice := t.Node(n.Name); twice {
			return nil, mistakef(e.position, "node %s: there is another of that name", n.Name)
		}
		t.Nodes = append(t.Nodes, n)
		names[e.name] = n.Name
	}
	for i, e := range f.Topology.Nodes {
		n := &t.Nodes[i]
		owner := n.Base
		if n.Kind == Bridge {
			_, owner, _ = strings.Cut(e.name, bridgeOwner)
		}
		if owner == "" {
			continue
		}
		base, ok := t.Node(owner)
		if !ok || base.Kind != Linux || base.Base != "" {
			return nil, mistakef(e.position, "node %s: network-mode: %q is not a node with a network of its own", n.Name, owner)
		}
		if n.Kind == Linux {
			n.Hostname = base.Hostname
		}
	}
	used := make(map[Endpoint]bool)
	for _, l := range f.Topology.Links {
		link, err := t.link(l, names, used)
		if err != nil {
			return nil, err
		}
		t.Links = append(t.Links, link)
	}
	return t, nil
}

// bridgeOwner separates the name of a bridge from the node that owns its network, if any.
const bridgeOwner = "|"

// node merges the settings of an entry: the defaults, then its kind, then its group, then its own.
func (f *file) node(e entry[definition], dir string) (Node, error) {
	n := Node{Name: e.name, Kind: cmp.Or(e.value.Kind, f.Topology.Defaults.Kind)}
	if n.Kind == Bridge {
		n.Name, _, _ = strings.Cut(e.name, bridgeOwner)
	}
	if !validName(n.Name) {
		return Node{}, mistakef(e.position, "%q is no name for a node; want letters, digits, '-', '.' and '_'", n.Name)
	}
	levels := []definition{f.Topology.Defaults}
	known := e.value.Group == ""
	for _, k := range f.Topology.Kinds {
		if k.name == n.Kind {
			levels = append(levels, k.value)
		}
	}
	for _, g := range f.Topology.Groups {
		if g.name == e.value.Group {
			levels, known = append(levels, g.value), true
		}
	}
	if !known {
		return Node{}, mistakef(e.position, "node %s: there is no group %q", n.Name, e.value.Group)
	}
	levels = append(levels, e.value)

	switch n.Kind {
	case Bridge:
		if err := checkBridge(e.name, levels); err != nil {
			return Node{}, mistakef(e.position, "node %s: %v", n.Name, err)
		}
		return n, nil
	case Linux:
	default:
		return Node{}, mistakef(e.position, "node %s: kind %q is not supported; want %s or %s", n.Name, n.Kind, Linux, Bridge)
	}
	if err := n.merge(levels, dir); err != nil {
		return Node{}, mistakef(e.position, "node %s: %v", n.Name, err)
	}
	return n, nil
}

// checkBridge returns an error unless the bridge is in the host's network, which is
// the default, or in the network of the node in its name.
func checkBridge(name string, levels []definition) error {
	var network string
	for _, d := range levels {
		network = cmp.Or(d.NetworkMode, network)
	}
	_, owner, owned := strings.Cut(name, bridgeOwner)
	switch {
	case owned && network != "container:"+owner:
		return wrong("network-mode", network, fmt.Errorf("want container:%s, as the name says", owner))
	case !owned && network != "":
		return wrong("network-mode", network, errors.New("a bridge on the host has none; one in a node's network is called BRIDGE|NODE"))
	}
	return nil
}

// merge applies the levels in order, the later over the earlier.
func (n *Node) merge(levels []definition, dir string) error {
	var entrypoint, cmd, network string
	var exec []string
	n.Env, n.Sysctls = make(map[string]string), make(map[string]string)
	n.Hostname = n.Name
	for _, d := range levels {
		n.Image = cmp.Or(d.Image, n.Image)
		n.Hostname = cmp.Or(d.Hostname, n.Hostname)
		entrypoint = cmp.Or(d.Entrypoint, entrypoint)
		cmd = cmp.Or(d.Cmd, cmd)
		network = cmp.Or(d.NetworkMode, network)
		maps.Copy(n.Env, d.Env)
		maps.Copy(n.Sysctls, d.Sysctls)
		for _, c := range d.Exec {
			if !slices.Contains(exec, c) { // containerlab runs a command once
				exec = append(exec, c)
			}
		}
		for _, b := range d.Binds {
			bind, err := parseBind(b, dir)
			if err != nil {
				return err
			}
			n.Binds = slices.DeleteFunc(n.Binds, func(o Bind) bool { return o.Target == bind.Target })
			n.Binds = append(n.Binds, bind)
		}
	}
	var err error
	if n.Entrypoint, err = words(entrypoint); err != nil {
		return wrong("entrypoint", entrypoint, err)
	}
	if n.Cmd, err = words(cmd); err != nil {
		return wrong("cmd", cmd, err)
	}
	for _, c := range exec {
		argv, err := words(c)
		if err != nil {
			return wrong("exec", c, err)
		}
		if len(argv) == 0 {
			return wrong("exec", c, errors.New("the command is empty"))
		}
		if strings.Contains(c, magic) {
			return wrong("exec", c, errMagic)
		}
		n.Exec = append(n.Exec, argv)
	}
	switch base, shared := strings.CutPrefix(network, "container:"); {
	case shared && base != "":
		n.Base = base
	case network != "" && network != "none":
		return wrong("network-mode", network, errors.New("want none or container:NODE"))
	}
	return nil
}

// parseBind reads SOURCE:TARGET[:OPTIONS].
func parseBind(text, dir string) (Bind, error) {
	part := strings.Split(text, ":")
	if len(part) < 2 || len(part) > 3 || part[0] == "" || !filepath.IsAbs(part[1]) {
		return Bind{}, wrong("binds", text, errors.New("want SOURCE:TARGET or SOURCE:TARGET:ro with an absolute TARGET"))
	}
	if strings.Contains(text, magic) {
		return Bind{}, wrong("binds", text, errMagic)
	}
	if strings.HasPrefix(part[0], "~") {
		return Bind{}, wrong("binds", text, errors.New("~ is not supported; write the path out"))
	}
	b := Bind{Source: part[0], Target: filepath.Clean(part[1])}
	if !filepath.IsAbs(b.Source) {
		b.Source = filepath.Join(dir, b.Source)
	}
	if len(part) == 3 {
		b.ReadOnly = slices.Contains(strings.Split(part[2], ","), "ro")
	}
	return b, nil
}

// link resolves a link's endpoints. names maps the file's node names to the nodes',
// used holds the interfaces that exist already.
func (t *Topology) link(l located[linkRecord], names map[string]string, used map[Endpoint]bool) (Link, error) {
	if len(l.value.Endpoints) != 2 {
		return Link{}, mistakef(l.position, "a link has two endpoints, not %d", len(l.value.Endpoints))
	}
	link := Link{MTU: cmp.Or(l.value.MTU, DefaultMTU)}
	if link.MTU < 68 || link.MTU > 65535 { // the range of a veth
		return Link{}, mistakef(l.position, "mtu: %d is not between 68 and 65535", link.MTU)
	}
	for i, end := range []*Endpoint{&link.A, &link.B} {
		text := l.value.Endpoints[i]
		var ok bool
		end.Node, end.Interface, ok = strings.Cut(text, ":")
		if !ok || !validInterface(end.Interface) {
			return Link{}, mistakef(l.position, "endpoint %q: want node:interface, the interface of at most 15 characters", text)
		}
		name, known := names[end.Node]
		if !known {
			return Link{}, mistakef(l.position, "endpoint %q: there is no node %s", text, end.Node)
		}
		n, _ := t.Node(name)
		end.Node = name
		switch {
		case n.Base != "":
			return Link{}, mistakef(l.position, "endpoint %q: %s has the network of %s; link that node", text, n.Name, n.Base)
		case used[*end]:
			return Link{}, mistakef(l.position, "endpoint %q: the interface has another link already", text)
		}
		used[*end] = true
	}
	return link, nil
}

// validName accepts the names that containerlab accepts for a lab or node.
func validName(s string) bool {
	ok, _ := regexp.MatchString(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`, s)
	return ok
}

// validInterface accepts the interface names that the kernel accepts.
func validInterface(s string) bool {
	ok, _ := regexp.MatchString(`^[^\s/:]{1,15}$`, s)
	return ok && s != "." && s != ".." && s != "lo"
}
