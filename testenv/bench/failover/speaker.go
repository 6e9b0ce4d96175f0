package failover

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// speaker is a program that announces the VIP from a master.
type speaker struct {
	// name identifies it in the results.
	name string
	// program is its name in the topology, and the name of its folder of configurations.
	program string
	// image runs it.
	image lab.Image
	// files are the templates of each master's files, and conf their variables besides the master.
	files []file
	conf  conf
	// home is the master that takes the VIP on a flat layer 2 whenever it can; empty if there is
	// none.
	home string
	// interval is its check's interval if that is long or fixed. Faults come at random
	// times within it: otherwise a lab's trials fall into step with the check.
	interval time.Duration

	// drain takes the VIP off a master in a planned way, or puts it back.
	drain func(ctx context.Context, n *lab.Node, off bool) error
	// alter announces the VIP with a MED and a community, or without them again.
	alter func(ctx context.Context, s *site, master string, on bool) error
	// stop ends it in a planned way, by SIGTERM.
	stop func(ctx context.Context, n *lab.Node) error
	// freeze stops the announcing process, as SIGSTOP does.
	freeze func(n *lab.Node) error
	// ready returns an error while this node's speaker could not take the VIP over; nil if it always
	// can.
	ready func(ctx context.Context, n *lab.Node) error
}

// herald is Herald with its defaults.
func herald(binary string) speaker {
	return speaker{
		name: "herald", program: "herald", image: lab.Binary(binary), files: []file{{"herald.yaml.tmpl", heraldFile, 0o644}},
		drain: func(ctx context.Context, n *lab.Node, off bool) error {
			command := "undrain"
			if off {
				command = "drain"
			}
			_, err := n.Run(ctx, "herald", command)
			return err
		},
		alter: func(_ context.Context, s *site, master string, on bool) error {
			if err := s.configure(master, on); err != nil {
				return err
			}
			return s.Node(speakerOf(master)).Daemon("herald").Signal(unix.SIGHUP)
		},
		stop: func(ctx context.Context, n *lab.Node) error { return n.Stop(ctx) }, freeze: (*lab.Node).Freeze,
	}
}

const heraldFile = "herald.yaml"

// electing is Herald with an election section, so that the masters know each other.
func electing(binary, name string) speaker {
	h := herald(binary)
	h.name, h.conf.Key = name, step.Get(election.NewKey())
	h.files = append(h.files, file{"gossip.key.tmpl", "gossip.key", 0o600})
	return h
}

// heraldAndFRR is Herald with its route in the main table, and an FRR beside it that
// announces the route.
func heraldAndFRR(binary string) speaker {
	h := herald(binary)
	h.name, h.conf.Kernel, h.image = "herald, kernel and FRR", true, func(n clab.Node) (lab.Program, error) {
		var binds []clab.Bind
		for _, b := range n.Binds { // the folder /etc/herald
			for _, name := range []string{"daemons", "frr.conf"} {
				binds = append(binds, clab.Bind{Source: filepath.Join(b.Source, name), Target: "/etc/frr/" + name})
			}
		}
		p, err := lab.FRR(clab.Node{Binds: binds})
		if err != nil {
			return p, err
		}
		own, err := lab.Binary(binary)(n)
		p.Binds, p.Daemons = append(binds, own.Binds...), append(p.Daemons, own.Daemons...)
		return p, err
	}
	h.files = append(h.files, file{"frr-speaker.conf.tmpl", "frr.conf", 0o644}, file{"daemons", "daemons", 0o644})
	return h
}

// bridging is Herald behind routers with a bridge, and otherwise with its defaults.
func bridging(binary string) speaker { return electing(binary, heraldBridge) }

// heraldBridge is the name of Herald with a bridge.
const heraldBridge = "herald, bridge"

// heraldARP is Herald on a flat layer 2, with its defaults or, with another lease, in real time.
func heraldARP(binary string, lease time.Duration) speaker {
	h := electing(binary, fmt.Sprintf("herald, lease %d ms", lease.Milliseconds()))
	if lease != defaultLease {
		h.conf.Lease = lease
	}
	h.ready = votes
	return h
}

// defaultLease is Herald's default, shortLease the other one measured.
const defaultLease, shortLease = 600 * time.Millisecond, 200 * time.Millisecond

// votes checks that a master campaigns for the VIP and receives all others' votes.
func votes(ctx context.Context, n *lab.Node) error {
	status, err := observe.Status(ctx, n, "herald")
	if err != nil {
		return err
	}
	e := status.Election
	if e == nil || e.Problem != "" || e.Change != "" {
		return fmt.Errorf("%s does not take part in the election: %+v", n.Name(), e)
	}
	if e.Fence != admin.FenceOn {
		return fmt.Errorf("%s has no lease filter: %s", n.Name(), e.Fence)
	}
	for _, l := range e.Leases {
		if !l.Campaigning {
			return fmt.Errorf("%s does not campaign for %s", n.Name(), l.Lease)
		}
	}
	for _, other := range e.Members {
		if !other.Alive || other.Problem != "" {
			return fmt.Errorf("%s does not receive from %s: %s", n.Name(), other.Name, other.Problem)
		}
	}
	return nil
}

// script configures FRR's health script.
type script struct {
	Interval, Timeout float64 // seconds
	// RefusedCounts makes a refused connection immediate proof.
	RefusedCounts bool
}

// usual resembles scripts found in the field; quick is about the best possible script.
func usual() script { return script{Interval: 1, Timeout: 1} }
func quick() script { return script{Interval: 0.2, Timeout: 0.5, RefusedCounts: true} }

