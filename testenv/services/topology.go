package services

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/pki"
)

// files are the topology and the files of its machines, each in the folder of its name.
//
//go:embed topology
var files embed.FS

// configure writes the files of all machines, including the announcer's. A node also
// gets the kubeconfig.
func (l *Lab) configure() error {
	for _, machine := range []string{"r1", "api"} {
		own, err := fs.Sub(files, "topology/"+machine)
		if err := errors.Join(err, os.RemoveAll(l.own(machine)), os.CopyFS(l.own(machine), own)); err != nil {
			return err
		}
	}
	if _, err := pki.New(l.own("api"), "kubernetes", "localhost", "127.0.0.1", APIAddress); err != nil {
		return err
	}
	for _, node := range l.Members() {
		if err := errors.Join(os.RemoveAll(l.own(node)), os.CopyFS(l.own(node), os.DirFS(l.own("api")))); err != nil {
			return err
		}
	}
	return l.options.Announcer.Configure(l)
}

// own returns the folder of a machine's files. Its speaker sees it as /etc/NAME of the announcer.
func (l *Lab) own(machine string) string { return filepath.Join(l.options.Dir, machine) }

// topology returns services.clab.yml with the wanted number of nodes, and the programs
// for its images.
func (l *Lab) topology() (*clab.Topology, map[string]lab.Image, error) {
	text, err := files.ReadFile("topology/services.clab.yml")
	if err != nil {
		return nil, nil, err
	}
	a := l.options.Announcer
	t, err := clab.Parse(l.own("services.clab.yml"), text, func(string) (string, bool) { return a.Name(), true })
	if err != nil {
		return nil, nil, err
	}
	left := func(name string) bool {
		machine, _, _ := strings.Cut(name, "-")
		return machine > "n0" && machine < "n9" && !slices.Contains(l.Members(), machine) ||
			name == controller && a.Controller(l) == nil
	}
	t.Nodes = slices.DeleteFunc(t.Nodes, func(n clab.Node) bool { return left(n.Name) })
	t.Links = slices.DeleteFunc(t.Links, func(link clab.Link) bool { return left(link.A.Node) })
	return t, map[string]lab.Image{
		"frr":            lab.FRR,
		"etcd":           lab.Binary(l.options.Etcd),
		"kube-apiserver": lab.Binary(l.options.APIServer),
		"herald-testenv": lab.Binary(l.options.Testenv, "registry"),
		"speaker":        func(n clab.Node) (lab.Program, error) { return a.Speaker(l, n.Base)(n) },
		"controller":     func(n clab.Node) (lab.Program, error) { return a.Controller(l)(n) },
	}, nil
}
