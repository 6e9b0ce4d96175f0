package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/segment"
)

// flat is the running lab of bench-arp.clab.yml, with one speaker on all
// masters: one of them at a time has the VIP.
type flat struct {
	lab     *lab.Lab
	speaker flatSpeaker
}

// flatSpeaker is a program that moves the VIP between masters on a flat layer 2.
type flatSpeaker interface {
	// name is what the results call it.
	name() string
	// program is its name in the topology, the folder that it has its configuration in.
	program() string
	// image runs it.
	image() lab.Image
	// configure writes each master's files into the folder of its name in dir.
	configure(templates, dir string) error
	// faults are those that it is measured in.
	faults() []flatFault
	// home is the master that has the VIP whenever it can; empty if there is no such.
	home() string
	// ready returns an error as long as some master could not take the VIP over.
	ready(ctx context.Context, l *lab.Lab) error
}

// lan is the segment.
const lan = "lan"

// flatVIPs are the addresses of the VIP on the flat layer 2.
func flatVIPs() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.3.0.100"), netip.MustParseAddr("fd00:3::100")}
}

// openFlat boots the lab, its configurations and logs in dir. The caller closes it.
func openFlat(ctx context.Context, o Options, s flatSpeaker, dir string) (*flat, error) {
	if err := s.configure(filepath.Join(o.Topologies, "bench-arp"), dir); err != nil {
		return nil, err
	}
	topology, err := load(filepath.Join(o.Topologies, "bench-arp.clab.yml"), map[string]string{
		"BENCH_DIR": dir, "SPEAKER": s.program(), "SPEAKER_IMAGE": "speaker",
	})
	if err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Dir: filepath.Join(dir, "logs"), Images: map[string]lab.Image{
		"speaker":        s.image(),
		"herald-testenv": lab.Binary(o.Testenv),
	}})
	if err != nil {
		return nil, err
	}
	f := &flat{lab: l, speaker: s}
	w, err := f.watch(ctx, false)
	if err == nil {
		err = f.settle(ctx, w)
		_, _, e := w.end()
		err = errors.Join(err, e)
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *flat) close() error { return f.lab.Close() }

// part has the holder hear nothing of the other masters, and they nothing of
// it. Client and observer hear all.
func (f *flat) part(holder string) error {
	return f.lab.Part(lan, []string{holder}, others(holder))
}

// others are the masters besides one.
func others(master string) (list []string) {
	for _, m := range masterNumbers() {
		if name := masterOf(m); name != master {
			list = append(list, name)
		}
	}
	return list
}

// watch is the observer, who sees who answers for the VIP, and a client for each
// of its addresses.
type watch struct {
	seen    *segment.Observer
	clients []*traffic
}

// watch begins to watch. The caller ends it.
func (f *flat) watch(ctx context.Context, identify bool) (*watch, error) {
	target := segment.Target{
		Link: "eth1", VIPs: flatVIPs(), Masters: make(map[string]net.HardwareAddr),
		Senders: []netip.Addr{netip.MustParseAddr("10.3.0.128"), netip.MustParseAddr("fd00:3::80")},
	}
	for _, m := range masterNumbers() {
		target.Masters[masterOf(m)] = f.lab.Link(masterOf(m), lan).MAC(masterOf(m))
	}
	seen, err := segment.Observe(f.lab.Node("o1"), target)
	if err != nil {
		return nil, err
	}
	w := &watch{seen: seen}
	for _, vip := range flatVIPs() {
		w.clients = append(w.clients, send(ctx, f.lab.Node("c1"), net.JoinHostPort(vip.String(), "6443"), identify))
	}
	return w, nil
}

// end ends the watch and returns what came of it.
func (w *watch) end() (results []*probe.Result, trace *segment.Trace, err error) {
	for _, c := range w.clients {
		r, e := c.end()
		results, err = append(results, r), errors.Join(err, e)
	}
	trace = w.seen.Trace()
	return results, trace, errors.Join(err, w.seen.Close())
}

// failed is how many connections have failed so far.
func (w *watch) failed() (n int) {
	for _, c := range w.clients {
		n += c.prober.Snapshot().Failed
	}
	return n
}

// holder is the master that answers for all addresses; empty if there is none.
func (w *watch) holder() string {
	var list []string
	for _, vip := range flatVIPs() {
		m, _ := w.seen.Holder(vip)
		list = append(list, m)
	}
	if list = slices.Compact(list); len(list) > 1 {
		return ""
	}
	return list[0]
}

// moved waits until another master than the holder has claimed all addresses
// since, or until the deadline.
func (w *watch) moved(ctx context.Context, holder string, since time.Duration, deadline time.Time) error {
	for {
		if _, ok := taken(w.seen.Trace(), flatVIPs(), holder, since); ok || time.Now().After(deadline) {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// taken is the time from since until other masters had claimed all these
// addresses, by an answer or an announcement.
func taken(t *segment.Trace, vips []netip.Addr, holder string, since time.Duration) (time.Duration, bool) {
	first := make(map[netip.Addr]time.Duration)
	for _, s := range t.Sightings {
		if _, ok := first[s.VIP]; !ok && s.At >= since && s.Act != segment.Accepts && s.Master != holder && slices.Contains(vips, s.VIP) {
			first[s.VIP] = s.At
		}
	}
	var last time.Duration
	for _, at := range first {
		last = max(last, at-since)
	}
	return last, len(first) == len(vips)
}

// asking is how often the observer asks who has the VIP.
const asking = 10 * time.Millisecond

// settleWithin is how long the segment may take to come to rest. After a cut
// clients have been seen to keep the wrong MAC address for half a minute and more.
const settleWithin = 90 * time.Second

// holding is how long a master must have held the VIP, with no connection
// failing, before a fault. Linux believes no gratuitous ARP within a second of a
// change of its entry (net.ipv4.neigh.*.locktime), and keepalived sends them
// again after a second; a fault as early as that would find the client deaf.
const holding = 2500 * time.Millisecond

// settle waits until one master has answered for the VIP for a while, each
// client has reached it all the time, and all other masters could take over.
func (f *flat) settle(ctx context.Context, w *watch) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	var since time.Time
	var holder string
	failed := -1
	for {
		var notReady error
		who, now := w.holder(), w.failed()
		if who == "" || who != holder || now != failed || f.speaker.home() != "" && who != f.speaker.home() {
			holder, failed, since = who, now, time.Now()
		}
		if time.Since(since) > holding {
			if notReady = f.speaker.ready(ctx, f.lab); notReady == nil {
				return nil
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("the segment did not come to rest; the VIP is on %q: %w", holder, errors.Join(notReady, err))
		}
	}
}
