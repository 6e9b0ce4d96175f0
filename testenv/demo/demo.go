// Package demo shows Herald at work: it boots a topology in a lab of namespaces,
// bgp with routers or flat, breaks one thing after the other, and tells what the
// routers, or an observer on the link, and a client saw. Of Services, on a real API
// server, it tells what `kubectl herald` says.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/traffic"
)

// Options say what to run.
type Options struct {
	// Flat chooses the flat topology, and the elected VIP.
	Flat bool
	// Services chooses the cluster of package services, which needs the folder of the
	// CRDs and the paths of kube-apiserver and etcd.
	Services              bool
	CRDs, APIServer, Etcd string
	// Topology is the path of bgp.clab.yml or flat.clab.yml.
	Topology string
	// Herald and Testenv are the paths of the two binaries.
	Herald, Testenv string
	// FRR is set if the routers are to run the host's FRR, not the embedded router.
	FRR bool
	// Logs is a folder that is to keep a log of each node; empty keeps none.
	Logs string
	// Live redraws a picture of the lab on the terminal; otherwise events are
	// printed one after the other.
	Live bool
	// Width is how many columns the terminal has; 0 if that is unknown.
	Width int
}

var masters = []string{"m1", "m2", "m3"}

var errMisbehaved = errors.New("the VIP did not behave as it should")

// How long the VIP may be out of reach. A planned change interrupts nothing that
// Herald has a hand in; but a connection that is being made with a master at the
// very moment when a router stops using it goes on to one that does not know it,
// and is reset. (Without resilient groups, before Linux 5.13, that befalls
// connections with other masters, too, and when one comes back.) A failure may show
// until the routers have acted.
const (
	planned   = 100 * time.Millisecond
	unplanned = 500 * time.Millisecond
)

// How many connections in a row succeed until an act is over: with somebody
// looking, two seconds' worth.
const (
	brisk     = 100
	leisurely = 400
)

// patience bounds the wait for any one thing to happen, answering that for the status of a
// speaker: one that was frozen gives none.
const (
	patience  = 30 * time.Second
	answering = time.Second
)

// play is what a demo does on one topology.
type play interface {
	// watch begins to watch for the VIP.
	watch() error
	// cast is what is up when the lab is.
	cast() string
	// opening waits until the VIP is announced, and says so.
	opening(ctx context.Context) (string, error)
	// perform makes all acts.
	perform(ctx context.Context) error
	// settle waits until the VIP is where the act has left it, and reports what it saw.
	settle(ctx context.Context, a act) (row, error)
	// verdict is the last word after the summary.
	verdict() error
	close() error
}

// act makes one thing happen.
type act struct {
	title, event string // no title if the act goes on
	do           func() error
	left         []string      // masters that announce the VIP afterwards, or one of which holds it
	allowed      time.Duration // for the VIP to be out of reach
	began        time.Time
}

// row is one line of the summary.
type row struct {
	event   string
	what    string        // came of it
	allowed time.Duration // for the VIP to be out of reach
	holder  string        // afterwards, if it is one
	after   time.Duration // from the event until the routers, or the new holder, had acted
	count   traffic.Count
	problem string
}

// show is a running demo.
type show struct {
	play
	vips    []netip.Addr
	client  string // the node
	holder  func() string
	until   string // when new connections are sent on no more
	heads   [2]string
	lab     *lab.Lab
	view    *view
	traffic *traffic.Client
	rows    []row
	pace    int // successful connections that end an act
}

// Run runs the demo and returns an error if the VIP did not behave.
func Run(ctx context.Context, out io.Writer, o Options) (err error) {
	if o.Services {
		v := newView(out, o.Live, o.Width)
		defer v.close()
		return runServices(ctx, v, o)
	}
	began := time.Now()
	s := &show{pace: brisk}
	if o.Live {
		s.pace = leisurely
	}
	if o.Flat {
		newFlat(s, newView(out, o.Live, o.Width, lan))
	} else {
		newRouted(s, newView(out, o.Live, o.Width, routers...))
	}
	defer s.view.close()
	topology, err := clab.Load(o.Topology)
	if err != nil {
		return err
	}
	router := lab.Binary(o.Testenv, "router")
	if o.FRR {
		router = lab.FRR
	}
	s.view.say("Laying out %d nodes and %d links in network namespaces.", len(topology.Nodes), len(topology.Links))
	s.lab, err = lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Hold: true, Dir: o.Logs, Images: map[string]lab.Image{
		"quay.io/frrouting/frr": router, "herald": lab.Binary(o.Herald), "herald-testenv": lab.Binary(o.Testenv),
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.lab.Close()) }()
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.watch(); err != nil {
		return err
	}
	if err := s.lab.Boot(ctx); err != nil {
		return err
	}
	s.view.say("%s are up after %s.", s.cast(), since(began))
	announced, err := s.opening(ctx)
	if err != nil {
		return err
	}
	s.view.say("%s, %s after the start.", announced, since(began))

	connecting, cancel := context.WithCancel(ctx)
	s.traffic = traffic.Start(connecting, s.lab.Node(s.client), traffic.Options{Identify: s.holder == nil, On: s.attempt}, s.vips...)
	err = s.perform(ctx)
	cancel()
	if _, failed := s.traffic.Wait(); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	err = errors.Join(s.summarise(), s.verdict())
	s.view.printf("Done in %s.\n", since(began))
	return err
}

