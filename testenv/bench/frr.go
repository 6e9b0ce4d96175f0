package bench

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
)

// frr is FRR's bgpd and bfdd as a speaker, with a script that keeps the VIP on
// lo while the servers are healthy, as people build it by hand.
type frr struct {
	script script
}

// script is how the health script goes about it.
type script struct {
	Label             string
	Interval, Timeout float64 // seconds
	// RefusedCounts makes a refused connection proof at once.
	RefusedCounts bool
}

// usual is what scripts found in the field do; quick is the best that can be made of one.
func usual() script { return script{Label: "1 s", Interval: 1, Timeout: 1} }
func quick() script {
	return script{Label: "0.2 s", Interval: 0.2, Timeout: 0.5, RefusedCounts: true}
}

func (f *frr) name() string    { return "FRR, script " + f.script.Label }
func (f *frr) program() string { return "frr" }

// image is lab.FRR with the script beside it.
func (f *frr) image() lab.Image {
	return func(n clab.Node) (lab.Program, error) {
		var daemons []clab.Bind
		for _, b := range n.Binds { // the folder /etc/frr
			daemons = append(daemons, clab.Bind{Source: filepath.Join(b.Source, "daemons"), Target: "/etc/frr/daemons"})
		}
		p, err := lab.FRR(clab.Node{Binds: daemons})
		if err != nil {
			return p, err
		}
		p.Daemons = append(p.Daemons, lab.Daemon{Name: "health.sh", Argv: []string{"/etc/frr/health.sh"}})
		return p, nil
	}
}

func (f *frr) configure(templates, dir string, m masterConf) error {
	if err := fill(templates, "frr-speaker.conf.tmpl", dir, "frr.conf", m, 0o644); err != nil {
		return err
	}
	if err := fill(templates, "health.sh.tmpl", dir, "health.sh", f.script, 0o755); err != nil {
		return err
	}
	return copyFile(filepath.Join(templates, "daemons"), filepath.Join(dir, "daemons"), 0o644)
}

// drain withdraws the route and keeps the address.
func (f *frr) drain(ctx context.Context, n *lab.Node) error {
	return vtysh(ctx, n, "router bgp 64512", "address-family ipv4 unicast", "no redistribute connected route-map vip")
}

func (f *frr) undrain(ctx context.Context, n *lab.Node) error {
	return vtysh(ctx, n, "router bgp 64512", "address-family ipv4 unicast", "redistribute connected route-map vip")
}

func (f *frr) alter(ctx context.Context, n *lab.Node, altered bool) error {
	if altered {
		return vtysh(ctx, n, "route-map vip permit 10", "set metric 10", "set community 64512:1")
	}
	return vtysh(ctx, n, "route-map vip permit 10", "no set metric", "no set community")
}

// stop goes by the order of FRR's own script: zebra last, since bgpd takes 10 s
// to end without it. Then the health script, which leaves the address.
func (f *frr) stop(ctx context.Context, n *lab.Node) error {
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
}

// freeze stops bgpd alone: FRR's BFD is a process of its own.
func (f *frr) freeze(n *lab.Node) error { return n.Daemon("bgpd").Freeze() }

// vtysh gives commands to a running FRR, in the mode of its configuration.
func vtysh(ctx context.Context, n *lab.Node, commands ...string) error {
	argv := []string{"vtysh", "-c", "configure terminal"}
	for _, c := range commands {
		argv = append(argv, "-c", c)
	}
	_, err := n.Run(ctx, argv...)
	return err
}
