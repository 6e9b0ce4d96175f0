package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Start starts a command in the node's network and file tree, with the node's
// environment unless cmd.Env is set. It looks up the first argument there. The lab
// waits for the command: use the Process, not cmd.Wait.
func (n *Node) Start(cmd *exec.Cmd) (*Process, error) {
	p, err := n.start(filepath.Base(cmd.Args[0]), cmd)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.spec.Name, err)
	}
	return p, nil
}

func (n *Node) start(name string, cmd *exec.Cmd) (p *Process, err error) {
	if cmd.Env == nil {
		cmd.Env = n.environment()
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setsid = true
	err = n.inside(func(c *container) error {
		// Ignore the error of exec.Command's own search on the host.
		if err := c.thread.do(func() (err error) { cmd.Path, err = find(cmd.Args[0], cmd.Env); return err }); err != nil {
			return err
		}
		cmd.Err = nil
		p, err = startProcess(c, name, cmd)
		return err
	})
	return p, err
}

// environment returns the environment of a container's processes.
func (n *Node) environment() []string {
	env := map[string]string{
		"PATH":     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":     "/root",
		"HOSTNAME": n.spec.Hostname,
	}
	maps.Copy(env, n.spec.Env)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(env)) {
		list = append(list, key+"="+env[key])
	}
	return list
}

// find looks up a program as a shell does, by the PATH of an environment.
func find(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, v := range env {
		path, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			file := filepath.Join(dir, name)
			if s, err := os.Stat(file); err == nil && s.Mode().IsRegular() && s.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", &fs.PathError{Op: "find program", Path: name, Err: fs.ErrNotExist}
}

// Run runs a command in the node to its end and returns its standard output. An error
// contains its standard error. The end of the context kills the command.
func (n *Node) Run(ctx context.Context, argv ...string) (string, error) {
	var out, errout bytes.Buffer
	p, err := n.Start(&exec.Cmd{Args: argv, Stdout: &out, Stderr: &errout})
	if err != nil {
		return "", err
	}
	if err = p.Wait(ctx); p.Running() {
		err = errors.Join(err, p.Kill())
	}
	if err != nil {
		err = fmt.Errorf("node %s: %s: %w: %s", n.spec.Name, strings.Join(argv, " "), err, bytes.TrimSpace(errout.Bytes()))
	}
	return out.String(), err
}
