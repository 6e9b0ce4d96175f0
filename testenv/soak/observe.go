package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/routes"
	"github.com/herald-vip/herald/testenv/step"
)

// look is the witness's polling interval. The kernel reports most route changes at
// once, but not, for example, a route's loss of next hops with a link.
const look = 50 * time.Millisecond

// allSigns is the number of signs when everything is announced: a route per router,
// master and family, and an address per master and family.
const allSigns = 3 * 2 * (2 + 1)

// bgpWitness watches the routers' routes and the masters' addresses.
type bgpWitness struct {
	stallWatch
	site   *site
	limits Limits
}

func (w *bgpWitness) start(ctx context.Context) error {
	w.watchStalls(ctx)
	for _, name := range routers {
		if err := w.watchRoutes(ctx, w.site.Node(name)); err != nil {
			return fmt.Errorf("routes of %s: %w", name, err)
		}
	}
	for _, name := range masters {
		w.every(ctx, look, nil, func() error { return w.look("addresses of "+name, func() { w.addresses(w.site.Node(name)) }) })
	}
	return nil
}

// moment is how long the state must be good before it counts as recovered.
const moment = 2 * time.Second

// awaitRecovery waits until everything is announced and stays so for a moment.
func (w *bgpWitness) awaitRecovery(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n, changed := w.rec.present()
		var quiet <-chan time.Time
		if n == allSigns {
			quiet = time.After(moment)
		}
		select {
		case <-changed:
		case <-quiet:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%d of %d routes and addresses are present: %w", n, allSigns, ctx.Err())
		}
	}
}

func (w *bgpWitness) Move(_ string, change func() error) error { return change() }
func (w *bgpWitness) holder(context.Context) (string, error)   { return "", nil }
func (w *bgpWitness) check(t *Trace) []Violation               { return Check(t, w.limits) }
func (w *bgpWitness) Close() error                             { return nil }

func (w *bgpWitness) report(r *Report) {
	r.Judged, r.Due = Judged(r.Trace, w.limits), Due(r.Trace, w.limits)
}

// watchRoutes follows the kernel's routes on a router until ctx ends.
func (w *bgpWitness) watchRoutes(ctx context.Context, n *lab.Node) error {
	ways, err := waysOf(n)
	if err != nil {
		return err
	}
	wake := make(chan struct{}, 1)
	watch, err := routes.Follow(n, netip.Prefix{}, func(routes.Change) {
		select {
		case wake <- struct{}{}:
		default: // a look is pending already
		}
	})
	if err != nil {
		return err
	}
	w.Go(func() error {
		<-ctx.Done()
		return watch.Close()
	})
	w.every(ctx, look, wake, func() error { return w.look("routes of "+n.Name(), func() { w.routes(n, ways) }) })
	return nil
}

// look calls read, and takes an interrupted dump of the kernel for no error: the next look
// follows soon.
func (w *bgpWitness) look(what string, read func()) error {
	err := step.Run(func() { step.Named(what, read) })
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// waysOf returns the masters at the far ends of a router's links, by the
// links' indexes: interface ethI leads to master mI.
func waysOf(n *lab.Node) (map[int]string, error) {
	ways := make(map[int]string)
	return ways, step.Run(func() {
		h := step.Get(n.Handle())
		defer h.Close()
		for _, l := range step.Get(h.LinkList()) {
			if m := "m" + strings.TrimPrefix(l.Attrs().Name, "eth"); slices.Contains(masters, m) {
				ways[l.Attrs().Index] = m
			}
		}
	})
}

// routes records the masters that a router's routes to the VIP lead to.
func (w *bgpWitness) routes(n *lab.Node, ways map[int]string) {
	h := step.Get(n.Handle())
	defer h.Close()
	here := make(map[Sign]bool)
	for _, vip := range w.site.vips() {
		to := &netlink.Route{Dst: netlink.NewIPNet(vip.AsSlice())}
		for _, route := range step.Get(h.RouteListFiltered(nl.GetIPFamily(vip.AsSlice()), to, netlink.RT_FILTER_DST)) {
			hops := route.MultiPath
			if route.LinkIndex != 0 {
				hops = append(hops, &netlink.NexthopInfo{LinkIndex: route.LinkIndex, Flags: route.Flags})
			}
			for _, hop := range hops {
				master, ok := ways[hop.LinkIndex]
				if ok && hop.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) == 0 {
					here[Sign{Router: n.Name(), Master: master, Family: familyOf(vip)}] = true
				}
			}
		}
	}
	w.rec.see(n.Name(), "", here)
}

