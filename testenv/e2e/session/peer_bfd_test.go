//go:build e2e

package session

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// bfdPeer is FRR's view of a BFD session.
type bfdPeer struct {
	Multihop bool
	Peer     string
	Status   string
	Diag     string `json:"diagnostic"`
	Remote   string `json:"remote-diagnostic"`
	Receive  int    `json:"remote-receive-interval"`
	Transmit int    `json:"remote-transmit-interval"`
}

// bfdOf returns the router's only BFD session.
func bfdOf(t *testing.T, r site.Router) (bfdPeer, error) {
	t.Helper()
	var all []bfdPeer
	if err := r.Show(t, &all, "bfd peers"); err != nil {
		return bfdPeer{}, err
	}
	if len(all) != 1 {
		return bfdPeer{}, fmt.Errorf("%s has %d BFD sessions: %+v", r.Name(), len(all), all)
	}
	return all[0], nil
}

// watchedUp waits until both ends report that the BFD session is up.
func watchedUp(t *testing.T, s *site.Session, router, peer string) (b bfdPeer, p bgp.Session) {
	t.Helper()
	site.Eventually(t, site.Soon, func() (err error) {
		if b, err = bfdOf(t, s.Router(router)); err != nil {
			return err
		}
		if p, err = s.Peer(t, peer); err != nil {
			return err
		}
		if b.Status != "up" || p.BFD == nil || p.BFD.State != bfd.Up {
			return fmt.Errorf("BFD with %s: FRR shows %+v, status shows %+v", peer, b, p.BFD)
		}
		// FRR's bgpd restarts the BFD session once BGP knows the local address.
		up := time.Since(p.BFD.Since)
		return site.ErrorIf(up < time.Second, "BFD with %s is up for %v, want a second", peer, up)
	})
	return b, p
}

// watchedAs checks that both ends monitor a session, over one hop or several, with an
// interval of 300 ms.
func watchedAs(t *testing.T, s *site.Session, router, peer string, multihop bool) {
	t.Helper()
	b, p := watchedUp(t, s, router, peer)
	if b.Multihop != multihop {
		t.Errorf("multihop at FRR: %t, want %t", b.Multihop, multihop)
	}
	if p.BFD.TxInterval.Seconds() != 0.3 || math.Abs(p.BFD.DetectionTime.Seconds()-0.9) > 0.001 {
		t.Errorf("interval %v s, detection time %v s; want 0.3, 0.9", p.BFD.TxInterval.Seconds(), p.BFD.DetectionTime.Seconds())
	}
}

