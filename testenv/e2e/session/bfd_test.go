//go:build e2e

package session

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// bfdSite is the lab of e2e-bfd.clab.yml with a BFD speaker in s.
type bfdSite struct {
	*lab.Lab
	*bfd.Server
	t *testing.T
}

func newBFDSite(t *testing.T) *bfdSite {
	t.Helper()
	s := &bfdSite{
		Lab:    site.StartLab(t, "e2e-bfd.clab.yml", nil),
		Server: bfd.NewServer(site.Log(t), nil),
		t:      t,
	}
	s.Inside(s.Node("s").Do)
	t.Cleanup(s.shutDown)
	site.Boot(t, s.Lab, "frr", "far", "bird")
	return s
}

// shutDown ends the speaker.
func (s *bfdSite) shutDown() {
	ctx, cancel := context.WithTimeout(context.Background(), site.Soon)
	defer cancel()
	site.Must(s.t, s.Server.Close(ctx))
}

// status waits for a status of the session with the peer.
func (s *bfdSite) status(peer, what string, holds func(bfd.Status) bool) {
	s.t.Helper()
	site.Eventually(s.t, site.Soon, func() error {
		st := s.Statuses()[site.IP(peer)]
		if st == nil {
			return fmt.Errorf("no session with %s", peer)
		}
		return site.ErrorIf(!holds(*st), "session with %s is not %s: %+v", peer, what, *st)
	})
}

// bfdView is a router's view of its session with s.
type bfdView struct {
	Up bool
	// Diagnostic is the router's reason why the session is down, Remote the reason
	// received from s. BIRD reports neither.
	Diagnostic string `json:"diagnostic"`
	Remote     string `json:"remote-diagnostic"`
	// The intervals that s advertises, in milliseconds, as FRR shows them.
	Tx         int `json:"remote-transmit-interval"`
	Rx         int `json:"remote-receive-interval"`
	Multiplier int `json:"remote-detect-multiplier"`
	// BIRD's transmit interval and detection time.
	Interval, Timeout string
}

// bfdRouter is the far end of a session.
type bfdRouter interface {
	// configure sets the interval of the router's end, and its multiplier to 3.
	configure(t *testing.T, interval time.Duration)
	// view returns the session with s.
	view(t *testing.T) (bfdView, error)
}

// bfdFRR is a session of an FRR router. Name is as in its configuration.
type bfdFRR struct {
	site.Router
	name string
}

// do enters lines into the session's section.
func (r bfdFRR) do(t *testing.T, lines ...string) {
	t.Helper()
	argv := []string{"vtysh", "-c", "configure terminal", "-c", "bfd", "-c", "peer " + r.name}
	for _, line := range lines {
		argv = append(argv, "-c", line)
	}
	site.MustRun(t, r.Node, argv...)
}

func (r bfdFRR) configure(t *testing.T, interval time.Duration) {
	t.Helper()
	ms := interval.Milliseconds()
	r.do(t, fmt.Sprintf("receive-interval %d", ms), fmt.Sprintf("transmit-interval %d", ms))
}

func (r bfdFRR) view(t *testing.T) (bfdView, error) {
	t.Helper()
	var v struct {
		bfdView
		Status string `json:"status"`
	}
	err := r.Show(t, &v, "bfd peer %s", r.name)
	v.Up = v.Status == "up"
	return v.bfdView, err
}

// bfdBIRD is a session of the BIRD router.
type bfdBIRD struct {
	*lab.Node
	address string // of s
}

func (r bfdBIRD) configure(t *testing.T, interval time.Duration) {
	t.Helper()
	edit := fmt.Sprintf("s/interval [0-9]* ms/interval %d ms/", interval.Milliseconds())
	site.Eventually(t, site.Soon, func() error { // it may be about to start
		_, err := site.Run(t, r.Node, "sh", "-c", fmt.Sprintf("sed '%s' /etc/bird/bird.conf > /tmp/bird.conf && birdc -s /run/bird.ctl 'configure \"/tmp/bird.conf\"'", edit))
		return err
	})
}

func (r bfdBIRD) view(t *testing.T) (bfdView, error) {
	t.Helper()
	out, err := site.Run(t, r.Node, "birdc", "-s", "/run/bird.ctl", "show bfd sessions")
	for line := range strings.Lines(out) {
		// Address, interface, state, since, interval, timeout.
		if f := strings.Fields(line); len(f) == 6 && f[0] == r.address {
			return bfdView{Up: f[2] == "Up", Interval: f[4], Timeout: f[5]}, nil
		}
	}
	return bfdView{}, fmt.Errorf("BIRD shows no session with %s: %w:\n%s", r.address, err, out)
}

// bfdSession is a kind of session between s and a router.
type bfdSession struct {
	name   string
	node   string
	link   [2]string // of the session
	config bfd.Config
	router func(*lab.Node) bfdRouter
}

func bfdTo(peer string) bfd.Config {
	return bfd.Config{Peer: site.IP(peer), Interval: 100 * time.Millisecond, Multiplier: 5}
}

func bfdOver(peer, local string) bfd.Config {
	c := bfdTo(peer)
	c.Local, c.Multihop, c.MinTTL = site.IP(local), true, 254
	return c
}

func frrPeer(name string) func(*lab.Node) bfdRouter {
	return func(n *lab.Node) bfdRouter { return bfdFRR{site.Router{Node: n}, name} }
}

func birdPeer(address string) func(*lab.Node) bfdRouter {
	return func(n *lab.Node) bfdRouter { return bfdBIRD{Node: n, address: address} }
}

