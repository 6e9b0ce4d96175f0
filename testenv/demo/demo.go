// Package demo shows Herald at work: it boots a topology in a lab of namespaces,
// bgp with the embedded router or flat, breaks one thing after the other, and
// tells what the routers, or an observer on the segment, and a client saw.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/router"
)

// Options say what to run.
type Options struct {
	// Topology is the path of bgp.clab.yml or, for RunFlat, of flat.clab.yml.
	Topology string
	// Herald and Testenv are the paths of the two binaries.
	Herald, Testenv string
	// Logs is a folder that is to keep a log of each node; empty keeps none.
	Logs string
	// Live redraws a picture of the lab on the terminal; otherwise events are
	// printed one after the other.
	Live bool
}

// The VIP and the masters of the topology.
const vip = "10.99.0.10"

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

// settle bounds the wait for any one thing to happen.
const settle = 30 * time.Second

// show is a running demo.
type show struct {
	lab     *lab.Lab
	view    *view
	routers []*watched
	traffic *traffic
	rows    []row
	pace    int // successful connections that end an act
}

// row is one line of the summary.
type row struct {
	event    string
	routers  time.Duration // from the event until both routers had acted
	attempts int
	failed   int
	outage   time.Duration
	problem  string
}

// Run runs the demo and returns an error if the VIP did not behave.
func Run(ctx context.Context, out io.Writer, o Options) (err error) {
	began := time.Now()
	topology, err := clab.Load(o.Topology)
	if err != nil {
		return err
	}
	s := &show{view: newView(out, o.Live, "r1", "r2"), pace: brisk}
	if o.Live {
		s.pace = leisurely
	}
	defer s.view.close()
	s.view.say("Laying out %d nodes and %d links in network namespaces.", len(topology.Nodes), len(topology.Links))
	s.lab, err = lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Images: map[string]lab.Image{
		"quay.io/frrouting/frr": lab.Binary(o.Testenv, "router", "--config", "/etc/frr/frr.conf"),
		"herald":                lab.Binary(o.Herald),
		"herald-testenv":        lab.Binary(o.Testenv),
	}, Dir: o.Logs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.lab.Close()) }()
	s.view.say("Two routers, three masters with apiserver, registry and speaker, and a client are up after %s.", since(began))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, name := range []string{"r1", "r2"} {
		r := watch(ctx, name, s.lab.Node(name), s.view)
		s.routers = append(s.routers, r)
		defer r.wait()
	}
	defer cancel() // before the waits above
	if _, err := s.await(ctx, masters...); err != nil {
		return err
	}
	s.view.say("Every master is healthy and announces %s: both routers have three next hops, %s after the start.", vip, since(began))

	s.traffic = probeFrom(ctx, s.lab.Node("client"), s.view, nil, vip)
	defer s.traffic.wait()
	defer cancel()
	if err := s.play(ctx); err != nil {
		return err
	}
	return s.summarise(began)
}

// play is the programme.
func (s *show) play(ctx context.Context) error {
	s.view.title("Load is spread")
	if err := s.spread(ctx); err != nil {
		return err
	}
	node := s.lab.Node
	acts := []struct {
		title, event string
		do           func() error
		left         []string // masters that announce afterwards
		outage       time.Duration
	}{
		{"An apiserver dies", "apiserver of m1 killed", node("m1-apiserver").Kill, []string{"m2", "m3"}, unplanned},
		{"and comes back", "apiserver of m1 back", func() error { return node("m1-apiserver").Boot(ctx) }, masters, planned},
		{"A speaker is killed", "speaker of m2 killed", node("m2-speaker").Kill, []string{"m1", "m3"}, planned},
		{"and is restarted", "speaker of m2 restarted", func() error { return node("m2-speaker").Boot(ctx) }, masters, planned},
		{"A registry fails", "registry of m3 answers 500", func() error { return s.tellRegistry(ctx, "m3", "?status=500") }, []string{"m1", "m2"}, unplanned},
		{"and recovers", "registry of m3 well again", func() error { return s.tellRegistry(ctx, "m3", "") }, masters, planned},
		{"A master is drained for maintenance", "m1 drained", func() error { return s.herald(ctx, "m1", "drain") }, []string{"m2", "m3"}, planned},
		{"and put back", "m1 undrained", func() error { return s.herald(ctx, "m1", "undrain") }, masters, planned},
	}
	for _, a := range acts {
		s.view.title(a.title)
		if err := s.act(ctx, a.event, a.do, a.left, a.outage); err != nil {
			return err
		}
	}
	return nil
}

