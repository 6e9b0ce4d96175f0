package bgp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	gobgp "github.com/osrg/gobgp/v4/pkg/server"
	"go.uber.org/goleak"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/wait"
)

// router is a BGP router on a loopback address. It waits for connections and records received updates.
type router struct {
	addr   netip.Addr
	port   uint16
	server *gobgp.BgpServer

	mu      sync.Mutex
	updates []string // "+10.0.0.1/32" and "-10.0.0.1/32"
	downs   int
}

func startRouter(t *testing.T, address string, asn, speakerASN uint32) *router {
	t.Helper()
	const port = 11790
	r := &router{addr: netip.MustParseAddr(address), port: port, server: gobgp.NewBgpServer()}
	go r.server.Serve()
	ctx := t.Context()
	must(t, r.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: asn, RouterId: address, ListenPort: port, ListenAddresses: []string{address},
	}}))
	must(t, r.server.AddPeer(ctx, &api.AddPeerRequest{Peer: &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: "127.0.0.1", PeerAsn: speakerASN},
		Transport: &api.Transport{PassiveMode: true},
		Timers:    &api.Timers{Config: &api.TimersConfig{HoldTime: 9, KeepaliveInterval: 3, IdleHoldTimeAfterReset: 1}},
	}}))
	must(t, r.server.WatchEvent(ctx, gobgp.WatchEventMessageCallbacks{
		OnPathUpdate: func(paths []*apiutil.Path, _ time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, p := range paths {
				sign := "+"
				if p.Withdrawal {
					sign = "-"
				}
				r.updates = append(r.updates, sign+p.Nlri.String())
			}
		},
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if e.Type == apiutil.PEER_EVENT_STATE && e.Peer.State.SessionState == packet.BGP_FSM_IDLE {
				r.downs++
			}
		},
	}, gobgp.WatchUpdate(false, "", ""), gobgp.WatchPeer()))
	t.Cleanup(r.server.Stop)
	return r
}

// announce makes the router send a route of its own.
func (r *router) announce(t *testing.T, p netip.Prefix) {
	t.Helper()
	nlri, err := packet.NewIPAddrPrefix(p)
	must(t, err)
	hop, err := packet.NewPathAttributeNextHop(r.addr)
	must(t, err)
	_, err = r.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{{
		Family: packet.RF_IPv4_UC, Nlri: nlri,
		Attrs: []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(0), hop},
	}}})
	must(t, err)
}

// history returns the received updates, and how often the session went down.
func (r *router) history() (updates []string, downs int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.updates), r.downs
}

// forget empties the record of received updates.
func (r *router) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates = nil
}

func (r *router) peer(asn uint32) v1alpha1.Peer {
	return v1alpha1.Peer{Address: r.addr, ASN: v1alpha1.ASN(asn), Port: r.port, LocalAddress: netip.MustParseAddr("127.0.0.1"), HoldTime: metav1.Duration{Duration: 9 * time.Second}, Families: []v1alpha1.Family{v1alpha1.IPv4}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func session(s *bgp.Server, peer string) bgp.Session {
	for _, x := range s.Sessions() {
		if x.Name == peer {
			return x
		}
	}
	return bgp.Session{}
}

func newServer(t *testing.T) *bgp.Server { return newServerWith(t, bgp.Options{}) }

func newServerWith(t *testing.T, options bgp.Options) *bgp.Server {
	t.Helper()
	s := bgp.New(slog.New(slog.NewTextHandler(t.Output(), nil)), options)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx, "test is over"); err != nil {
			t.Error(err)
		}
	})
	return s
}

func config(peers ...v1alpha1.Peer) bgp.Config {
	return bgp.Config{ASN: 64512, RouterID: netip.MustParseAddr("10.0.0.1"), ConnectRetry: 2 * time.Second, Peers: peers}
}

func prefix(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, 0, byte(i)}), 32)
}

