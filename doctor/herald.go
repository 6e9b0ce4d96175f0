package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
)

// examineHerald says whether one runs here, which the rest depends on.
func examineHerald(_ *config.Config, f *facts.Facts, out *findings) {
	if f.Running == nil {
		p, there := f.Herald()
		switch subject := fmt.Sprintf("process %d", p.PID); {
		case errors.Is(f.RunningError, fs.ErrPermission):
			out.warning("admin socket", "only root may ask it", "What a Herald that runs here knows is missing from this report.", "run herald doctor as root")
		case stuck(f):
			out.blocker("admin socket", "a Herald holds it and does not answer: it is frozen, or starved",
				"It neither announces nor withdraws anything; what it has announced ends by BFD, hold time or lease.",
				"systemctl restart herald; in a pod, kill -9 its process: pgrep -x herald")
		case there:
			out.blocker(subject, "runs, but does not answer on this file's admin socket",
				"Two Heralds on one node take each other's addresses for their own.",
				"stop it, or name the file that it runs with")
		default:
			out.fine("this node", "none runs yet")
		}
		return
	}
	s := f.Running
	subject := "version " + s.Version
	switch {
	case s.Config.Error != "":
		out.warning(subject, "runs, but the file as it is now is not in force: "+s.Config.Error,
			"The last good configuration still runs; the rest of this report is about the file.", "herald status; journalctl -u herald")
	case s.Config.File != f.File:
		out.warning(subject, "runs with "+s.Config.File,
			"This report is about another file than the one in force.", "herald doctor --config "+s.Config.File)
	case s.Draining != "":
		out.warning(subject, "is drained: "+s.Draining, "It announces nothing.", "herald undrain")
	default:
		out.fine(subject, fmt.Sprintf("runs with this file, generation %d", s.Config.Generation))
	}
}

// stuck says whether a Herald is there and does not get round to an answer.
func stuck(f *facts.Facts) bool {
	return f.Running == nil && errors.Is(f.RunningError, context.DeadlineExceeded)
}

// examineFiles looks at who may read the secrets. That they are there and hold keys
// and passwords is part of a valid configuration.
func examineFiles(c *config.Config, f *facts.Facts, out *findings) {
	valid := fmt.Sprintf("valid: %s, %s", count(len(c.VIPs), "VIP"), count(len(c.Checks), "check"))
	if len(c.Balancers) > 0 {
		valid += ", " + count(len(c.Balancers), "balancer")
	}
	out.fine("syntax", valid)
	for _, path := range facts.Secrets(c) {
		mode, known := f.Modes[path]
		switch {
		case !known:
		case mode.Perm()&0o077 != 0:
			out.warning(path, fmt.Sprintf("mode %04o: others than its owner may read it", mode.Perm()),
				"A reader of it can speak in this node's name.", "chmod 600 "+path)
		default:
			out.fine(path, fmt.Sprintf("can be used, mode %04o", mode.Perm()))
		}
	}
	if c.Election != nil && c.Election.Insecure {
		out.warning("election.insecure", "votes are in the clear",
			"Anybody on the network can take the VIPs.", "herald keygen /etc/herald/gossip.key, and election.keyFile")
	}
}
