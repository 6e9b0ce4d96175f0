package lab

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/herald-vip/herald/testenv/clab"
)

// Image stands for a container image: it says how the image's entrypoint runs
// here, with the node's cmd as arguments.
type Image func(clab.Node) (Program, error)

// Program is what a node runs.
type Program struct {
	// Binds are files that the image brings along.
	Binds []clab.Bind
	// Prepare are commands to run before the daemons start, at every boot.
	Prepare [][]string
	// Daemons start in order, each when the one before is ready.
	Daemons []Daemon
	// Finish are commands to run when all daemons are ready, at every boot.
	Finish [][]string
}

// Daemon is a process of a program that does not end by itself.
type Daemon struct {
	// Name of the daemon in the node.
	Name string
	// Argv is the program and its arguments. It must stay in the foreground.
	Argv []string
	// Socket is a Unix socket that accepts connections when the daemon is
	// ready; empty if it is not known to be.
	Socket string
}

// Binary is the image of one program, a file on the host: it is shown to the
// node in /usr/local/bin and run with args and then the node's cmd.
func Binary(path string, args ...string) Image {
	return func(n clab.Node) (Program, error) {
		path, err := filepath.Abs(path)
		if err != nil {
			return Program{}, err
		}
		name := filepath.Base(path)
		target := "/usr/local/bin/" + name
		return Program{
			Binds:   []clab.Bind{{Source: path, Target: target, ReadOnly: true}},
			Daemons: []Daemon{{Name: name, Argv: slices.Concat([]string{target}, args, n.Cmd)}},
		}, nil
	}
}

// program is what the node runs: its image's program, or its own entrypoint
// with what the image brings along.
func program(n clab.Node, images map[string]Image) (Program, error) {
	var p Program
	image, ok := images[repository(n.Image)]
	if !ok && n.Entrypoint == nil {
		return p, fmt.Errorf("nothing stands for the image %q; there is %q", n.Image, slices.Sorted(maps.Keys(images)))
	}
	if ok {
		var err error
		if p, err = image(n); err != nil {
			return p, fmt.Errorf("image %s: %w", n.Image, err)
		}
	}
	if n.Entrypoint != nil {
		argv := slices.Concat(n.Entrypoint, n.Cmd)
		p = Program{Binds: p.Binds, Daemons: []Daemon{{Name: filepath.Base(argv[0]), Argv: argv}}}
	}
	return p, nil
}

// repository is an image reference without its tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return image
}
