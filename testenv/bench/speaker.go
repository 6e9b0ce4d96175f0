package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/herald-vip/herald/testenv/lab"
)

// speaker is a program that announces the VIP from a master by BGP.
type speaker interface {
	// name is what the results call it.
	name() string
	// program is its name in the topology, the folder that it has its configuration in.
	program() string
	// image runs it.
	image() lab.Image
	// configure writes the files of one master into the folder that its node has as /etc/PROGRAM.
	configure(templates, dir string, m masterConf) error
	// drain takes the VIP off a master on purpose and in peace, undrain puts it back.
	drain(ctx context.Context, n *lab.Node) error
	undrain(ctx context.Context, n *lab.Node) error
	// alter announces the VIP with a MED and a community, or without them again.
	alter(ctx context.Context, n *lab.Node, altered bool) error
	// stop ends it as planned, by SIGTERM.
	stop(ctx context.Context, n *lab.Node) error
	// freeze stops the process that speaks BGP, as SIGSTOP does.
	freeze(n *lab.Node) error
}

// masterConf is what the templates of a master know.
type masterConf struct {
	// Number of the master, 1 to 3.
	Number int
	// Routers are the numbers of the routers.
	Routers []int
	// BFD is the interval in milliseconds, 0 for none.
	BFD int
	// Realtime asks for real-time scheduling.
	Realtime bool
	// Others are the numbers of all masters if they are to know of each other.
	Others []int
	// Altered adds a MED and a community.
	Altered bool
}

// fill writes a template, filled in, to a file in dir.
func fill(templates, name, dir, file string, data any, mode os.FileMode) error {
	t, err := template.ParseFiles(filepath.Join(templates, name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if err := t.Execute(f, data); err != nil {
		f.Close()
		return fmt.Errorf("fill in: %w", err)
	}
	return f.Close()
}

// copyFile copies a file as it is.
func copyFile(from, to string, mode os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}
