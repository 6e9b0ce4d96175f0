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
)

// execProber runs a command for each probe, one at a time.
type execProber struct {
	check   Exec
	timeout time.Duration
	sandbox *sandbox.Sandbox
	running chan outcome // of the run that has not been heard of yet; nil if there is none
	kept                 // none
}

func (p *execProber) probe(ctx context.Context) outcome {
	out := p.run(ctx)
	out.reason = p.check.Command[0] + ": " + out.reason
	return out
}

// run returns at the end of ctx at the latest, even if the kernel does not let the command die.
func (p *execProber) run(ctx context.Context) outcome {
	if p.running != nil {
		select {
		case <-p.running:
		case <-ctx.Done():
			return tooSlow("the last run is still there: the kernel does not let it die")
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
		if ctx.Err() != nil && out.kind != passed { // it was killed for that
			return tooSlow(fmt.Sprintf("did not end within %v", p.timeout))
		}
		return out
	case <-ctx.Done(): // it is being killed
		return tooSlow(fmt.Sprintf("did not end within %v", p.timeout))
	}
}

// close waits for the end of a run, unless the kernel keeps it from dying, as on a disk that hangs.
func (p *execProber) close() {
	if p.running == nil {
		return
	}
	select {
	case <-p.running:
	case <-time.After(time.Second):
	}
}

// judgeExit judges how a command ended, and what it had to say. As with grep and test a status of 1 is
// an answer, and a higher one says that there is none.
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

// firstLine is the first line of an output that says something.
func firstLine(output []byte) string {
	for line := range strings.Lines(string(output)) {
		if line = text.Short(line, maxText); line != "" {
			return line
		}
	}
	return ""
}
