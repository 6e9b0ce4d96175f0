package soak

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

//go:embed herald.yaml.tmpl
var heraldTemplate string

// Names in bgp.clab.yml.
var (
	masters = []string{"m1", "m2", "m3"}
	routers = []string{"r1", "r2"}
)

// lan is the bridge of the flat topology, at the far end of each master's link.
const lan = "lan"

// stranger is the node that has the VIP by mistake. It is the observer's node, but its
// kernel does not receive the observer's probes.
const stranger = "o1"

// vips returns the VIP's addresses, IPv4 first.
func (o *Options) vips() []netip.Addr {
	if o.Flat {
		return []netip.Addr{netip.MustParseAddr("10.4.0.10"), netip.MustParseAddr("fd00:4::10")}
	}
	return []netip.Addr{netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("fd00:99::10")}
}

// speakerConfig holds the variable parts of a speaker's configuration.
type speakerConfig struct {
	Index     int // of the master
	MED       int
	Community string
	BFD       time.Duration // the interval; zero for no BFD
	Flat      bool
	Lease     time.Duration
	// Join makes the masters join each other. Otherwise they are listed, except Removed,
	// and with Moved at another address.
	Join, Begin    bool
	Removed, Moved string
}

// change applies a fault's change.
func (c *speakerConfig) change(f Fault) {
	switch f.Kind {
	case MEDRaised:
		c.MED = 100
	case Recoloured:
		c.Community = "64512:200"
	case BadFile:
		c.Community = "no community"
	case MemberRemoved:
		c.Removed = f.Master
	case MemberMoved:
		c.Moved = f.Master
	case LeaseDoubled:
		c.Lease *= 2
	}
}

// Bind returns the master's own address in the election.
func (c speakerConfig) Bind() string { return c.address(masters[c.Index-1]) }

func (c speakerConfig) address(master string) string {
	if master == c.Moved {
		return movedTo(master) + ":7946"
	}
	return "10.4.0." + master[1:] + ":7946"
}

// movedTo returns the address that a master of the flat topology moves to.
func movedTo(master string) string { return "10.4.0.2" + master[1:] }

// Members returns the electorate as a YAML value.
func (c speakerConfig) Members() string {
	var list []string
	for _, m := range masters {
		if m != c.Removed || m == masters[c.Index-1] {
			list = append(list, fmt.Sprintf("%s: %q", m, c.address(m)))
		}
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// write renders the configuration to a file.
func (c speakerConfig) write(path string) error {
	var b bytes.Buffer
	err := template.Must(template.New("herald.yaml").Parse(heraldTemplate)).Execute(&b, c)
	return errors.Join(err, os.WriteFile(path, b.Bytes(), 0o644))
}

// site is the lab of a run, with its own configurations.
type site struct {
	*lab.Lab
	Options
}

// newSite lays out the topology and boots no node.
func newSite(ctx context.Context, o Options) *site {
	topology := step.Get(clab.Load(o.Topology))
	s := &site{Options: o}
	for i := range topology.Nodes {
		n := &topology.Nodes[i]
		step.Named("node "+n.Name, func() { s.adapt(n) })
	}
	s.Lab = step.Get(lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Hold: true, Dir: o.Dir, Images: map[string]lab.Image{
		"quay.io/frrouting/frr": lab.FRR,
		"herald":                speaker(o.Herald),
		"herald-testenv":        lab.Binary(o.Testenv),
	}}))
	return s
}

func (s *site) client() *lab.Node {
	if s.Flat {
		return s.Node("c1")
	}
	return s.Node("client")
}

// speaker returns the image of the binary under test, which is up once it answers its command
// line.
func speaker(path string) lab.Image {
	return func(n clab.Node) (lab.Program, error) {
		p, err := lab.Binary(path)(n)
		if err == nil {
			p.Daemons[0].Socket = "/run/herald/herald.sock"
		}
		return p, err
	}
}

// adapt gives a speaker the soak's configuration and makes it report data races only
// in its log. It enables BFD on a router if the speakers have it.
func (s *site) adapt(n *clab.Node) {
	switch {
	case n.Image == "herald" || strings.HasPrefix(n.Image, "herald:"):
		dir := s.config(n.Base)
		disk := filepath.Join(s.Dir, "disks", n.Base) // survives a power cut
		step.Do(errors.Join(os.RemoveAll(disk), os.MkdirAll(disk, 0o755), os.MkdirAll(dir, 0o755)))
		if s.Flat {
			key := step.Get(os.ReadFile(filepath.Join(n.Binds[0].Source, "gossip.key")))
			step.Do(os.WriteFile(filepath.Join(dir, "gossip.key"), key, 0o600))
		}
		n.Binds = []clab.Bind{{Source: dir, Target: "/etc/herald", ReadOnly: !s.Flat}, {Source: disk, Target: "/var/lib/herald"}}
		n.Env = map[string]string{"GORACE": "exitcode=0"}
		c := s.speakerConfig(n.Base)
		c.Begin = n.Base == masters[0]
		step.Do(c.write(filepath.Join(dir, "herald.yaml")))
	case slices.Contains(routers, n.Name):
		i := slices.IndexFunc(n.Binds, func(b clab.Bind) bool { return b.Target == "/etc/frr/frr.conf" })
		own := s.config(n.Name) + ".conf"
		step.Do(s.routerConfig(n.Binds[i].Source, own))
		n.Binds[i].Source = own
	}
}