// frr is FRR's bgpd and bfdd as a speaker. A script keeps the VIP on lo while the
// servers are healthy, as people build it by hand.
func frr(s script) speaker {
	const family = "address-family ipv4 unicast"
	return speaker{
		name: fmt.Sprintf("FRR, script %g s", s.Interval), program: "frr", image: scriptedFRR, conf: conf{Script: s},
		interval: time.Duration(s.Interval * float64(time.Second)),
		files:    []file{{"frr-speaker.conf.tmpl", "frr.conf", 0o644}, {"health.sh.tmpl", "health.sh", 0o755}, {"daemons", "daemons", 0o644}},
		drain: func(ctx context.Context, n *lab.Node, off bool) error { // and the address stays
			redistribute := "redistribute connected route-map vip"
			if off {
				redistribute = "no " + redistribute
			}
			return vtysh(ctx, n, "router bgp 64512", family, redistribute)
		},
		alter: func(ctx context.Context, s *site, master string, on bool) error {
			changes := []string{"no set metric", "no set community"}
			if on {
				changes = []string{"set metric 10", "set community 64512:1"}
			}
			return vtysh(ctx, s.Node(speakerOf(master)), append([]string{"route-map vip permit 10"}, changes...)...)
		},
		// The order is that of FRR's own script: zebra last, since bgpd takes 10 s to end
		// without it. Then the health script, which leaves the address.
		stop: func(ctx context.Context, n *lab.Node) error {
			for _, names := range [][]string{{"bgpd", "bfdd", "staticd"}, {"zebra"}, {"health.sh"}} {
				var g errgroup.Group
				for _, name := range names {
					g.Go(func() error { return n.Daemon(name).Stop(ctx) })
				}
				if err := g.Wait(); err != nil {
					return err
				}
			}
			return nil
		},
		freeze: func(n *lab.Node) error { return n.Daemon("bgpd").Freeze() }, // BFD is a separate process
	}
}

// scriptedFRR is lab.FRR with the script beside it.
func scriptedFRR(n clab.Node) (lab.Program, error) {
	var daemons []clab.Bind
	for _, b := range n.Binds { // the folder /etc/frr
		daemons = append(daemons, clab.Bind{Source: filepath.Join(b.Source, "daemons"), Target: "/etc/frr/daemons"})
	}
	p, err := lab.FRR(clab.Node{Binds: daemons})
	p.Daemons = append(p.Daemons, lab.Daemon{Name: "health.sh", Argv: []string{"/etc/frr/health.sh"}})
	return p, err
}

// vtysh gives configuration commands to a running FRR.
func vtysh(ctx context.Context, n *lab.Node, commands ...string) error {
	argv := []string{"vtysh", "-c", "configure terminal"}
	for _, c := range commands {
		argv = append(argv, "-c", c)
	}
	_, err := n.Run(ctx, argv...)
	return err
}

// healthcheck configures ExaBGP's healthcheck.
type healthcheck struct {
	Interval float64 // seconds
	Timeout  float64 // of a request, in seconds
	Pace     string  // its options for the pace
}

// asShipped has the defaults of ExaBGP's healthcheck, and the timeout of its example.
// asHerald has the defaults of Herald's checks, except that a refused connection is an
// ordinary failure.
func asShipped() healthcheck { return healthcheck{Interval: 5, Timeout: 2} }
func asHerald() healthcheck {
	return healthcheck{Interval: 0.2, Timeout: 0.3, Pace: " --interval 0.2 --fast-interval 0.2 --rise 2 --fall 2"}
}

// exabgp is ExaBGP with its own healthcheck, as Debian ships both.
func exabgp(c healthcheck) speaker {
	return speaker{
		name: fmt.Sprintf("ExaBGP, check %g s", c.Interval), program: "exabgp", conf: conf{Check: c},
		interval: time.Duration(c.Interval * float64(time.Second)),
		image: func(clab.Node) (lab.Program, error) {
			return lab.Program{
				Prepare: [][]string{{"ip", "address", "replace", vip + "/32", "dev", "lo"}},
				// It changes its user, as in its systemd unit. The pipes for its command line are not needed.
				Daemons: []lab.Daemon{{Name: "exabgp", Argv: []string{"env", "exabgp_daemon_user=exabgp", "exabgp_api_cli=false", "exabgp", "/etc/exabgp/exabgp.conf"}}},
			}, nil
		},
		files: []file{{"exabgp.conf.tmpl", "exabgp.conf", 0o644}},
		stop:  func(ctx context.Context, n *lab.Node) error { return n.Stop(ctx) }, freeze: (*lab.Node).Freeze,
	}
}

// keepalived is VRRP, tuned for speed or as in kubeadm's documentation. The first
// master takes the VIP whenever it can.
func keepalived(tuned bool) speaker {
	k := speaker{
		name: "keepalived, kubeadm's", program: "keepalived", conf: conf{Tuned: tuned}, home: masterOf(1),
		image: func(n clab.Node) (lab.Program, error) {
			n.Cmd = nil // Herald's arguments
			return lab.Binary("/usr/sbin/keepalived", "--dont-fork", "--log-console", "--log-detail")(n)
		},
		files: []file{{"keepalived.conf.tmpl", "keepalived.conf", 0o644}, {"check_apiserver.sh", "check_apiserver.sh", 0o755}},
		stop:  func(ctx context.Context, n *lab.Node) error { return n.Stop(ctx) }, freeze: (*lab.Node).Freeze,
	}
	if tuned {
		k.name = "keepalived, tuned"
	}
	return k
}