// attempt shows the connections to the first of the VIP's addresses.
func (s *show) attempt(vip int, a probe.Attempt) {
	if s.holder != nil {
		a.Server = s.holder()
	}
	if vip == 0 {
		s.view.attempt(a)
	}
}

// act makes one thing happen and records what came of it. A problem with the
// VIP is recorded; an error is one of the demo itself.
func (s *show) act(ctx context.Context, a act) (row, error) {
	if a.title != "" {
		s.view.title(a.title)
	}
	s.traffic.Mark()
	a.began = time.Now()
	if err := a.do(); err != nil {
		return row{}, fmt.Errorf("%s: %w", a.event, err)
	}
	r, err := s.settle(ctx, a)
	if err != nil {
		return r, fmt.Errorf("%s: %w", a.event, err)
	}
	for _, m := range masters {
		if to := bridged(ctx, s.lab.Node(m+"-speaker"), a.began); to != "" {
			s.view.say("Until %s, %s sent new connections on to %s.", s.until, m, to)
		}
	}
	r.event, r.allowed, r.count = a.event, a.allowed, s.traffic.Count()
	r.judge()
	s.view.say("%s: %s; the client lost %d of %d connections%s.", r.event, r.what, r.count.Failed(), r.count.Attempts, losses(r.count))
	if r.problem != "" {
		s.view.say("PROBLEM: %s", r.problem)
	}
	s.rows = append(s.rows, r)
	return r, ctx.Err()
}

// judge says what is wrong if the VIP was out of reach for longer than it may be.
func (r *row) judge() {
	if r.count.Longest > r.allowed {
		r.problem = fmt.Sprintf("out for longer than %s", r.allowed)
	}
}

// works waits until the traffic shows that all is well.
func (s *show) works(ctx context.Context, successes int) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.traffic.AwaitSuccesses(ctx, successes)
}

// losses says how connections failed, and for how long they did.
func losses(c traffic.Count) string {
	var kinds []string
	for kind, n := range c.Failures {
		kinds = append(kinds, fmt.Sprintf("%d %s", n, kind))
	}
	if kinds == nil {
		return ""
	}
	slices.Sort(kinds)
	return fmt.Sprintf(" (%s), for %s at most", strings.Join(kinds, ", "), ms(c.Longest))
}

// bridged tells whom the master has sent new connections on to since then, which the only
// events with an attribute "to" say; empty if it has not, or its speaker does not answer.
func bridged(ctx context.Context, speaker *lab.Node, since time.Time) string {
	if !speaker.Running() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	status, err := admin.NewClient(fmt.Sprintf("/proc/%d/root/run/herald/herald.sock", speaker.Daemons()[0].Pid())).Status(ctx)
	if err != nil {
		return ""
	}
	for _, e := range status.Events {
		if _, to, ok := strings.Cut(e.About, " to="); ok && e.At.After(since) {
			return to
		}
	}
	return ""
}

// herald runs a command of Herald's on a master.
func (s *show) herald(ctx context.Context, master, command string) error {
	_, err := s.lab.Node(master+"-speaker").Run(ctx, "/usr/local/bin/herald", command)
	return err
}

// summarise prints the table, and returns an error if anything in it is a problem.
func (s *show) summarise() (err error) {
	s.view.close()
	const line = "%-23s  %-6s  %8s  %10s  %7s  %7s  %s\n" // 80 columns
	s.view.printf("\n"+line, "event", s.heads[0], s.heads[1], "failed", "longest", "allowed", "verdict")
	orDash := func(d time.Duration) string {
		if d <= 0 {
			return "-"
		}
		return ms(d)
	}
	for _, r := range s.rows {
		verdict := "ok"
		if r.problem != "" {
			verdict, err = r.problem, errMisbehaved
		}
		s.view.printf(line, r.event, r.holder, orDash(r.after), fmt.Sprintf("%d of %d", r.count.Failed(), r.count.Attempts), orDash(r.count.Longest), r.allowed, verdict)
	}
	s.view.printf("\n")
	return err
}

func since(t time.Time) string { return time.Since(t).Round(100 * time.Millisecond).String() }

func ms(d time.Duration) string {
	if d < 100*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
