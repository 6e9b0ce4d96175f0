package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp/bfd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watchedServer returns a server that considers its peers established. No router has their addresses.
func watchedServer(t *testing.T, peers ...v1alpha1.Peer) *Server {
	t.Helper()
	s := New(slog.New(slog.NewTextHandler(t.Output(), nil)), Options{})
	t.Cleanup(func() {
		s.mu.Lock()
		for _, p := range s.peers {
			p.state = Idle // GoBGP has no peers
		}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx, "test is over"); err != nil {
			t.Error(err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config.ASN = 64512
	for i, conf := range peers {
		p := newPeer(conf, uint32(i+1))
		p.local, p.since = netip.MustParseAddr("127.0.0.1"), time.Now()
		p.state, p.examineAt = Established, time.Now().Add(time.Hour)
		s.peers[p.Name()] = p
	}
	s.watchPaths()
	return s
}

func watchedPeer(address string, multihop bool) v1alpha1.Peer {
	return v1alpha1.Peer{
		Address: netip.MustParseAddr(address), ASN: 64500, Families: []v1alpha1.Family{v1alpha1.IPv4},
		BFD: &v1alpha1.BFD{Interval: metav1.Duration{Duration: time.Second}, Multiplier: 3, Multihop: &multihop},
	}
}

// A peer with an invalid BFD session reports why, and the other paths are watched.
func TestOnePathThatCannotBeWatched(t *testing.T) {
	s := watchedServer(t, watchedPeer("127.0.0.8", false), watchedPeer("169.254.0.9", true))
	if n := len(s.bfd.Statuses()); n != 1 {
		t.Errorf("%d paths are watched, want that of the other peer", n)
	}
	if b := session(s, "169.254.0.9").BFD; b == nil || !strings.Contains(b.Reason, "never several hops away") {
		t.Errorf("BFD of the peer that cannot have it: %+v", b)
	}
}

// TestWait checks after each event whether routes wait: a session or BFD comes up, or a tick passes.
func TestWait(t *testing.T) {
	type step struct {
		name string
		do   func(*wait)
		on   bool // afterwards
	}
	began := time.Now()
	session := func(path *bfd.Status, on bool) step {
		return step{"session up", func(w *wait) { w.begin(path, began) }, on}
	}
	down := &bfd.Status{State: bfd.Down}
	bfdUp := step{"BFD up", func(w *wait) { *w = wait{} }, false}
	tickAt := func(after time.Duration, on bool) step {
		return step{"tick", func(w *wait) { w.expire(began.Add(after)) }, on}
	}
	early, last := tickAt(patience-tick-1, true), tickAt(patience-tick, false)
	tests := []struct {
		name  string
		steps []step
	}{
		{"no BFD", []step{session(nil, false)}},
		{"BFD is first", []step{session(&bfd.Status{State: bfd.Up}, false)}},
		{"BFD comes up", []step{session(down, true), early, bfdUp}},
		{"each session waits", []step{session(down, true), bfdUp, session(down, true), bfdUp}},
		{"a session is lost while it waits", []step{session(down, true), session(down, true), early, last}},
		{"BFD never comes up", []step{session(down, true), early, last, session(down, false)}},
		{"BFD is late", []step{session(down, true), last, bfdUp, session(down, true)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w wait
			for i, s := range tt.steps {
				if s.do(&w); w.on() != s.on {
					t.Fatalf("after step %d, %s: waiting %t, want %t", i+1, s.name, w.on(), s.on)
				}
			}
		})
	}
}

// Routes that wait for BFD are held back, and the status says so. The wait ends when BFD is up, when its time is over, or
// when BFD is no longer configured.
func TestRoutesWaitForBFD(t *testing.T) {
	conf := watchedPeer("127.0.0.8", false)
	for name, end := range map[string]func(*Server, *peer){
		"BFD is up": func(s *Server, _ *peer) { s.pathChanged(bfd.Status{Peer: conf.Address, State: bfd.Up}) },
		"the wait is over": func(s *Server, p *peer) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.endWait(p, time.Now().Add(patience))
		},
		"BFD is no longer configured": func(s *Server, _ *peer) {
			unwatched := conf
			unwatched.BFD = nil
			if err := s.Apply(t.Context(), Config{ASN: 64512, RouterID: addr("10.0.0.1"), Peers: []v1alpha1.Peer{unwatched}}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := watchedServer(t, conf)
			s.mu.Lock()
			p := s.peers["127.0.0.8"]
			p.present, p.sentChange, p.offers = true, time.Now(), offers{ipv4: true}
			p.wait.begin(s.bfd.Statuses()[p.addr], time.Now())
			s.routes[netip.MustParsePrefix("10.99.0.10/32")] = Route{}
			s.mu.Unlock()
			if got := session(s, "127.0.0.8"); len(got.Advertised) != 0 || !strings.Contains(got.Reason, "wait for BFD") {
				t.Errorf("at first the peer has %v, reason %q", got.Advertised, got.Reason)
			}
			end(s, p)
			if got := session(s, "127.0.0.8"); len(got.Advertised) != 1 || got.Reason != "" {
				t.Errorf("in the end the peer has %v, reason %q", got.Advertised, got.Reason)
			}
		})
	}
}

// BFD does not watch an expelled peer: otherwise its router could create the next BFD session before the BGP session.
func TestExpelledPeerIsNotWatched(t *testing.T) {
	s := watchedServer(t, watchedPeer("127.0.0.8", false))
	s.mu.Lock()
	s.peers["127.0.0.8"].present = true
	s.expel(s.peers["127.0.0.8"], "too many routes")
	s.mu.Unlock()
	if n := len(s.bfd.Statuses()); n != 0 {
		t.Errorf("%d paths are watched, want none", n)
	}
	if got := session(s, "127.0.0.8"); !strings.Contains(got.Reason, "too many routes, tried again at ") {
		t.Errorf("the reason is %q", got.Reason)
	}
}

// GoBGP's policies cannot distinguish two routers with the same link-local address: the second gets no session, and its
// reason says so.
func TestSameAddressOnTwoLinks(t *testing.T) {
	s := watchedServer(t, v1alpha1.Peer{Interface: "eth1", ASN: 64500}, v1alpha1.Peer{Interface: "eth2", ASN: 64500})
	s.mu.Lock()
	first, two := s.peers["eth1"], s.peers["eth2"]
	first.addr, two.addr = netip.MustParseAddr("fe80::1%eth1"), netip.MustParseAddr("fe80::1%eth2")
	first.present, two.state = true, Idle
	s.add(two)
	first.present = false // GoBGP does not really have it
	s.mu.Unlock()
	if got := session(s, "eth2"); !strings.Contains(got.Reason, "peer eth1 has the same address on another link") {
		t.Errorf("the reason is %q", got.Reason)
	}
}

func session(s *Server, peer string) Session {
	for _, x := range s.Sessions() {
		if x.Name == peer {
			return x
		}
	}
	return Session{}
}
