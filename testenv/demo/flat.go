package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/segment"
)

// The flat topology: its bridge, and the VIP's addresses.
const (
	lan     = "lan"
	flatVIP = "10.4.0.10"
	flat6   = "fd00:4::10"
)

// leased is how long the VIP may be out of reach when its holder can no longer
// give it up: its lease of 600 ms has to end, and a successor to notice.
const leased = 1500 * time.Millisecond

// flatShow is a running demo on the flat topology.
type flatShow struct {
	lab     *lab.Lab
	view    *view
	segment *segment.Observer
	traffic *traffic
	rows    []flatRow
	pace    int
}

// flatRow is one line of the summary.
type flatRow struct {
	event    string
	holder   string        // afterwards
	moved    time.Duration // from the event to the new holder's first answer; 0 if it stayed
	attempts int
	failed   int
	outage   time.Duration
	problem  string
}

// RunFlat runs the demo of the elected VIP and returns an error if the VIP did
// not behave.
func RunFlat(ctx context.Context, out io.Writer, o Options) (err error) {
	began := time.Now()
	topology, err := clab.Load(o.Topology)
	if err != nil {
		return err
	}
	s := &flatShow{view: newView(out, o.Live, lan), pace: brisk}
	if o.Live {
		s.pace = leisurely
	}
	defer s.view.close()
	s.view.say("Laying out %d nodes and %d links in network namespaces.", len(topology.Nodes), len(topology.Links))
	s.lab, err = lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Hold: true, Dir: o.Logs, Images: map[string]lab.Image{
		"herald":         lab.Binary(o.Herald),
		"herald-testenv": lab.Binary(o.Testenv),
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.lab.Close()) }()
	if s.segment, err = segment.Observe(s.lab.Node("o1"), segment.Flat(s.lab)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.segment.Close()) }()
	if err := s.lab.Boot(ctx); err != nil {
		return err
	}
	s.view.say("Three masters with apiserver and speaker, a client and an observer on one segment are up after %s.", since(began))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	holder, err := s.held(ctx)
	if err != nil {
		return err
	}
	s.view.say("The masters elected %s: it answers for %s and %s, %s after the start.", holder, flatVIP, flat6, since(began))
	s.traffic = probeFrom(ctx, s.lab.Node("c1"), s.view, s.holder, flatVIP, flat6)
	defer s.traffic.wait()
	defer cancel()
	if err := s.play(ctx, holder); err != nil {
		return err
	}
	return s.summarise(began)
}

// holder is who answers now. The client does not ask: whoever it has asked when
// the VIP moves gets no answer, as any connection does not outlive its server.
func (s *flatShow) holder() string {
	m, _ := s.segment.Holder(netip.MustParseAddr(flatVIP))
	return m
}

// held waits until one of the masters named, or any, holds the VIP.
func (s *flatShow) held(ctx context.Context, names ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	holder, err := s.segment.Await(ctx, names...)
	s.view.uses(lan, holder)
	return holder, err
}

// play is the programme. Whatever befalls the holder, another one takes over
// and keeps the VIP when the first is well again.
func (s *flatShow) play(ctx context.Context, holder string) error {
	node := s.lab.Node
	herald := func(master, command string) error {
		_, err := node(master+"-speaker").Run(ctx, "/usr/local/bin/herald", command)
		return err
	}
	alone := func(m string) error {
		return s.lab.Part(lan, []string{m}, slices.DeleteFunc(slices.Clone(masters), func(o string) bool { return o == m }))
	}
	for _, a := range []struct {
		title, event, back string
		do, undo           func(holder string) error
		outage             time.Duration
	}{
		{"The holder's apiserver dies", "apiserver of %s killed", "apiserver of %s back",
			func(m string) error { return node(m + "-apiserver").Kill() }, func(m string) error { return node(m + "-apiserver").Boot(ctx) }, unplanned},
		{"The holder is killed", "speaker of %s killed", "speaker of %s restarted",
			func(m string) error { return node(m + "-speaker").Kill() }, func(m string) error { return node(m + "-speaker").Boot(ctx) }, leased},
		{"The holder stands still, its kernel does not", "speaker of %s frozen", "speaker of %s runs on",
			func(m string) error { return node(m + "-speaker").Freeze() }, func(m string) error { return node(m + "-speaker").Thaw() }, leased},
		{"The holder is parted from the other masters, not from the client", "%s parted from the others", "%s among them again", alone, func(string) error { return s.lab.Part(lan) }, leased},
		{"The holder is drained for maintenance", "%s drained", "%s undrained",
			func(m string) error { return s.segment.Move(m, func() error { return herald(m, "drain") }) }, func(m string) error { return herald(m, "undrain") }, planned},
	} {
		s.view.title(a.title)
		next, err := s.act(ctx, fmt.Sprintf(a.event, holder), holder, true, func() error { return a.do(holder) }, a.outage)
		if err != nil {
			return err
		}
		if _, err := s.act(ctx, fmt.Sprintf(a.back, holder), next, false, func() error { return a.undo(holder) }, planned); err != nil {
			return err
		}
		holder = next
	}
	return nil
}

