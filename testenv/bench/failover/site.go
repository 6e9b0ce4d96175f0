package failover

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
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