// act makes one thing happen and records what came of it. A problem with the
// VIP is recorded; an error is one of the demo itself.
func (s *show) act(ctx context.Context, event string, do func() error, left []string, allowed time.Duration) error {
	s.traffic.mark()
	began := time.Now()
	r := row{event: event}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", event, err)
	}
	reached, err := s.await(ctx, left...)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		r.problem = err.Error()
	}
	r.routers = reached.Sub(began)
	if err := s.addressesOn(ctx, left); err != nil {
		r.problem = err.Error()
	}
	// Let the traffic show that it has settled.
	s.traffic.quiet(ctx, s.pace)
	for _, m := range masters {
		if to := bridged(ctx, s.lab.Node(m+"-speaker"), began); to != "" {
			s.view.say("Until the routers had acted, %s sent new connections on to %s.", m, to)
		}
	}
	r.attempts, r.failed, r.outage = s.traffic.sinceMark()
	if r.outage > allowed {
		r.problem = fmt.Sprintf("out for longer than %s", allowed)
	}
	s.view.say("%s: both routers acted in %s; the client lost %d of %d connections%s.", event, ms(r.routers), r.failed, r.attempts, s.traffic.losses())
	if r.problem != "" {
		s.view.say("PROBLEM: %s", r.problem)
	}
	s.rows = append(s.rows, r)
	return nil
}

// await waits until both routers use exactly the given masters, in both
// address families, and returns when the last of them came to that.
func (s *show) await(ctx context.Context, names ...string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	var last time.Time
	for _, r := range s.routers {
		at, err := r.await(ctx, names)
		if err != nil {
			return time.Now(), err
		}
		if at.After(last) {
			last = at
		}
	}
	return last, nil
}

// addressesOn checks that just the masters named have the VIP, on lo.
func (s *show) addressesOn(ctx context.Context, names []string) error {
	for _, m := range masters {
		want := slices.Contains(names, m)
		has, err := s.hasVIP(m)
		if err != nil {
			return err
		}
		// A killed speaker's address goes by itself within its lifetime.
		if has != want && s.lab.Node(m+"-speaker").Running() {
			return fmt.Errorf("%s has the VIP on lo: %t, want %t", m, has, want)
		}
	}
	return ctx.Err()
}

func (s *show) hasVIP(master string) (bool, error) {
	h, err := s.lab.Node(master).Handle()
	if err != nil {
		return false, err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return false, err
	}
	addrs, err := h.AddrList(lo, 0)
	if err != nil {
		return false, err
	}
	for _, a := range addrs {
		if a.IP.String() == vip {
			return true, nil
		}
	}
	return false, nil
}

// spread waits for enough connections to tell that each master gets its share.
func (s *show) spread(ctx context.Context) error {
	s.traffic.mark()
	s.traffic.quiet(ctx, 600)
	served := s.traffic.served()
	total := 0
	for _, n := range served {
		total += n
	}
	line := fmt.Sprintf("Of %d connections", total)
	problem := ""
	for _, m := range masters {
		share := 100 * served[m] / max(total, 1)
		line += fmt.Sprintf(", %s answered %d %%", m, share)
		if share < 20 {
			problem = "the load is not spread over all masters"
		}
	}
	s.view.say("%s.", line)
	attempts, failed, longest := s.traffic.sinceMark()
	s.rows = append(s.rows, row{event: "steady, three masters", attempts: attempts, failed: failed, outage: longest, problem: problem})
	return ctx.Err()
}

func (s *show) tellRegistry(ctx context.Context, master, query string) error {
	client := http.Client{Transport: &http.Transport{DialContext: s.lab.Node(master).DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:5001/stub/v2"+query, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("the stub registry answers %s", resp.Status)
	}
	return nil
}

func (s *show) herald(ctx context.Context, master string, args ...string) error {
	_, err := s.lab.Node(master+"-speaker").Run(ctx, append([]string{"/usr/local/bin/herald"}, args...)...)
	return err
}

// summarise prints the table, and returns an error if anything in it is a problem.
func (s *show) summarise(began time.Time) error {
	s.view.close()
	var err error
	s.view.printf("\n%-28s  %12s  %18s  %14s  %s\n", "event", "routers after", "connections failed", "longest outage", "verdict")
	for _, r := range s.rows {
		routers, longest, verdict := "-", "-", "ok"
		if r.routers > 0 {
			routers = ms(r.routers)
		}
		if r.outage > 0 {
			longest = ms(r.outage)
		}
		if r.problem != "" {
			verdict, err = r.problem, errMisbehaved
		}
		s.view.printf("%-28s  %13s  %18s  %14s  %s\n", r.event, routers, fmt.Sprintf("%d of %d", r.failed, r.attempts), longest, verdict)
	}
	s.view.printf("\nDone in %s.\n", since(began))
	return err
}

func since(t time.Time) string { return time.Since(t).Round(100 * time.Millisecond).String() }

func ms(d time.Duration) string {
	if d < 100*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// masterOf names the master that a next hop belongs to: the third part of the
// topology's addresses is its number.
func masterOf(hop netip.Addr) string {
	if hop.Is4() {
		return fmt.Sprintf("m%d", hop.As4()[2])
	}
	return fmt.Sprintf("m%d", hop.As16()[5])
}

// announcers are the masters behind a route.
func announcers(r router.Route) []string {
	var out []string
	for _, hop := range r.NextHops {
		out = append(out, masterOf(hop))
	}
	slices.Sort(out)
	return out
}

// socketOf is the path of a file in a node's own file tree, from outside.
func socketOf(n *lab.Node, path string) string {
	return filepath.Join("/proc", fmt.Sprint(n.Daemons()[0].Pid()), "root", path)
}
