package failover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"

	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// site is a running lab with one speaker on all masters.
type site struct {
	*lab.Lab
	network
	speaker   speaker
	bfd       int // milliseconds, 0 for none
	templates string
	dir       string
}

// network is the part of a site besides its masters, where the effects of faults are observed.
type network interface {
	// neighbours returns the nodes that each master has a link to.
	neighbours() []string
	// watch starts the observation, from all clients. The caller ends it.
	watch(ctx context.Context, identify bool) *watch
	// victim returns the master that the fault of a trial hits; empty if none has the VIP.
	victim(w *watch, number int) string
	// effects makes the fault, and returns its effects until the deadline, for each router.
	effects(ctx context.Context, w *watch, f fault, master string, deadline time.Time) []trial
	// heal undoes the fault if necessary, and adds the time until that took effect.
	heal(ctx context.Context, do func() error, master string, trials []trial)
	// rest waits until the state is as without faults.
	rest(ctx context.Context, w *watch)
	// judge adds the observations until the end of the watch.
	judge(w *watch, trials []trial)
	close() error
}

// file is generated from a template in a site's folder of templates.
type file struct {
	template, name string
	mode           os.FileMode
}

// conf holds the variables of the templates.
type conf struct {
	// Number of the master, 1 to 3.
	Number int
	// Routers and Masters are their numbers.
	Routers, Masters []int
	// BFD is the interval in milliseconds, 0 for none.
	BFD int
	// Realtime enables real-time scheduling.
	Realtime bool
	// Altered adds a MED and a community.
	Altered bool
	// Key is the gossip key, which enables the election section.
	Key string
	// Lease overrides Herald's default.
	Lease time.Duration
	// Tuned selects keepalived's fast configuration.
	Tuned bool
	// Script configures FRR's health script.
	Script script
	// Kernel makes FRR announce the route that Herald keeps in the kernel.
	Kernel bool
	// Check configures ExaBGP's healthcheck.
	Check healthcheck
}

// open boots the lab, with its configurations and logs in dir. The caller closes it.
func open(ctx context.Context, o suite.Options, p part, dir string) *site {
	s := &site{speaker: p.speaker, bfd: p.bfd, dir: dir}
	name, routers := "bench-bgp", routerFiles()
	if p.flat {
		name, routers = "bench-arp", nil
	}
	s.templates = filepath.Join(o.Topologies, name)
	for _, m := range masters() {
		step.Do(s.configure(m, false))
	}
	for _, f := range routers {
		step.Do(s.fill(f, conf{Masters: numbers(), BFD: p.bfd}))
	}
	topology := load(s.templates+".clab.yml", map[string]string{"BENCH_DIR": dir, "SPEAKER": p.speaker.program, "SPEAKER_IMAGE": "speaker"})
	s.Lab = step.Get(lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Hold: true, Dir: filepath.Join(dir, "logs"), Images: map[string]lab.Image{
		"quay.io/frrouting/frr": lab.FRR,
		"bird":                  lab.BIRD,
		"speaker":               p.speaker.image,
		"herald-testenv":        lab.Binary(o.Programs["herald-testenv"]),
	}}))
	if err := step.Run(func() { s.boot(ctx, p.flat) }); err != nil {
		step.Do(errors.Join(err, s.close()))
	}
	return s
}

// boot boots all nodes and waits until they are at rest.
func (s *site) boot(ctx context.Context, onLink bool) {
	if onLink {
		s.network = &flat{s}
	} else {
		route(s) // before anything runs
	}
	step.Do(s.Boot(ctx))
	s.realtime()
	w := s.watch(ctx, false)
	defer step.Close(w.end)
	s.rest(ctx, w)
}

// configure writes the files of a master's speaker, each atomically: the speaker may be running.
func (s *site) configure(master string, altered bool) error {
	c := s.speaker.conf
	c.Number, c.Routers, c.Masters, c.BFD, c.Realtime, c.Altered = int(master[1]-'0'), []int{1, 2}, numbers(), s.bfd, fast(s.bfd), altered
	for _, f := range s.speaker.files {
		f.name = filepath.Join(master, f.name)
		if err := s.fill(f, c); err != nil {
			return err
		}
	}
	return nil
}

// fill writes a file from its template.
func (s *site) fill(f file, c conf) error {
	return step.Run(func() {
		t := step.Get(template.ParseFiles(filepath.Join(s.templates, f.template)))
		var text bytes.Buffer
		step.Named("fill in", func() { step.Do(t.Execute(&text, c)) })
		path := filepath.Join(s.dir, f.name)
		step.Do(os.MkdirAll(filepath.Dir(path), 0o755))
		step.Do(os.WriteFile(path+".new", text.Bytes(), f.mode))
		step.Do(os.Rename(path+".new", path))
	})
}

// load reads a topology with these variables.
func load(path string, variables map[string]string) *clab.Topology {
	return step.Get(clab.Parse(path, step.Get(os.ReadFile(path)), func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}))
}

func (s *site) close() error {
	var err error
	if s.network != nil {
		err = s.network.close()
	}
	return errors.Join(err, s.Lab.Close())
}

// peerPrefix is announced by the peer, which checks no health.
func peerPrefix() netip.Prefix { return netip.MustParsePrefix("10.99.0.11/32") }

// peerAddress is the peer's address, on c1 beside the client.
func peerAddress() netip.Addr { return netip.MustParseAddr("10.1.9.1") }

// startPeer runs BIRD as a peer of the FRR router, with a route of its own, and waits
// until FRR has it. The peer ends with the lab.
func (r *router) startPeer(ctx context.Context) {
	neighbor := "neighbor " + peerAddress().String()
	step.Do(vtysh(ctx, r.node, "ip prefix-list peer seq 10 permit "+peerPrefix().String(),
		"router bgp 64500", neighbor+" remote-as 64512", neighbor+" passive", neighbor+" timers 60 180",
		"address-family ipv4 unicast", neighbor+" activate", neighbor+" prefix-list peer in", neighbor+" prefix-list nothing out"))
	step.Get(r.client.Start(&exec.Cmd{Args: []string{"bird", "-f", "-s", peerSocket}}))
	r.awaitPeer(ctx, peerAddress())
}

const peerSocket = "/run/bird.ctl"

// awaitPeer waits until the peer's route in FRR's kernel leads over these hops, and
// returns when that was.
func (r *router) awaitPeer(ctx context.Context, hops ...netip.Addr) time.Time {
	ctx, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	return step.Get(r.routes.AwaitHops(ctx, peerPrefix().Addr(), hops...))
}

// withdraw makes the peer withdraw its route and announce it again. It returns FRR's
// time from the UPDATE on the wire to the removal of the kernel route.
func (r *router) withdraw(ctx context.Context) time.Duration {
	// So that FRR is at rest, and trials do not fall into step with its timers.
	step.Pause(ctx, 300*time.Millisecond+time.Duration(time.Now().UnixNano()%100)*time.Millisecond)
	r.mark()
	step.Get(r.client.Run(ctx, "birdc", "-s", peerSocket, "disable", "own"))
	at := r.awaitPeer(ctx)
	told, ok := r.wire.First(peerAddress())
	if !ok {
		step.Do(fmt.Errorf("the withdrawal of %s did not arrive", peerPrefix()))
	}
	step.Get(r.client.Run(ctx, "birdc", "-s", peerSocket, "enable", "own"))
	r.awaitPeer(ctx, peerAddress())
	return at.Sub(told.At)
}