// addresses records which addresses of the VIP a master has.
func (w *bgpWitness) addresses(n *lab.Node) {
	here := make(map[Sign]bool)
	if h, err := n.Handle(); err == nil { // the node has power
		defer h.Close()
		for _, a := range step.Get(h.AddrList(nil, netlink.FAMILY_ALL)) {
			for _, vip := range w.site.vips() {
				if a.IP.Equal(vip.AsSlice()) {
					here[Sign{Master: n.Name(), Family: familyOf(vip)}] = true
				}
			}
		}
	}
	w.rec.see("", n.Name(), here)
}

// figure is a metric of a speaker's process.
type figure struct {
	name, metric string
	// share and more bound its growth between the first and the last quarter of a
	// process's samples. Without a share there is no bound.
	share, more float64
}

func figures() []figure {
	return []figure{
		{"goroutines", "go_goroutines", 1, 5},
		{"descriptors", "process_open_fds", 1, 5},
		// The heap size at which the next collection is due: twice the live heap, without
		// garbage not yet collected.
		{"heap", "go_memstats_next_gc_bytes", 1.2, 5 << 20},
		{"resident", "process_resident_memory_bytes", 0, 0},
	}
}

// Sample is the resource usage of a speaker's process at a quiet moment, by metric.
type Sample struct {
	At      time.Duration      `json:"atNs"`
	Master  string             `json:"master"`
	PID     int                `json:"pid"`
	Figures map[string]float64 `json:"figures"`
}

// measure reads a speaker's own metrics.
func measure(ctx context.Context, n *lab.Node) (s Sample, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9474/metrics", nil)
	if err != nil {
		return s, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	s.PID = n.Daemons()[0].Pid()
	s.Figures, err = parse(resp.Body)
	return s, err
}

// parse reads the figures from a page of metrics.
func parse(page io.Reader) (map[string]float64, error) {
	shown := make(map[string]string)
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		shown[name] = value
	}
	values := make(map[string]float64)
	for _, f := range figures() {
		text, ok := shown[f.metric]
		if !ok {
			return nil, fmt.Errorf("metric %s: not exported", f.metric)
		}
		var err error
		if values[f.metric], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("metric %s: %w", f.metric, err)
		}
	}
	return values, lines.Err()
}

// fewest is the number of samples of a process that show a trend.
const fewest = 4

// Growth holds the medians of the first and the last quarter of a process's samples.
type Growth struct {
	Master  string `json:"master"`
	PID     int    `json:"pid"`
	Samples int    `json:"samples"`
	First   Sample `json:"first"`
	Last    Sample `json:"last"`
}

// Grow returns the growth of each process that has enough samples.
func Grow(samples []Sample) []Growth {
	var list []Growth
	for len(samples) > 0 {
		first := samples[0]
		others := func(s Sample) bool { return s.Master != first.Master || s.PID != first.PID }
		own := slices.DeleteFunc(slices.Clone(samples), others)
		samples = slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return !others(s) })
		if len(own) >= fewest {
			quarter := max(len(own)/4, 1)
			list = append(list, Growth{first.Master, first.PID, len(own), median(own[:quarter]), median(own[len(own)-quarter:])})
		}
	}
	return list
}

// median returns a sample with the median of each figure.
func median(samples []Sample) Sample {
	m := samples[0]
	m.Figures = maps.Clone(m.Figures)
	for metric := range m.Figures {
		var values []float64
		for _, s := range samples {
			values = append(values, s.Figures[metric])
		}
		slices.Sort(values)
		m.Figures[metric] = values[len(values)/2]
	}
	return m
}

// CheckGrowth reports each process that grew beyond its bound.
func CheckGrowth(samples []Sample) (found []Violation) {
	for _, g := range Grow(samples) {
		for _, f := range figures() {
			first, last := g.First.Figures[f.metric], g.Last.Figures[f.metric]
			if f.share > 0 && last > first*f.share+f.more {
				what := fmt.Sprintf("speaker of %s, process %d: %s grew from %.0f to %.0f, in %d samples", g.Master, g.PID, f.name, first, last, g.Samples)
				found = append(found, Violation{At: g.Last.At, Rule: Grown, Reason: what})
			}
		}
	}
	return found
}
