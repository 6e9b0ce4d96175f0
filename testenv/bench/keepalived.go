package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/testenv/lab"
)

// segment is the running lab of bench-arp.clab.yml, with keepalived on all
// masters. The first master holds the VIP whenever it can.
type segment struct {
	lab   *lab.Lab
	label string
}

// vrrpVIP is the address on the flat layer 2.
const vrrpVIP = "10.3.0.100"

// vrrpConf is what the templates of keepalived know.
type vrrpConf struct {
	Number int
	// Tuned is for speed; otherwise it is as kubeadm's documentation has it.
	Tuned bool
}

func keepalivedName(tuned bool) string {
	if tuned {
		return "keepalived, tuned"
	}
	return "keepalived, kubeadm's"
}

// openSegment boots the lab, its configurations and logs in dir. The caller closes it.
func openSegment(ctx context.Context, o Options, tuned bool, dir string) (*segment, error) {
	templates := filepath.Join(o.Topologies, "bench-arp")
	for _, m := range masterNumbers() {
		own := filepath.Join(dir, masterOf(m))
		if err := fill(templates, "keepalived.conf.tmpl", own, "keepalived.conf", vrrpConf{m, tuned}, 0o644); err != nil {
			return nil, err
		}
		if err := copyFile(filepath.Join(templates, "check_apiserver.sh"), filepath.Join(own, "check_apiserver.sh"), 0o755); err != nil {
			return nil, err
		}
	}
	topology, err := load(filepath.Join(o.Topologies, "bench-arp.clab.yml"), map[string]string{"BENCH_DIR": dir})
	if err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, slog.New(slog.DiscardHandler), topology, lab.Options{Dir: filepath.Join(dir, "logs"), Images: map[string]lab.Image{
		"keepalived":     lab.Binary("/usr/sbin/keepalived", "--dont-fork", "--log-console", "--log-detail"),
		"herald-testenv": lab.Binary(o.Testenv),
	}})
	if err != nil {
		return nil, err
	}
	return &segment{lab: l, label: keepalivedName(tuned)}, nil
}

func (s *segment) close() error { return s.lab.Close() }

// vrrpFault is something that happens to the holder.
type vrrpFault struct {
	name         string
	planned      bool
	identify     bool
	limit        time.Duration
	strike, heal func(context.Context, *lab.Lab) error
}

// vrrpFaults are those that a flat layer 2 has, on the tuned keepalived.
func vrrpFaults() []vrrpFault {
	const speaker = "m1-speaker"
	reboot := func(ctx context.Context, l *lab.Lab) error { return l.Node(speaker).Boot(ctx) }
	return []vrrpFault{
		vrrpKilled(usualLimit),
		{name: "SIGTERM", planned: true,
			strike: func(ctx context.Context, l *lab.Lab) error { return l.Node(speaker).Stop(ctx) }, heal: reboot},
		{name: "speaker killed",
			strike: func(_ context.Context, l *lab.Lab) error { return l.Node(speaker).Kill() }, heal: reboot},
		{name: "speaker frozen",
			strike: func(_ context.Context, l *lab.Lab) error { return l.Node(speaker).Freeze() },
			heal:   func(_ context.Context, l *lab.Lab) error { return l.Node(speaker).Thaw() }},
		{name: powerLoss,
			strike: func(_ context.Context, l *lab.Lab) error { return l.Node("m1").PowerOff() },
			heal:   func(ctx context.Context, l *lab.Lab) error { return l.Node("m1").PowerOn(ctx) }},
	}
}

// vrrpKilled kills the apiserver.
func vrrpKilled(limit time.Duration) vrrpFault {
	const apiserver = "m1-apiserver"
	return vrrpFault{name: apiserverKilled, limit: limit,
		strike: func(_ context.Context, l *lab.Lab) error { return l.Node(apiserver).Kill() },
		heal:   func(ctx context.Context, l *lab.Lab) error { return l.Node(apiserver).Boot(ctx) }}
}

