package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/testenv/lab"
)

// heraldARP is Herald with its defaults, or with another lease and in real time.
type heraldARP struct {
	binary string        // the path of bin/herald
	lease  time.Duration // 0: the default
}

// defaultLease is Herald's.
const defaultLease = 600 * time.Millisecond

// shortLease is the other one that is measured.
const shortLease = 200 * time.Millisecond

func heraldARPName(lease time.Duration) string {
	return fmt.Sprintf("herald, lease %d ms", lease.Milliseconds())
}

func (h heraldARP) name() string {
	if h.lease == 0 {
		return heraldARPName(defaultLease)
	}
	return heraldARPName(h.lease)
}

func (h heraldARP) program() string  { return "herald" }
func (h heraldARP) image() lab.Image { return lab.Binary(h.binary) }
func (h heraldARP) home() string     { return "" }

func (h heraldARP) configure(templates, dir string) error {
	key, err := election.NewKey()
	if err != nil {
		return err
	}
	for _, m := range masterNumbers() {
		own := filepath.Join(dir, masterOf(m))
		conf := struct {
			Number int
			Lease  time.Duration
		}{m, h.lease}
		if err := fill(templates, "herald.yaml.tmpl", own, heraldFile, conf, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(own, "gossip.key"), []byte(key+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// faults are all, and drain, which others have no command for.
func (h heraldARP) faults() []flatFault {
	command := func(name string) func(context.Context, *flat, string) error {
		return func(ctx context.Context, f *flat, m string) error {
			_, err := f.lab.Node(m+"-speaker").Run(ctx, "herald", name)
			return err
		}
	}
	list := flatFaults()
	first := slices.IndexFunc(list, func(f flatFault) bool { return f.planned })
	return slices.Insert(list, first, flatFault{name: drained, planned: true, strike: command("drain"), heal: command("undrain")})
}

// ready wants each master to stand for the VIP and to hear all others' votes.
func (h heraldARP) ready(ctx context.Context, l *lab.Lab) error {
	for _, m := range masterNumbers() {
		out, err := l.Node(speakerOf(m)).Run(ctx, "herald", "status", "-o", "json")
		if err != nil {
			return err
		}
		var status admin.Status
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		e := status.Election
		if e == nil || e.Problem != "" || e.Change != "" {
			return fmt.Errorf("%s takes no part in the election: %+v", masterOf(m), e)
		}
		if e.Fence != admin.FenceOn {
			return fmt.Errorf("%s has no fence: %s", masterOf(m), e.Fence)
		}
		for _, l := range e.Leases {
			if !l.Stands {
				return fmt.Errorf("%s does not stand for %s", masterOf(m), l.VIP)
			}
		}
		for _, other := range e.Members {
			if !other.Alive || other.Reason != "" {
				return fmt.Errorf("%s does not hear %s: %s", masterOf(m), other.Name, other.Reason)
			}
		}
	}
	return nil
}