// config returns the folder of a master's configuration.
func (s *site) config(master string) string { return filepath.Join(s.Dir, "configs", master) }

// speakerConfig returns the configuration of a master's speaker once all have joined;
// the first master also starts with bootstrap.
func (s *site) speakerConfig(master string) speakerConfig {
	return speakerConfig{Index: int(master[1] - '0'), Community: "64512:100", BFD: s.BFD, Flat: s.Flat, Lease: s.Lease, Join: s.Join}
}

// routerConfig copies a router's configuration and adds BFD if the speakers have it,
// and routes without next hop objects. zebra 8.4 loses track of the kernel's next hop
// objects when links flap, and then does not reinstall a route.
func (s *site) routerConfig(src, dst string) error {
	data, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("no zebra nexthop kernel enable\n")
	for line := range strings.Lines(string(data)) {
		b.WriteString(line)
		if f := strings.Fields(line); s.BFD > 0 && len(f) == 4 && f[0] == "neighbor" && f[2] == "remote-as" {
			fmt.Fprintf(&b, " neighbor %s bfd 3 %d %[2]d\n", f[1], s.BFD.Milliseconds())
		}
	}
	return os.WriteFile(dst, []byte(b.String()), 0o644)
}

// unheldFor bounds how long after the last fault was mended the VIP of the flat topology
// may lack a holder.
const unheldFor = 5 * time.Second

// flatWitness observes from the link, and reads the masters' kernels.
type flatWitness struct {
	stallWatch
	*holders.Observer
	site  *site
	lease time.Duration
	// offset is the observer's clock when the recorder's began.
	offset time.Duration

	looking sync.Mutex     // guards the fields below
	looks   map[string]int // by stage
	found   []Violation
}

func (w *flatWitness) start(ctx context.Context) error {
	w.watchStalls(ctx)
	for _, m := range masters {
		w.watchKernel(ctx, m)
	}
	return nil
}

// awaitRecovery waits until all masters can have recovered and one of them holds the VIP.
func (w *flatWitness) awaitRecovery(ctx context.Context) error {
	pause(ctx, unheldFor)
	_, err := w.holder(ctx)
	return err
}

func (w *flatWitness) holder(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return w.Await(ctx)
}

// report adds the observer's counts to r.
func (w *flatWitness) report(r *Report) {
	seen := w.Trace()
	r.Looks, r.Strangers = w.looks, seen.Strangers
	for _, vip := range w.site.vips() {
		r.Questions += len(seen.Questions[vip])
		r.Holders += max(0, len(seen.Reigns(vip, holders.DefaultLimits()))-1)
	}
	for _, s := range seen.Observations {
		if s.Act == holders.Answers {
			r.Answers++
		}
	}
}

// check returns the violations that the observer and the kernel readings show.
func (w *flatWitness) check(t *Trace) (found []Violation) {
	seen := w.Trace()
	for _, v := range holders.Judge(seen, holders.DefaultLimits()) {
		at := v.From - w.offset
		found = append(found, Violation{at, Rule(v.Rule), v.String(), slices.Concat(faultsAround(t, at), v.Around)})
	}
	for _, vip := range w.site.vips() {
		for _, gap := range w.unheld(t, seen.Silences(vip, silent)) {
			found = append(found, Violation{gap.From, Missing, fmt.Sprintf("no master answers for %s until %s, although no fault explains it", vip, clock(gap.To)), faultsAround(t, gap.From)})
		}
	}
	w.looking.Lock()
	for _, v := range w.found {
		v.Around = faultsAround(t, v.At)
		found = append(found, v)
	}
	w.looking.Unlock()
	return inOrder(append(found, t.mishaps(func(s Span) bool { return w.starved(t, s) })...))
}

// faultsAround lists the faults that were active shortly before an instant.
func faultsAround(t *Trace, at time.Duration) (lines []string) {
	const before = 8 * time.Second
	for _, i := range t.Incidents {
		if i.Began <= at && (i.Mended == Never || i.Mended > at-before) {
			lines = append(lines, i.String())
		}
	}
	return lines
}

// starved reports whether this process did not run for a quarter of a lease during the
// span. A speaker may then have stalled too, and lost its lease rightly.
func (w *flatWitness) starved(t *Trace, s Span) bool {
	return t.stalled(Span{s.From - moment, s.To}) > w.lease/4
}

// silent is the number of consecutive unanswered probes that count as a silence.
const silent = 10

// unheld returns the silences, by the recorder's clock, while the VIP needed a holder.
// Then all masters were up, no fault was active or recent, and the machine was not too
// busy.
func (w *flatWitness) unheld(t *Trace, silences []holders.Silence) (gaps []Span) {
	excuses := []Span{{0, t.Ready}}
	for _, i := range t.Incidents {
		excuses = append(excuses, Span{i.Began, later(i.Mended, unheldFor)})
	}
	due := without(Span{0, t.End}, excuses)
	for _, s := range silences {
		gaps = append(gaps, common(due, Span{s.From - w.offset, s.To - w.offset})...)
	}
	return slices.DeleteFunc(gaps, func(gap Span) bool { return w.starved(t, gap) })
}