// TestPeerBFDFindsFaults cuts the link in each direction, freezes the speaker and the
// router's forwarding: the route goes long before the hold time of 90 seconds, and
// comes back.
func TestPeerBFDFindsFaults(t *testing.T) {
	s := site.NewSession(t, site.Files{
		"r1.conf": site.RouterConf(64500, watchedRouter+"\n neighbor 10.0.1.1 timers 30 90"),
		"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4}, `
peers:
- {address: 10.0.1.254, asn: 64500, holdTime: 90s, bfd: {interval: 300ms}}
- {address: 10.0.2.254, asn: 64500}`),
	})
	site.Boot(t, s.Lab, "r1", "r2", "s")
	watchedUp(t, s, "r1", "10.0.1.254")
	s.Path(t, "r1", site.VIP4)
	s.Path(t, "r2", site.VIP4)
	link, speaker, routes := s.Link("s", "r1"), s.Node("s"), site.WatchRoutes(t, s.Node("r1"))
	for _, fault := range []struct {
		name       string
		make, undo func() error
		known      bool // herald runs, and can detect the fault
	}{
		{"cut", link.Cut, link.Heal, true},
		{"cut from the speaker", func() error { return link.CutFrom("s") }, link.Heal, true},
		{"cut from the router", func() error { return link.CutFrom("r1") }, link.Heal, true},
		{"speaker frozen", speaker.Freeze, speaker.Thaw, false},
	} {
		t.Run(fault.name, func(t *testing.T) {
			s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
			watchedUp(t, s, "r1", "10.0.1.254")
			s.Path(t, "r1", site.VIP4)
			site.Must(t, fault.make())
			site.Must(t, routes.Gone(t.Context(), site.IP(site.VIP4)))
			if fault.known {
				s.ShowsPeer(t, "10.0.1.254", func(p bgp.Session) error {
					return site.ErrorIf(p.State == "established" || p.BFD == nil || p.BFD.State == bfd.Up || p.BFD.Reason == "",
						"status shows %s, %+v", p.State, p.BFD)
				})
			}
			site.Must(t, fault.undo())
			s.Path(t, "r1", site.VIP4)
			watchedUp(t, s, "r1", "10.0.1.254")
		})
	}
	p := site.Get[bgp.Session](t)(s.Peer(t, "10.0.1.254"))
	// If the router detects the fault first, its notification may arrive before its BFD packet.
	if p.Drops < 4 || p.BFD.Downs < 2 {
		t.Errorf("status counts %d lost sessions, %d of them by BFD; want at least 4 and 2", p.Drops, p.BFD.Downs)
	}
}

// watchedRouter is r1 with a BGP session to s that BFD monitors.
const watchedRouter = `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 timers connect 1
 neighbor 10.0.1.1 bfd 3 300 300`

// TestRouteWaitsForBFD cuts the link and heals it several times: when the router's
// kernel has the route again, BFD is up at both ends, and was before.
func TestRouteWaitsForBFD(t *testing.T) {
	s := newPlainSession(t, watchedRouter, site.SpeakerConf([]string{site.VIP4}, "peers: [{address: 10.0.1.254, asn: 64500, bfd: {interval: 300ms}}]"))
	routes, w := site.WatchRoutes(t, s.Node("r1")), site.StartWitness(t)
	for range 5 {
		watchedUp(t, s, "r1", "10.0.1.254")
		site.Must(t, s.Link("s", "r1").Cut())
		site.Must(t, routes.Gone(t.Context(), site.IP(site.VIP4)))
		routes.Mark()
		healed := time.Now()
		site.Must(t, s.Link("s", "r1").Heal())
		var back time.Time
		site.Eventually(t, site.Soon, func() error {
			back = routes.First(site.IP("10.0.1.1"))
			return site.ErrorIf(back.IsZero(), "r1 has no route to %s", site.VIP4)
		})
		p := site.Get[bgp.Session](t)(s.Peer(t, "10.0.1.254"))
		b := site.Get[bfdPeer](t)(bfdOf(t, s.Router("r1")))
		if p.BFD.State != bfd.Up || p.BFD.Since.After(back) || b.Status != "up" {
			site.FailTiming(t, w.Starved(healed), "the route is back at %v; status shows BFD %s since %v, FRR shows %s", back, p.BFD.State, p.BFD.Since, b.Status)
		}
	}
}

// TestPeerWithoutBFD has a router that never speaks BFD: it gets the route
// nevertheless, after a reported wait, and after its restart, without another wait.
func TestPeerWithoutBFD(t *testing.T) {
	s := newPlainSession(t, site.PlainRouter, site.SpeakerConf([]string{site.VIP4}, "peers: [{address: 10.0.1.254, asn: 64500, bfd: {interval: 300ms}}]"))
	waits := func() (n int) {
		t.Helper()
		site.Eventually(t, site.Soon, func() error {
			log, err := os.ReadFile(s.Node("s").Log())
			if n = strings.Count(string(log), "routes wait for BFD"); n == 0 || !strings.Contains(string(log), "routes are sent without BFD") {
				err = errors.Join(err, fmt.Errorf("the log has %d waits, or an unfinished one", n))
			}
			return err
		})
		p := site.Get[bgp.Session](t)(s.Peer(t, "10.0.1.254"))
		if p.Reason != "" || p.BFD == nil || p.BFD.State == bfd.Up || p.BFD.Reason == "" {
			t.Errorf("status has the reason %q for the session, and BFD %+v", p.Reason, p.BFD)
		}
		return n
	}
	before := waits()
	site.Must(t, s.Node("r1").Kill())
	down(t, s, "10.0.1.254")
	site.Boot(t, s.Lab, "r1")
	s.Path(t, "r1", site.VIP4)
	if now := waits(); now != before {
		t.Errorf("after a restart of the router %d waits, want 0", now-before)
	}
}

// TestPeerBFDReload changes, removes and adds BFD on a session that stays up.
func TestPeerBFDReload(t *testing.T) {
	conf := func(bfd string) string {
		return site.SpeakerConf([]string{site.VIP4}, "peers:\n- {address: 10.0.1.254, asn: 64500"+bfd+"}")
	}
	s := newPlainSession(t, watchedRouter, conf(", bfd: {interval: 300ms}"))
	_, before := watchedUp(t, s, "r1", "10.0.1.254")
	routes := site.WatchRoutes(t, s.Node("r1"))

	inPlace(t, s.Config, conf(", bfd: {interval: 400ms, multiplier: 5}"))
	site.Eventually(t, site.Soon, func() error {
		b, err := bfdOf(t, s.Router("r1"))
		return site.Check(err, b.Status != "up" || b.Transmit != 400, "FRR says %+v", b)
	})
	p := site.Get[bgp.Session](t)(s.Peer(t, "10.0.1.254"))
	if p.BFD.Downs != before.BFD.Downs || p.Drops != before.Drops {
		t.Errorf("a new interval took sessions down: %+v", p)
	}
	routes.Untouched(t)
	inPlace(t, s.Config, conf(""))
	saysGoodbye(t, s)
	inPlace(t, s.Config, conf(", bfd: {interval: 300ms}"))
	watchedUp(t, s, "r1", "10.0.1.254")
	s.Path(t, "r1", site.VIP4) // FRR treated the end of BFD as a fault, against RFC 5882 section 4.2, and ended its session
}

// saysGoodbye waits until r1 has received that BFD ends on purpose.
func saysGoodbye(t *testing.T, s *site.Session) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		b, err := bfdOf(t, s.Router("r1"))
		return site.Check(err, b.Status == "up" || !strings.Contains(b.Remote, "administratively"), "FRR says %+v", b)
	})
}

// TestPeerBFDSaysGoodbye ends the speaker on purpose: the router does not treat that as a fault.
func TestPeerBFDSaysGoodbye(t *testing.T) {
	s := newPlainSession(t, watchedRouter, site.SpeakerConf([]string{site.VIP4}, "peers: [{address: 10.0.1.254, asn: 64500, bfd: {interval: 300ms}}]"))
	watchedUp(t, s, "r1", "10.0.1.254")
	before := site.ReadFile(t, s.Node("s").Log()) // FRR may end a BFD session that has just begun
	site.Must(t, s.Node("s").Daemon("herald").Signal(unix.SIGTERM))
	saysGoodbye(t, s)
	said := func() string { return site.ReadFile(t, s.Node("s").Log())[len(before):] }
	site.Eventually(t, site.Soon, func() error {
		return site.ErrorIf(!strings.Contains(said(), "session closed"), "herald does not say that it closed the session")
	})
	if strings.Contains(said(), "session lost") {
		t.Error("herald treats its own end of BFD as a fault")
	}
}

// TestPeerBFDUnderLoad holds a session of 3 × 10 ms, in real time at both ends, while
// every core is overloaded: it must not go down. It takes BFD_LOAD_TIME, ten seconds
// by default.
func TestPeerBFDUnderLoad(t *testing.T) {
	s := site.NewSession(t, site.Files{
		"r1.conf": site.RouterConf(64500, `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 timers connect 1
 neighbor 10.0.1.1 bfd profile fast
exit
bfd
 profile fast
  detect-multiplier 3
  transmit-interval 10
  receive-interval 10
 exit
exit`),
		"herald/herald.yaml": "realtime: true\n" + site.SpeakerConf([]string{site.VIP4}, `
peers:
- {address: 10.0.1.254, asn: 64500, bfd: {interval: 10ms, multiplier: 3}}`),
	})
	site.Boot(t, s.Lab, "r1", "s")
	bfdd := s.Node("r1").Daemon("bfdd").Pid()
	if out, err := exec.CommandContext(t.Context(), "chrt", "-a", "-f", "-p", "1", strconv.Itoa(bfdd)).CombinedOutput(); err != nil {
		t.Fatalf("put bfdd in real time: %v: %s", err, out)
	}
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	_, before := watchedUp(t, s, "r1", "10.0.1.254")
	if before.BFD.DetectionTime.Seconds() != 0.03 {
		t.Fatalf("the detection time is %v s, want 0.03", before.BFD.DetectionTime.Seconds())
	}

	began, w := time.Now(), site.StartWitness(t)
	measured := site.UnderLoad(t, s.Node("far"), "BFD_LOAD_TIME")
	status := site.Get[admin.Status](t)(s.Status(t))
	if status.Realtime != "on" {
		t.Errorf("real time: %s", status.Realtime)
	}
	if first := realtimeThreads(t, s.Node("s").Daemon("herald").Pid(), 2); first != 1 {
		t.Errorf("%d threads have this priority, want 1 for BFD", first)
	}
	after := status.Peers[0]
	if after.BFD == nil || after.BFD.State != bfd.Up || after.BFD.Downs != before.BFD.Downs || after.Drops != before.Drops {
		site.FailTiming(t, w.Stolen(began), "after %v under load: session %s, %d times lost, BFD %+v", measured, after.State, after.Drops-before.Drops, after.BFD)
	}
	t.Logf("%d packets in and %d out in %v", after.BFD.In-before.BFD.In, after.BFD.Out-before.BFD.Out, measured)
}

// realtimeThreads counts the process's threads with this real-time priority.
func realtimeThreads(t *testing.T, pid int, priority uint32) (n int) {
	t.Helper()
	threads := site.Get[[]os.DirEntry](t)(os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)))
	for _, thread := range threads {
		tid := site.Get[int](t)(strconv.Atoi(thread.Name()))
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy == unix.SCHED_RR && attr.Priority == priority {
			n++
		}
	}
	return n
}
