// Package demo shows Herald at work. It boots a topology in a lab of namespaces, bgp
// with routers or flat, and breaks one thing after the other. It reports the
// observations of the routers, or of an observer on the link, and of a client. The
// demo of Services uses a real API server and shows the output of `kubectl herald`.
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
	"github.com/herald-vip/herald/testenv/step"
	"github.com/herald-vip/herald/testenv/traffic"
)

// Options select the demo.
type Options struct {
	// Flat selects the flat topology, and the elected VIP.
	Flat bool
	// Services selects the cluster of package services, which needs the folder of the
	// CRDs and the paths of kube-apiserver and etcd.
	Services              bool
	CRDs, APIServer, Etcd string
	// Topology is the path of bgp.clab.yml or flat.clab.yml.
	Topology string
	// Herald and Testenv are the paths of the two binaries.
	Herald, Testenv string
	// FRR makes the routers run the host's FRR instead of the embedded router.
	FRR bool
	// Logs is the folder for a log of each node; empty for no logs.
	Logs string
	// Live redraws a picture of the lab on the terminal; otherwise events are printed one
	// after the other.
	Live bool
	// Width is the number of columns of the terminal; 0 if unknown.
	Width int
}

var masters = []string{"m1", "m2", "m3"}

var errMisbehaved = errors.New("the VIP was out of reach for too long, or misplaced")

// Tolerated outages of the VIP. A planned change interrupts nothing that Herald
// controls. But if a router stops using a master during a TCP handshake, the next
// packet goes to another master, which resets the connection. (Without resilient
// groups, before Linux 5.13, that also affects connections with other masters, and
// happens when a master comes back.) A failure may show until the routers have acted.
const (
	planned   = 100 * time.Millisecond
	unplanned = 500 * time.Millisecond
)

// The number of successive connections that end an act: for a spectator, two seconds' worth.
const (
	brisk     = 100
	leisurely = 400
)

// patience bounds the wait for each event, answering the wait for a speaker's status:
// a frozen speaker gives none.
const (
	patience  = 30 * time.Second
	answering = time.Second
)

// play is the demo on one topology.
type play interface {
	// watch begins to observe the VIP.
	watch() error
	// cast describes the machines that are up at the start.
	cast() string
	// opening waits until the VIP is announced, and describes that.
	opening(ctx context.Context) (string, error)
	// perform makes all acts.
	perform(ctx context.Context)
	// settle waits until the VIP is where the act leaves it, and returns the observations.
	settle(ctx context.Context, a act) (row, error)
	// verdict prints the conclusion after the summary.
	verdict() error
	close() error
}

// act is one event.
type act struct {
	title, event string // no title if the act continues the previous one
	do           func() error
	left         []string      // masters that announce the VIP afterwards; on the flat topology one of them holds it
	allowed      time.Duration // tolerated outage of the VIP
	began        time.Time
}

// row is one line of the summary.
type row struct {
	event   string
	what    string        // the effect
	allowed time.Duration // tolerated outage of the VIP
	holder  string        // afterwards, on the flat topology
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
	until   string // the end of an outage, in words
	heads   [2]string
	lab     *lab.Lab
	view    *view
	traffic *traffic.Client
	rows    []row
	pace    int // successful connections that end an act
}

// Run runs the demo and returns an error if the VIP did not behave.
func Run(ctx context.Context, out io.Writer, o Options) error {
	if o.Services {
		v := newView(out, o.Live, o.Width)
		defer v.close()
		return step.Run(func() { runServices(ctx, v, o) })
	}
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
	return step.Run(func() { s.run(ctx, o) })
}

func (s *show) run(ctx context.Context, o Options) {
	began := time.Now()
	topology := step.Get(clab.Load(o.Topology))
	router := lab.Binary(o.Testenv, "router")
	if o.FRR {
		router = lab.FRR
	}
	s.view.say("Laying out %d nodes and %d links in network namespaces.", len(topology.Nodes), len(topology.Links))
	s.lab = step.Get(lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Hold: true, Dir: o.Logs, Images: map[string]lab.Image{
		"quay.io/frrouting/frr": router, "herald": lab.Binary(o.Herald), "herald-testenv": lab.Binary(o.Testenv),
	}}))
	defer step.Close(s.lab.Close)
	defer step.Close(s.close)
	step.Do(s.watch())
	step.Do(s.lab.Boot(ctx))
	s.view.say("%s are up after %s.", s.cast(), since(began))
	announced := step.Get(s.opening(ctx))
	s.view.say("%s, %s after the start.", announced, since(began))

	connecting, cancel := context.WithCancel(ctx)
	s.traffic = traffic.Start(connecting, s.lab.Node(s.client), traffic.Options{Identify: s.holder == nil, On: s.attempt}, s.vips...)
	err := step.Run(func() { s.perform(ctx) })
	cancel()
	_, failed := s.traffic.Wait()
	step.Do(errors.Join(err, failed))
	err = errors.Join(s.summarise(), s.verdict())
	s.view.printf("Done in %s.\n", since(began))
	step.Do(err)
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

// act makes one event happen and records its effects. It records a problem with the
// VIP in the row; an error is one of the demo itself.
func (s *show) act(ctx context.Context, a act) (r row) {
	if a.title != "" {
		s.view.title(a.title)
	}
	s.traffic.Mark()
	a.began = time.Now()
	step.Named(a.event, func() {
		step.Do(a.do())
		r = step.Get(s.settle(ctx, a))
	})
	for _, m := range masters {
		if helper := bridged(ctx, s.lab.Node(m+"-speaker"), a.began); helper != "" {
			s.view.say("Until %s, %s forwarded new connections to %s.", s.until, m, helper)
		}
	}
	r.event, r.allowed, r.count = a.event, a.allowed, s.traffic.Count()
	r.judge()
	s.view.say("%s: %s; the client lost %d of %d connections%s.", r.event, r.what, r.count.Failed(), r.count.Attempts, losses(r.count))
	if r.problem != "" {
		s.view.say("PROBLEM: %s", r.problem)
	}
	s.rows = append(s.rows, r)
	step.Do(ctx.Err())
	return r
}

// judge records a problem if the VIP was out of reach for longer than allowed.
func (r *row) judge() {
	if r.count.Longest > r.allowed {
		r.problem = fmt.Sprintf("out for longer than %s", r.allowed)
	}
}

// works waits until the traffic has recovered.
func (s *show) works(ctx context.Context, successes int) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.traffic.AwaitSuccesses(ctx, successes)
}

// losses describes how connections failed, and for how long.
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

// bridged returns the master that new connections have been forwarded to since then,
// from the attribute "to" of events, which no other events have. It is empty if there
// is none, or if the speaker does not answer.
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
		if _, master, ok := strings.Cut(e.About, " to="); ok && e.At.After(since) {
			return master
		}
	}
	return ""
}

// herald runs a Herald command on a master.
func (s *show) herald(ctx context.Context, master, command string) error {
	_, err := s.lab.Node(master+"-speaker").Run(ctx, "/usr/local/bin/herald", command)
	return err
}

// summarise prints the table, and returns an error if a row has a problem.
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
