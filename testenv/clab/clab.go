// Package clab reads the part of containerlab topology files (`*.clab.yml`) that
// Herald's labs use: Linux nodes, bridges and the links between them.
//
// A file has the same meaning as for containerlab: environment variables are
// substituted, `defaults`, `kinds` and `groups` are merged into the nodes, relative
// bind paths start at the file's folder. Keys that cannot matter without Docker are
// ignored. Any other unknown key is an error, so that no part of a topology is
// silently dropped.
package clab

import (
	"os"
	"path/filepath"
)

// The kinds of nodes that a topology may have.
const (
	// Linux is a container.
	Linux = "linux"
	// Bridge is a flat LAN. containerlab expects a Linux bridge of that name on the host.
	// If the file calls it "NAME|NODE" and puts it into the network of that node, it
	// makes one there. Its name here is NAME.
	Bridge = "bridge"
)

// DefaultMTU is the MTU of a link that sets none, in bytes; it is containerlab's own.
const DefaultMTU = 9500

// Topology is a lab: nodes and the links between them.
type Topology struct {
	// Name of the lab.
	Name string
	// Nodes in the order of the file.
	Nodes []Node
	// Links in the order of the file.
	Links []Link
}

// Node returns the node of that name and whether there is one.
func (t *Topology) Node(name string) (Node, bool) {
	for _, n := range t.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// Node is one container or bridge, with everything inherited from its group, its kind
// and the defaults.
type Node struct {
	// Name of the node within the lab.
	Name string
	// Kind is Linux or Bridge. A bridge has only a name.
	Kind string
	// Image is the reference of the container image.
	Image string
	// Hostname is the node's host name: by default its own name or, in another node's
	// network, that node's.
	Hostname string
	// Entrypoint replaces the image's; nil keeps it.
	Entrypoint []string
	// Cmd are the arguments of the entrypoint.
	Cmd []string
	// Env is the environment of the node's processes.
	Env map[string]string
	// Sysctls are kernel settings by dotted name.
	Sysctls map[string]string
	// Binds are the files and folders of the host that the node sees.
	Binds []Bind
	// Exec are the commands that configure the node, in order.
	Exec [][]string
	// Base is the node that shares its network with this one (`network-mode:
	// container:BASE`); empty if the node has its own network.
	Base string
}

// Bind shows a file or folder of the host inside a node.
type Bind struct {
	// Source is the path on the host.
	Source string
	// Target is the absolute path in the node.
	Target string
	// ReadOnly forbids the node to write to it.
	ReadOnly bool
}

// Link is a cable between two endpoints.
type Link struct {
	// A and B are its ends.
	A, B Endpoint
	// MTU of both interfaces, in bytes.
	MTU int
}

// Endpoint is where a link ends: an interface of a node.
type Endpoint struct {
	// Node is the node's name.
	Node string
	// Interface is the interface's name in the node.
	Interface string
}

// String returns the endpoint as a topology file writes it, "node:interface".
func (e Endpoint) String() string { return e.Node + ":" + e.Interface }

// Load reads the topology file at path with the variables of this process's
// environment. Errors name file, line and column.
func Load(path string) (*Topology, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err // it names the path
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, os.LookupEnv)
}

// Parse reads a topology from data. Relative bind paths start at the folder of path,
// and errors name it; lookup finds environment variables.
func Parse(path string, data []byte, lookup func(string) (string, bool)) (*Topology, error) {
	if err := refuseTemplate(data); err != nil {
		return nil, locate(path, err)
	}
	text, err := expand(string(data), lookup)
	if err != nil {
		return nil, locate(path, err)
	}
	f, err := decode([]byte(text))
	if err != nil {
		return nil, locate(path, err)
	}
	t, err := f.topology(filepath.Dir(path))
	if err != nil {
		return nil, locate(path, err)
	}
	return t, nil
}
