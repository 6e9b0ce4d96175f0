package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// errNotRunning is the result of a signal to a process that has exited.
var errNotRunning = errors.New("not running")

// Process is a program that runs, or ran, in a node. Signals reach its whole process
// group, including its helpers.
type Process struct {
	name string
	cmd  *exec.Cmd
	pid  int
	done chan struct{} // closed when the process is gone
	err  error         // how it exited, once done

	mu     sync.Mutex // held while a signal is sent or the process reaped: until then its PID is not reused
	buried bool
}

// startProcess starts the command in the container and waits for its end in the background.
func startProcess(c *container, name string, cmd *exec.Cmd) (*Process, error) {
	if err := c.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, cmd: cmd, pid: cmd.Process.Pid, done: make(chan struct{})}
	c.processes.Go(p.bury)
	return p, nil
}

// bury waits for the process to exit, kills the rest of its process group and collects
// its exit status.
func (p *Process) bury() {
	defer close(p.done)
	p.await(unix.WEXITED)
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Kill(-p.pid, unix.SIGKILL) // it fails only if the group is empty
	p.err = p.cmd.Wait()
	p.buried = true
}

// await waits for a change of the process's state without collecting it.
func (p *Process) await(states int) {
	for unix.Waitid(unix.P_PID, p.pid, nil, states|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// Name returns the program's name in its node.
func (p *Process) Name() string { return p.name }

// Pid returns the process's PID on the host.
func (p *Process) Pid() int { return p.pid }

// Done returns a channel that is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not exited; it may be frozen.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits until the process is gone and returns how it exited: nil for status 0,
// else an *exec.ExitError. If the context ends first, Wait returns its error.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("%s still runs: %w", p.name, context.Cause(ctx))
	}
}

// Signal sends the signal to the process and its helpers.
func (p *Process) Signal(sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.buried {
		return fmt.Errorf("%s: %w", p.name, errNotRunning)
	}
	if err := unix.Kill(-p.pid, sig); err != nil {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// Kill kills the process and returns when it is gone. It is no error if it was gone already.
func (p *Process) Kill() error {
	err := p.Signal(unix.SIGKILL)
	if errors.Is(err, errNotRunning) {
		err = nil
	}
	if err == nil {
		<-p.done
	}
	return err
}

// Freeze stops the process as a debugger or a paused machine would: its sockets stay
// open and the kernel answers for them. It returns when the process has stopped.
func (p *Process) Freeze() error {
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	p.await(unix.WSTOPPED | unix.WEXITED)
	return nil
}

// Thaw resumes a frozen process.
func (p *Process) Thaw() error { return p.Signal(unix.SIGCONT) }

// Stop sends SIGTERM to the process and waits until it has ended. Its exit status does
// not matter; Wait returns it.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(unix.SIGTERM); err != nil {
		return err
	}
	if err := p.Wait(ctx); p.Running() {
		return err
	}
	return nil
}