// act makes one thing happen that moves the VIP away from its holder, or does
// not, and returns who holds it then.
func (s *flatShow) act(ctx context.Context, event, holder string, moves bool, do func() error, allowed time.Duration) (string, error) {
	s.traffic.mark()
	at, began := s.segment.Clock(), time.Now()
	if err := do(); err != nil {
		return "", fmt.Errorf("%s: %w", event, err)
	}
	want := []string{holder}
	if moves {
		want = slices.DeleteFunc(slices.Clone(masters), func(m string) bool { return m == holder })
	}
	next, err := s.held(ctx, want...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", event, err)
	}
	s.traffic.quiet(ctx, s.pace)
	if to := bridged(ctx, s.lab.Node(holder+"-speaker"), began); to != "" {
		s.view.say("Until the client had learnt of it, %s sent new connections on to %s.", holder, to)
	}
	r := flatRow{event: event, holder: next}
	trace := s.segment.Trace()
	for _, v := range segment.Judge(trace, segment.DefaultLimits()) {
		if v.From > at {
			r.problem = v.String()
		}
	}
	if moves {
		r.moved = lastChange(trace) - at
	}
	r.attempts, r.failed, r.outage = s.traffic.sinceMark()
	if r.outage > allowed {
		r.problem = fmt.Sprintf("out for longer than %s", allowed)
	}
	told := fmt.Sprintf("%s keeps the VIP", next)
	if moves {
		told = fmt.Sprintf("%s answered %s later", next, ms(r.moved))
	}
	s.view.say("%s: %s; the client lost %d of %d connections%s.", event, told, r.failed, r.attempts, s.traffic.losses())
	if r.problem != "" {
		s.view.say("PROBLEM: %s", r.problem)
	}
	s.rows = append(s.rows, r)
	return next, ctx.Err()
}

// lastChange is when the last holder had answered for all addresses.
func lastChange(t *segment.Trace) (at time.Duration) {
	for vip := range t.Questions {
		if reigns := t.Reigns(vip, segment.DefaultLimits()); len(reigns) > 0 {
			at = max(at, reigns[len(reigns)-1].First.At)
		}
	}
	return at
}

// summarise prints the table and what the observer has to say, and returns an
// error if anything in it is a problem.
func (s *flatShow) summarise(began time.Time) error {
	s.view.close()
	var err error
	s.view.printf("\n%-28s  %6s  %11s  %18s  %14s  %s\n", "event", "holder", "moved after", "connections failed", "longest outage", "verdict")
	for _, r := range s.rows {
		moved, longest, verdict := "-", "-", "ok"
		if r.moved > 0 {
			moved = ms(r.moved)
		}
		if r.outage > 0 {
			longest = ms(r.outage)
		}
		if r.problem != "" {
			verdict, err = r.problem, errMisbehaved
		}
		s.view.printf("%-28s  %6s  %11s  %18s  %14s  %s\n", r.event, r.holder, moved, fmt.Sprintf("%d of %d", r.failed, r.attempts), longest, verdict)
	}
	trace := s.segment.Trace()
	questions, two := 0, "never"
	for _, q := range trace.Questions {
		questions += len(q)
	}
	for _, v := range segment.Judge(trace, segment.DefaultLimits()) {
		if v.Rule == segment.TwoHolders {
			two, err = v.String(), errMisbehaved
		}
	}
	s.view.printf("\nTwo holders, in the answers to %d questions: %s.\nDone in %s.\n", questions, two, since(began))
	return err
}
