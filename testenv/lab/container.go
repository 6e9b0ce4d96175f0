package lab

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/step"
)

// container holds the namespaces of a node. Its thread lives inside them, as do all
// its children, and is the parent of the container's init.
type container struct {
	thread    *thread
	init      *exec.Cmd
	processes sync.WaitGroup // started and not yet reaped
}

// newContainer makes the namespaces around an existing network. Staging is an empty
// folder of the host to build the file tree over.
func newContainer(network netns.NsHandle, hostname string, binds []clab.Bind, staging string) (_ *container, err error) {
	c := &container{thread: newThread()}
	err = c.thread.do(func() error {
		return step.Run(func() {
			step.Doing("enter network", netns.Set(network))
			step.Doing("new namespaces", unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_NEWUTS))
			step.Doing("set hostname", unix.Sethostname([]byte(hostname)))
			changeRoot(staging, binds)
			c.startInit()
		})
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// startInit forks the container's first process. The kernel kills it when the thread
// ends, and then everything else in its PID namespace. As init it inherits orphans;
// since it ignores SIGCHLD the kernel reaps them.
func (c *container) startInit() {
	cmd := exec.Command("/usr/bin/env", "--ignore-signal=CHLD", "sleep", "infinity")
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
		PidFD:      &pidfd,
	}
	step.Doing("start init", cmd.Start())
	c.init = cmd
	defer unix.Close(pidfd)
	step.Doing("enter PID namespace", unix.Setns(pidfd, unix.CLONE_NEWPID))
	// A proc file system shows its mounter's PID namespace. This thread itself is outside
	// the new namespace, so a child mounts it.
	if out, err := exec.Command("/usr/bin/mount", "-t", "proc", "proc", "/proc").CombinedOutput(); err != nil {
		step.Do(fmt.Errorf("mount /proc: %w: %s", err, out))
	}
}

// start starts the command inside the container.
func (c *container) start(cmd *exec.Cmd) error {
	return c.thread.do(cmd.Start)
}

// close kills all processes of the container and returns when they are gone. The
// kernel keeps init until all others are reaped.
func (c *container) close() error {
	defer c.thread.stop()
	defer c.processes.Wait()
	if c.init == nil {
		return nil
	}
	if err := c.init.Process.Kill(); err != nil {
		return fmt.Errorf("kill init: %w", err)
	}
	err := c.init.Wait()
	if _, killed := errors.AsType[*exec.ExitError](err); killed {
		return nil
	}
	return err
}

// changeRoot gives the calling thread, which must have its own mount namespace, a
// private file tree. It has the host's root file system below, memory above, and fresh
// mounts for the system's state.
func changeRoot(staging string, binds []clab.Bind) {
	step.Doing("keep mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	// Sources are paths in the host's tree and targets in the node's, so open the sources
	// before the change.
	var grafts []graft
	for _, b := range append([]clab.Bind{{Source: "/dev", Target: "/dev"}}, binds...) {
		g, err := takeGraft(b)
		step.Doing("bind "+b.Source, err)
		defer unix.Close(g.tree)
		grafts = append(grafts, g)
	}

	step.Doing("mount memory", unix.Mount("tmpfs", staging, "tmpfs", 0, "mode=755"))
	upper, work, root := filepath.Join(staging, "upper"), filepath.Join(staging, "work"), filepath.Join(staging, "root")
	for _, dir := range []string{upper, work, root} {
		step.Do(os.Mkdir(dir, 0o755))
	}
	step.Doing("mount overlay", unix.Mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+upper+",workdir="+work))
	step.Do(unix.Chdir(root))
	step.Doing("pivot root", unix.PivotRoot(".", ".")) // stacks the old root over the new
	step.Doing("leave old root", unix.Unmount(".", unix.MNT_DETACH))
	for _, m := range []struct{ kind, target, data string }{
		{"sysfs", "/sys", ""}, // shows the interfaces of this network
		{"tmpfs", "/run", "mode=755"},
		{"tmpfs", "/tmp", "mode=1777"},
	} {
		step.Doing("mount "+m.target, unix.Mount(m.kind, m.target, m.kind, 0, m.data))
	}
	for _, g := range grafts {
		step.Named("bind to "+g.target, g.place)
	}
}

// graft is a file or folder to move from one file tree to another.
type graft struct {
	tree   int // a file descriptor of the detached mount
	folder bool
	target string
}

func takeGraft(b clab.Bind) (graft, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, b.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return graft{}, err
	}
	g := graft{tree: tree, target: b.Target}
	var stat unix.Stat_t
	err = unix.Fstat(tree, &stat)
	g.folder = stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if err == nil && b.ReadOnly {
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	if err != nil {
		unix.Close(tree)
	}
	return g, err
}

// place mounts the graft on its target, and makes a missing target.
func (g graft) place() {
	if g.folder {
		step.Do(os.MkdirAll(g.target, 0o755))
	} else {
		step.Do(os.MkdirAll(filepath.Dir(g.target), 0o755))
		step.Do(step.Get(os.OpenFile(g.target, os.O_CREATE|os.O_RDONLY, 0o644)).Close())
	}
	step.Do(unix.MoveMount(g.tree, "", unix.AT_FDCWD, g.target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

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
