package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// watchedServer is a server with peers that are established as far as it
// knows, on addresses where nobody answers.
func watchedServer(t *testing.T, peers ...Peer) *Server {
	t.Helper()
	s := New(slog.New(slog.NewTextHandler(t.Output(), nil)), Options{})
	t.Cleanup(func() {
		s.mu.Lock()
		for _, p := range s.peers {
			p.state = Idle // GoBGP knows of none
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
	for i, conf := range peers {
		p := newPeer(conf, uint32(i+1))
		p.local, p.since = netip.MustParseAddr("127.0.0.1"), time.Now()
		p.state, p.examineAt = Established, time.Now().Add(time.Hour)
		s.peers[p.Name()] = p
	}
	s.watchPaths()
	return s
}

func watchedPeer(address string, multihop bool) Peer {
	return Peer{
		Address: netip.MustParseAddr(address), ASN: 64500, IPv4: true,
		BFD: &BFD{Interval: time.Second, Multiplier: 3, Multihop: multihop},
	}
}

// A peer whose path cannot be watched says why, and the others' are watched.
func TestOnePathThatCannotBeWatched(t *testing.T) {
	s := watchedServer(t, watchedPeer("127.0.0.8", false), watchedPeer("169.254.0.9", true))
	if n := len(s.bfd.Statuses()); n != 1 {
		t.Errorf("%d paths are watched, want that of the other peer", n)
	}
	if b := session(s, "169.254.0.9").BFD; b == nil || !strings.Contains(b.Reason, "never several hops away") {
		t.Errorf("BFD of the peer that cannot have it: %+v", b)
	}
}

// A peer that is set aside is not watched, lest its router make BFD and BGP
// sessions in the wrong order afterwards.
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

// Two routers with one link-local address cannot be told apart by GoBGP's
// policies: the second is left alone, and says so.
func TestSameAddressOnTwoLinks(t *testing.T) {
	s := watchedServer(t, Peer{Interface: "eth1", ASN: 64500}, Peer{Interface: "eth2", ASN: 64500})
	s.mu.Lock()
	one, two := s.peers["eth1"], s.peers["eth2"]
	one.addr, two.addr = netip.MustParseAddr("fe80::1%eth1"), netip.MustParseAddr("fe80::1%eth2")
	one.present, two.state = true, Idle
	s.add(two)
	one.present = false // GoBGP does not really have it
	s.mu.Unlock()
	if got := session(s, "eth2"); !strings.Contains(got.Reason, "peer eth1 has the same address on another link") {
		t.Errorf("the reason is %q", got.Reason)
	}
}

func session(s *Server, peer string) Session {
	for _, x := range s.Sessions() {
		if x.Peer == peer {
			return x
		}
	}
	return Session{}
}