// Adding, changing and removing peers and routes does not affect other sessions and routes: a router that stays
// receives only changes of its routes.
func TestApplyTouchesOnlyWhatChanged(t *testing.T) {
	stays, comes := startRouter(t, "127.0.0.2", 64500, 64512), startRouter(t, "127.0.0.3", 64500, 64512)
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(stays.peer(64500))))
	must(t, s.Announce(bgp.Route{Prefix: prefix(1)}))
	wait.Until(t, "the first route arrives", func() bool { got, _ := stays.history(); return slices.Equal(got, []string{"+10.99.0.1/32"}) })

	must(t, s.Apply(t.Context(), config(stays.peer(64500), comes.peer(64500))))
	wait.Until(t, "the second router has the route", func() bool { got, _ := comes.history(); return slices.Equal(got, []string{"+10.99.0.1/32"}) })
	must(t, s.Announce(bgp.Route{Prefix: prefix(1)}, bgp.Route{Prefix: prefix(2)}))
	wait.Until(t, "both have the second", func() bool {
		a, _ := stays.history()
		b, _ := comes.history()
		return len(a) == 2 && len(b) == 2
	})

	// New attributes for one peer: only its routes are sent again, in the same session.
	changed := comes.peer(64500)
	med := uint32(30)
	changed.Attributes.MED = &med
	must(t, s.Apply(t.Context(), config(stays.peer(64500), changed)))
	wait.Until(t, "the changed peer gets both routes again", func() bool { got, _ := comes.history(); return len(got) == 4 })
	must(t, s.Apply(t.Context(), config(stays.peer(64500))))
	wait.Until(t, "the removed peer's session falls", func() bool { _, downs := comes.history(); return downs == 1 })
	must(t, s.Withdraw(prefix(2), prefix(77)))
	wait.Until(t, "the withdrawal arrives", func() bool { got, _ := stays.history(); return slices.Contains(got, "-10.99.0.2/32") })

	got, downs := stays.history()
	if want := []string{"+10.99.0.1/32", "+10.99.0.2/32", "-10.99.0.2/32"}; !slices.Equal(got, want) || downs != 0 {
		t.Errorf("the peer that stayed received %q and its session fell %d times, want %q and 0", got, downs, want)
	}
	if x := session(s, "127.0.0.2"); x.State != bgp.Established || !slices.Equal(x.Advertised, []netip.Prefix{prefix(1)}) {
		t.Errorf("session: %+v", x)
	}
}

func TestApplyRefusesChangesThatNeedARestart(t *testing.T) {
	s := newServer(t)
	must(t, s.Apply(t.Context(), config()))
	other := config()
	other.ASN = 64513
	if err := s.Apply(t.Context(), other); !errors.Is(err, bgp.ErrRestart) || !strings.Contains(err.Error(), "asn") {
		t.Errorf("got %v", err)
	}
}

// A lost session and its routes come back well before the sum of GoBGP's idle time and connect-retry time.
func TestLostSessionComesBack(t *testing.T) {
	r := startRouter(t, "127.0.0.2", 64500, 64512)
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(r.peer(64500))))
	must(t, s.Announce(bgp.Route{Prefix: prefix(1)}))
	wait.Until(t, "the route is there", func() bool { got, _ := r.history(); return len(got) > 0 })
	r.forget()
	must(t, r.server.ResetPeer(t.Context(), &api.ResetPeerRequest{Address: "127.0.0.1", Communication: "rebooting"}))
	wait.Until(t, "the reason is known", func() bool {
		x := session(s, "127.0.0.2")
		return x.Drops == 1 && strings.Contains(x.Reason, `the peer says "rebooting"`)
	})
	wait.Until(t, "the route is back", func() bool {
		got, _ := r.history()
		return session(s, "127.0.0.2").State == bgp.Established && slices.Contains(got, "+"+prefix(1).String())
	})
}

func TestWrongASNIsNamed(t *testing.T) {
	r := startRouter(t, "127.0.0.2", 64500, 64512)
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(r.peer(64999))))
	wait.Until(t, "the reason is known", func() bool {
		// The reason depends on whether the router accepted the examination's connection.
		return slices.Contains([]string{
			"the peer's ASN is 64500, not 64999 as configured",
			"the peer has another ASN than configured",
		}, session(s, "127.0.0.2").Reason)
	})
	must(t, s.Apply(t.Context(), config(r.peer(64500))))
	wait.Until(t, "the right ASN comes up", func() bool { return session(s, "127.0.0.2").State == bgp.Established })
}

