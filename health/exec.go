package health

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/herald-vip/herald/health/sandbox"
	"github.com/herald-vip/herald/internal/text"
	"github.com/herald-vip/herald/internal/yaml"
)

// Exec is a command that is run for each probe, in `/`, as a user without privileges or a way to gain any. At the timeout it is killed with all processes that it started. Status 0 passes. Status 1 is a wrong answer, which `not: true` inverts; other statuses, signals and the timeout are no answer. The first line that it writes is shown.
type Exec struct {
	// Command is the absolute path of a program, and its arguments; no shell reads it. Required.
	Command []string `yaml:"command"`
	// User runs it, by name or number, with its primary group only; `root` may not. Default: 65534, the user `nobody`.
	User string `yaml:"user" default:"65534"`
	// Environment is the command's whole environment, each entry as in `NAME=value`. Default: none.
	Environment []string `yaml:"environment"`
}

// Validate implements [Check.Validate] for this kind.
func (e *Exec) Validate(r *yaml.Report, p yaml.Path) {
	if len(e.Command) == 0 {
		r.Errorf(p.Field("command"), "missing: list the absolute path of a program, and its arguments")
	} else {
		r.RequiredFile(p.Field("command").Item(0), e.Command[0])
	}
	if e.User == "" || e.User == "root" || strings.Trim(e.User, "0") == "" {
		r.Errorf(p.Field("user"), "want the name or number of a user other than root, got %s", yaml.Quote(e.User))
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	names := map[string]bool{}
	for i, s := range e.Environment {
		p := p.Field("environment").Item(i)
		name, _, ok := strings.Cut(s, "=")
		switch {
		case !ok || name == "" || strings.Trim(name, letters+"0123456789") != "" || !strings.ContainsAny(name[:1], letters):
			r.Errorf(p, "want NAME=value, with a name of letters, digits and _") // not repeated: it may be a secret
		case names[name]:
			r.Errorf(p, "%s is given twice", name)
		}
		names[name] = true
	}
}

func (e *Exec) prober(m *Monitor, timeout time.Duration) (prober, error) {
	return named{&execProber{check: *e, timeout: timeout, sandbox: m.sandbox}, e.Command[0]}, nil
}

// execProber runs a command for each probe, one at a time.
type execProber struct {
	check    Exec
	timeout  time.Duration
	sandbox  *sandbox.Sandbox
	running  chan outcome // receives the result of the running command; nil if none runs
	idleConn              // always empty
}

// probe returns at the end of ctx at the latest, even if the kernel does not end the killed command.
func (p *execProber) probe(ctx context.Context) outcome {
	if p.running != nil {
		select {
		case <-p.running:
		case <-ctx.Done():
			return tooSlow("the last run has not ended: the kernel does not end the killed process")
		}
	}
	p.running = make(chan outcome, 1)
	go func(ended chan<- outcome) {
		state, output, err := p.sandbox.Run(ctx, sandbox.Command{Args: p.check.Command, User: p.check.User, Environment: p.check.Environment})
		if err != nil {
			ended <- ownFailure(bare(err).Error())
			return
		}
		ended <- judgeExit(state, output)
	}(p.running)
	select {
	case out := <-p.running:
		p.running = nil
		if ctx.Err() != nil && out.kind != passed { // the sandbox killed it
			return tooSlow(fmt.Sprintf("did not end within %v", p.timeout))
		}
		return out
	case <-ctx.Done(): // the sandbox is killing it
		return tooSlow(fmt.Sprintf("did not end within %v", p.timeout))
	}
}

// close waits up to a second for the end of a run: the kernel may not end a killed process, as on a hanging disk.
func (p *execProber) close() {
	if p.running == nil {
		return
	}
	select {
	case <-p.running:
	case <-time.After(time.Second):
	}
}

// judgeExit returns the outcome of a command by its status and its output. As with grep and test, status 1 is
// a wrong answer, and a higher status is no answer.
func judgeExit(state *os.ProcessState, output []byte) outcome {
	said := firstLine(output)
	status, _ := state.Sys().(syscall.WaitStatus)
	how := fmt.Sprintf("exit status %d", status.ExitStatus())
	switch {
	case status.Exited() && status.ExitStatus() == 0:
		return outcome{kind: passed, reason: cmp.Or(said, how)}
	case status.Signaled():
		how = "killed: " + status.Signal().String()
	}
	if said != "" {
		how += ": " + said
	}
	if status.Exited() && status.ExitStatus() == 1 {
		return wrongAnswer(how)
	}
	return failure(how)
}

// firstLine returns the first line of an output that is not blank, shortened.
func firstLine(output []byte) string {
	for line := range strings.Lines(string(output)) {
		if line = text.Short(line, maxText); line != "" {
			return line
		}
	}
	return ""
}
