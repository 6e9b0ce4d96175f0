package bench

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

// keepalived is VRRP, tuned for speed or as kubeadm's documentation has it. The
// first master has the VIP whenever it can.
type keepalived struct {
	tuned bool
}

func keepalivedName(tuned bool) string {
	if tuned {
		return "keepalived, tuned"
	}
	return "keepalived, kubeadm's"
}

func (k keepalived) name() string    { return keepalivedName(k.tuned) }
func (k keepalived) program() string { return "keepalived" }
func (k keepalived) home() string    { return masterOf(1) }

func (k keepalived) image() lab.Image {
	return func(n clab.Node) (lab.Program, error) {
		n.Cmd = nil // that of Herald
		return lab.Binary("/usr/sbin/keepalived", "--dont-fork", "--log-console", "--log-detail")(n)
	}
}

func (k keepalived) configure(templates, dir string) error {
	for _, m := range masterNumbers() {
		own := filepath.Join(dir, masterOf(m))
		conf := struct {
			Number int
			Tuned  bool
		}{m, k.tuned}
		if err := fill(templates, "keepalived.conf.tmpl", own, "keepalived.conf", conf, 0o644); err != nil {
			return err
		}
		if err := copyFile(filepath.Join(templates, "check_apiserver.sh"), filepath.Join(own, "check_apiserver.sh"), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// documentedLimit is enough for kubeadm's documented check: ten failures, 3 s apart.
const documentedLimit = 45 * time.Second

// faults are all. kubeadm's check takes half a minute, so it is measured a few
// times, and once is enough of how it finds out.
func (k keepalived) faults() []flatFault {
	list := flatFaults()
	if k.tuned {
		return list
	}
	for i := range list {
		if list[i].name == apiserverKilled {
			list[i].limit, list[i].few = documentedLimit, true
		}
	}
	return slices.DeleteFunc(list, func(f flatFault) bool { return f.name == apiserverFrozen })
}

// ready is met when the first master has the VIP back: the others never left.
func (k keepalived) ready(context.Context, *lab.Lab) error { return nil }