// A route from a peer is neither accepted nor passed on.
func TestAcceptsNothing(t *testing.T) {
	from, dst := startRouter(t, "127.0.0.2", 64500, 64512), startRouter(t, "127.0.0.3", 64501, 64512)
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(from.peer(64500), dst.peer(64501))))
	must(t, s.Announce(bgp.Route{Prefix: prefix(1)}))
	from.announce(t, netip.MustParsePrefix("192.0.2.0/24"))
	wait.Until(t, "both sessions are up and the route has arrived", func() bool {
		got, _ := dst.history()
		return len(got) > 0 && session(s, "127.0.0.2").State == bgp.Established
	})
	// A second route behind the first shows that the first was not just slow.
	must(t, s.Announce(bgp.Route{Prefix: prefix(2)}))
	wait.Until(t, "the marker has arrived", func() bool { got, _ := dst.history(); return slices.Contains(got, "+10.99.0.2/32") })
	if got, _ := dst.history(); slices.Contains(got, "+192.0.2.0/24") {
		t.Errorf("a peer's route was passed on: %q", got)
	}
}

// A peer that sends a flood of routes loses its own session. The other sessions and the node's memory are not affected.
func TestFloodOfRoutes(t *testing.T) {
	floods, stays := startRouter(t, "127.0.0.2", 64500, 64512), startRouter(t, "127.0.0.3", 64500, 64512)
	for i := range 50 {
		floods.announce(t, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32))
	}
	s := newServerWith(t, bgp.Options{MaxRoutes: 20})
	must(t, s.Apply(t.Context(), config(floods.peer(64500), stays.peer(64500))))
	must(t, s.Announce(bgp.Route{Prefix: prefix(1)}))
	wait.Until(t, "the reason names the flood", func() bool {
		return strings.Contains(session(s, "127.0.0.2").Reason, "the peer sent more than 20 routes")
	})
	wait.Until(t, "the other peer has the route", func() bool {
		return len(session(s, "127.0.0.3").Advertised) == 1
	})
	if _, downs := stays.history(); downs != 0 {
		t.Errorf("the other session fell %d times", downs)
	}
}

// A withdrawal does not wait for ten thousand announcements.
func TestWithdrawAmongManyRoutes(t *testing.T) {
	r := startRouter(t, "127.0.0.2", 64500, 64512)
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(r.peer(64500))))
	must(t, s.Announce(bgp.Route{Prefix: prefix(1)}))
	advertised := func() int { return len(session(s, "127.0.0.2").Advertised) }
	wait.Until(t, "the route is announced", func() bool { return advertised() == 1 })
	const many = 10000
	var routes []bgp.Route
	for i := range many {
		routes = append(routes, bgp.Route{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98, byte(i >> 8), byte(i)}), 32)})
	}
	announced := make(chan error, 1)
	go func() { announced <- s.Announce(routes...) }()
	wait.Until(t, "some of many are announced", func() bool { return advertised() > 1 })
	must(t, s.Withdraw(prefix(1)))
	if n := advertised(); n >= many {
		t.Errorf("%d routes were announced before another was withdrawn", n)
	}
	must(t, <-announced)
	if n := advertised(); n != many {
		t.Errorf("%d routes are announced, want %d", n, many)
	}
}

func TestClose(t *testing.T) {
	r := startRouter(t, "127.0.0.2", 64500, 64512)
	before := goleak.IgnoreCurrent()
	var log bytes.Buffer
	s := bgp.New(slog.New(slog.NewTextHandler(&log, nil)), bgp.Options{})
	must(t, s.Apply(t.Context(), config(r.peer(64500))))
	wait.Until(t, "the session is up", func() bool { return session(s, "127.0.0.2").State == bgp.Established })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, s.Close(ctx, "m1: herald is stopping"))
	wait.Until(t, "the router sees the session fall", func() bool { _, downs := r.history(); return downs > 0 })
	goleak.VerifyNone(t, before)
	if err := s.Apply(t.Context(), config(r.peer(64500), v1alpha1.Peer{Interface: "lo", ASN: 64500, Port: 179, Families: []v1alpha1.Family{v1alpha1.IPv4}})); !errors.Is(err, bgp.ErrClosed) {
		t.Errorf("peers were applied after Close: %v", err)
	}
	goleak.VerifyNone(t, before)
	for _, want := range []string{"session established", "session closed"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q logged %d times: %s", want, n, fmt.Sprint(&log))
		}
	}
}
