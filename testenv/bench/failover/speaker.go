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
)

// speaker is a program that announces the VIP from a master.
type speaker struct {
	// name is what the results call it.
	name string
	// program is its name in the topology, the folder that it has its configuration in.
	program string
	// image runs it.
	image lab.Image
	// files are those of each master, as templates, and conf what they know besides the master.
	files []file
	conf  conf
	// home is the master that has the VIP on a flat layer 2 whenever it can; empty if there is no such.
	home string
	// interval is its check's where that is long or fixed: faults come at any time of it. A lab's trials
	// fall into step with the check otherwise, and all meet it at the same few moments.
	interval time.Duration

	// drain takes the VIP off a master on purpose and in peace, or puts it back.
	drain func(ctx context.Context, n *lab.Node, off bool) error
	// alter announces the VIP with a MED and a community, or without them again.
	alter func(ctx context.Context, s *site, master string, on bool) error
	// stop ends it as planned, by SIGTERM.
	stop func(ctx context.Context, n *lab.Node) error
	// freeze stops the process that announces, as SIGSTOP does.
	freeze func(n *lab.Node) error
	// ready returns an error as long as this node's could not take the VIP over; nil if it always can.
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

// electing is Herald whose masters know of each other by an election section.
func electing(binary, name string) (speaker, error) {
	h := herald(binary)
	key, err := election.NewKey()
	h.name, h.conf.Key = name, key
	h.files = append(h.files, file{"gossip.key.tmpl", "gossip.key", 0o600})
	return h, err
}

// heraldAndFRR is Herald that keeps its route in the main table, and FRR beside it that announces it.
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

// bridging is Herald behind routers, with a bridge; nothing else differs.
func bridging(binary string) (speaker, error) { return electing(binary, heraldBridge) }

// heraldBridge is the name of Herald with a bridge.
const heraldBridge = "herald, bridge"

// heraldARP is Herald on a flat layer 2 with its defaults or, with another lease, in real time.
func heraldARP(binary string, lease time.Duration) (speaker, error) {
	h, err := electing(binary, fmt.Sprintf("herald, lease %d ms", lease.Milliseconds()))
	if lease != defaultLease {
		h.conf.Lease = lease
	}
	h.ready = votes
	return h, err
}

// defaultLease is Herald's, shortLease the other one that is measured.
const defaultLease, shortLease = 600 * time.Millisecond, 200 * time.Millisecond

// votes wants a master to stand for the VIP and to hear all others' votes.
func votes(ctx context.Context, n *lab.Node) error {
	status, err := observe.Status(ctx, n, "herald")
	if err != nil {
		return err
	}
	e := status.Election
	if e == nil || e.Problem != "" || e.Change != "" {
		return fmt.Errorf("%s takes no part in the election: %+v", n.Name(), e)
	}
	if e.Fence != admin.FenceOn {
		return fmt.Errorf("%s has no fence: %s", n.Name(), e.Fence)
	}
	for _, l := range e.Leases {
		if !l.Stands {
			return fmt.Errorf("%s does not stand for %s", n.Name(), l.VIP)
		}
	}
	for _, other := range e.Members {
		if !other.Alive || other.Reason != "" {
			return fmt.Errorf("%s does not hear %s: %s", n.Name(), other.Name, other.Reason)
		}
	}
	return nil
}

// script is how FRR's health script goes about it.
type script struct {
	Interval, Timeout float64 // seconds
	// RefusedCounts makes a refused connection proof at once.
	RefusedCounts bool
}

// usual is what scripts found in the field do; quick is the best that can be made of one.
func usual() script { return script{Interval: 1, Timeout: 1} }
func quick() script { return script{Interval: 0.2, Timeout: 0.5, RefusedCounts: true} }

// frr is FRR's bgpd and bfdd as a speaker, with a script that keeps the VIP on
// lo while the servers are healthy, as people build it by hand.
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
		// The order is that of FRR's own script: zebra last, since bgpd takes 10 s
		// to end without it. Then the health script, which leaves the address.
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
		freeze: func(n *lab.Node) error { return n.Daemon("bgpd").Freeze() }, // BFD is a process of its own
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

// vtysh gives commands to a running FRR, in the mode of its configuration.
func vtysh(ctx context.Context, n *lab.Node, commands ...string) error {
	argv := []string{"vtysh", "-c", "configure terminal"}
	for _, c := range commands {
		argv = append(argv, "-c", c)
	}
	_, err := n.Run(ctx, argv...)
	return err
}

// healthcheck is how ExaBGP's goes about it.
type healthcheck struct {
	Interval float64 // seconds
	Timeout  float64 // of a request, in seconds
	Pace     string  // are its options for that
}

// asShipped is ExaBGP's healthcheck with its defaults, and the bound of its example; asHerald has
// what Herald's checks have by default, except that to healthcheck a refused connection is a failure as any other.
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
				// It becomes another user, as its unit has it. The pipes for its command line are not wanted.
				Daemons: []lab.Daemon{{Name: "exabgp", Argv: []string{"env", "exabgp_daemon_user=exabgp", "exabgp_api_cli=false", "exabgp", "/etc/exabgp/exabgp.conf"}}},
			}, nil
		},
		files: []file{{"exabgp.conf.tmpl", "exabgp.conf", 0o644}},
		stop:  func(ctx context.Context, n *lab.Node) error { return n.Stop(ctx) }, freeze: (*lab.Node).Freeze,
	}
}

// keepalived is VRRP, tuned for speed or as kubeadm's documentation has it. The
// first master has the VIP whenever it can.
func keepalived(tuned bool) speaker {
	k := speaker{
		name: "keepalived, kubeadm's", program: "keepalived", conf: conf{Tuned: tuned}, home: masterOf(1),
		image: func(n clab.Node) (lab.Program, error) {
			n.Cmd = nil // that of Herald
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
