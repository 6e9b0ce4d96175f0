package lab

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/herald-vip/herald/testenv/clab"
)

// Image stands for a container image: it returns the program that runs in its place,
// with the node's cmd as arguments.
type Image func(clab.Node) (Program, error)

// Program describes the processes of a node.
type Program struct {
	// Binds are files that come with the image.
	Binds []clab.Bind
	// Prepare are commands to run before the daemons start, at every boot.
	Prepare [][]string
	// Daemons start in order, each when the previous one is ready.
	Daemons []Daemon
	// Finish are commands to run when all daemons are ready, at every boot.
	Finish [][]string
}

// Daemon is a process that does not end by itself.
type Daemon struct {
	// Name is unique in the node.
	Name string
	// Argv is the program and its arguments. It must stay in the foreground.
	Argv []string
	// Socket is a Unix socket that accepts connections when the daemon is ready; empty if unknown.
	Socket string
}

// Binary is the image of one program, a file on the host. The node sees it in
// /usr/local/bin and runs it with args and then the node's cmd.
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

// program returns the node's program: its image's, or its own entrypoint with the image's binds.
func program(n clab.Node, images map[string]Image) (Program, error) {
	var p Program
	image, ok := images[repository(n.Image)]
	if !ok && n.Entrypoint == nil {
		return p, fmt.Errorf("no program for the image %q; there are programs for %q", n.Image, slices.Sorted(maps.Keys(images)))
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

// repository returns an image reference without tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return image
}