var bfdSessions = []bfdSession{
	{"FRR IPv4", "frr", [2]string{"s", "frr"}, bfdTo("10.0.1.254"), frrPeer("10.0.1.1")},
	{"FRR IPv6", "frr", [2]string{"s", "frr"}, bfdTo("fd00:1::254"), frrPeer("fd00:1::1 local-address fd00:1::254")},
	{"FRR link-local", "frr", [2]string{"s", "frr"}, bfdTo("fe80::ff:fe00:b%eth1"), frrPeer("fe80::ff:fe00:a interface eth1")},
	{"FRR multihop IPv4", "far", [2]string{"frr", "far"}, bfdOver("10.0.3.1", "10.0.1.1"), frrPeer("10.0.1.1 multihop local-address 10.0.3.1")},
	{"FRR multihop IPv6", "far", [2]string{"frr", "far"}, bfdOver("fd00:3::1", "fd00:1::1"), frrPeer("fd00:1::1 multihop local-address fd00:3::1")},
	{"BIRD IPv4", "bird", [2]string{"s", "bird"}, bfdTo("10.0.2.254"), birdPeer("10.0.2.1")},
	{"BIRD IPv6", "bird", [2]string{"s", "bird"}, bfdTo("fd00:2::254"), birdPeer("fd00:2::1")},
}

// TestBFD brings up every kind of session with FRR and BIRD, slows each end down, cuts
// the link in every way, and shuts the session down.
func TestBFD(t *testing.T) {
	for _, test := range bfdSessions {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, began, w := newBFDSite(t), time.Now(), site.StartWitness(t)
			r := test.router(s.Node(test.node))
			peer, c := test.config.Peer.String(), test.config
			view := func(what string, holds func(bfdView) bool) {
				t.Helper()
				site.Eventually(t, site.Soon, func() error {
					v, err := r.view(t)
					return site.Check(err, !holds(v), "the router's session is not %s: %+v", what, v)
				})
			}
			up := func() {
				t.Helper()
				s.status(peer, "up", func(st bfd.Status) bool { return st.State == bfd.Up && st.Remote == bfd.Up && !st.Failed })
				view("up", func(v bfdView) bool { return v.Up })
			}
			_, bird := r.(bfdBIRD)

			r.configure(t, 100*time.Millisecond)
			site.Must(t, s.Apply([]bfd.Config{c}))
			up()

			// First the router is slower, then this end; no session goes down.
			r.configure(t, 300*time.Millisecond)
			s.status(peer, "as slow as the router", func(st bfd.Status) bool {
				return time.Duration(st.TxInterval) == 300*time.Millisecond && time.Duration(st.DetectionTime) == 900*time.Millisecond
			})
			c.Interval = 400 * time.Millisecond
			site.Must(t, s.Apply([]bfd.Config{c}))
			s.status(peer, "slow", func(st bfd.Status) bool {
				return time.Duration(st.TxInterval) == 400*time.Millisecond && time.Duration(st.DetectionTime) == 1200*time.Millisecond
			})
			view("informed of the slower interval", func(v bfdView) bool {
				if bird {
					return v.Interval == "0.400" && v.Timeout == "2.000"
				}
				return v.Tx == 400 && v.Rx == 400 && v.Multiplier == 5
			})
			c.Interval = 100 * time.Millisecond
			site.Must(t, s.Apply([]bfd.Config{c}))
			r.configure(t, 100*time.Millisecond)
			s.status(peer, "fast again", func(st bfd.Status) bool {
				return time.Duration(st.TxInterval) == 100*time.Millisecond && time.Duration(st.DetectionTime) == 300*time.Millisecond
			})
			if st := s.Statuses()[c.Peer]; st.Downs > 0 {
				site.FailTiming(t, w.Starved(began), "a change of an interval took the session down: %+v", *st)
			}

			link := s.Link(test.link[0], test.link[1])
			for _, cut := range []struct {
				name string
				cut  func() error
				// the diagnostics of s and of the router
				here bfd.Diagnostic
				far  string
			}{
				{"packets from the router are lost", func() error { return link.CutFrom(test.link[1]) }, bfd.DetectionTimeExpired, "neighbor signaled session down"},
				{"packets from s are lost", func() error { return link.CutFrom(test.link[0]) }, bfd.NeighborSignaledDown, "control detection time expired"},
				{"both are lost", link.Cut, bfd.DetectionTimeExpired, "control detection time expired"},
			} {
				site.Must(t, cut.cut())
				s.status(peer, "failed when "+cut.name, func(st bfd.Status) bool {
					return st.State != bfd.Up && st.Failed && st.Diagnostic == cut.here
				})
				view("down when "+cut.name, func(v bfdView) bool { return !v.Up && (bird || v.Diagnostic == cut.far) })
				site.Must(t, link.Heal())
				up()
			}

			if frr, ok := r.(bfdFRR); ok {
				frr.do(t, "shutdown")
				s.status(peer, "shut down by the router", func(st bfd.Status) bool {
					return st.State == bfd.Down && st.Remote == bfd.AdminDown && !st.Failed && st.Reason == "the peer has shut the session down"
				})
				frr.do(t, "no shutdown")
				up()
			}
			s.shutDown()
			view("shut down by s", func(v bfdView) bool {
				return !v.Up && (bird || v.Diagnostic == "neighbor signaled session down" && v.Remote == "administratively down")
			})
		})
	}
}