// documentedLimit is enough for kubeadm's documented check: ten failures, 3 s apart.
const documentedLimit = 45 * time.Second

// holders are the masters that have the VIP. One without power has not.
func (s *segment) holders() ([]int, error) {
	var list []int
	for _, m := range masterNumbers() {
		h, err := s.lab.Node(masterOf(m)).Handle()
		if err != nil {
			continue // it is off
		}
		addrs, err := h.AddrList(nil, netlink.FAMILY_V4)
		h.Close()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if a.IP.String() == vrrpVIP {
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// steady waits until the first master alone has the VIP and the client has
// reached it for a while.
func (s *segment) steady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	client := send(ctx, s.lab.Node("c1"), vrrpVIP+":6443", false)
	err := s.settle(ctx, client)
	_, e := client.end()
	return errors.Join(err, e)
}

func (s *segment) settle(ctx context.Context, client *traffic) error {
	var since time.Time
	failed := -1
	for {
		list, err := s.holders()
		if err != nil {
			return err
		}
		now := client.prober.Snapshot().Failed
		if len(list) != 1 || list[0] != 1 || now != failed {
			failed, since = now, time.Now()
		}
		if time.Since(since) > holding {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("the VIP is on the masters %v: %w", list, err)
		}
	}
}

// holding is how long the first master must have held the VIP before a fault.
// Linux believes no gratuitous ARP within a second of a change of its entry
// (net.ipv4.neigh.*.locktime), and a new holder sends them again after a second;
// a fault as early as that would find the client deaf.
const holding = 2500 * time.Millisecond

// settled is when the masters are asked at the earliest, after a fault, who
// holds the VIP: several times as long as the tuned ones take to agree.
const settled = 1500 * time.Millisecond

// trial makes a fault on the first master and returns what the client saw.
func (s *segment) trial(ctx context.Context, f vrrpFault, connections int) (Trial, error) {
	if err := s.steady(ctx); err != nil {
		return Trial{}, fmt.Errorf("before the fault: %w", err)
	}
	client := send(ctx, s.lab.Node("c1"), vrrpVIP+":6443", f.identify)
	t, err := s.measure(ctx, f, connections, client)
	result, e := client.end()
	if err = errors.Join(err, e); err != nil {
		return t, err
	}
	t.tell(result)
	if f.planned {
		return t, nil
	}
	if err := f.heal(ctx, s.lab); err != nil {
		return t, err
	}
	return t, nil
}

// measure makes the fault and returns when the client has seen its effect.
func (s *segment) measure(ctx context.Context, f vrrpFault, connections int, client *traffic) (Trial, error) {
	limit := cmp.Or(f.limit, usualLimit)
	t := Trial{Speaker: s.label, Fault: f.name, Planned: f.planned, Router: NoRouter, Master: masterOf(1), Limit: limit}
	if err := pause(ctx, leadIn); err != nil {
		return t, err
	}
	if client.prober.Snapshot().Failed > 0 {
		return t, errDisturbed
	}
	struck := time.Now()
	if err := f.strike(ctx, s.lab); err != nil {
		return t, err
	}
	if err := pause(ctx, settled); err != nil {
		return t, err
	}
	if err := quiet(ctx, []*traffic{client}, struck.Add(limit)); err != nil {
		return t, err
	}
	list, err := s.holders()
	if err != nil {
		return t, err
	}
	t.Holders = len(list)
	if !f.planned {
		return t, nil
	}
	if err := f.heal(ctx, s.lab); err != nil {
		return t, err
	}
	within, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	if err := s.settle(within, client); err != nil { // the way back counts too
		return t, err
	}
	if err := enough(ctx, []*traffic{client}, connections); err != nil {
		return t, err
	}
	return t, quiet(ctx, []*traffic{client}, time.Now().Add(limit))
}
