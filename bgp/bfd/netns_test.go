package bfd_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
)

// host is a network namespace.
type host struct{ *nettest.Host }

// do runs f inside the host.
func (h *host) do(f func() error) error { return netns.In(h.NS, f) }

// lose makes the host lose its packets to an address, or stops that: they go to an unused hardware address.
func (h *host) lose(dst string, yes bool) {
	h.T.Helper()
	n := &netlink.Neigh{
		LinkIndex: h.Link("eth0").Attrs().Index, IP: net.ParseIP(dst),
		State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 99},
	}
	if yes {
		h.Must(h.NL.NeighSet(n))
	} else {
		h.Must(h.NL.NeighDel(n))
	}
}

// wire joins two new hosts by eth0 with the addresses 10.0.0.1 and .2, fd00::1 and ::2, fe80::1 and ::2.
func wire(t *testing.T) (a, b *host) {
	t.Helper()
	a, b = &host{nettest.NewHost(t)}, &host{nettest.NewHost(t)}
	must(t, a.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(b.NS)}))
	for i, h := range []*host{a, b} {
		must(t, h.NL.LinkSetIP6AddrGenMode(h.Link("eth0"), nl.IN6_ADDR_GEN_MODE_NONE))
		must(t, h.NL.LinkSetUp(h.Link("eth0")))
		for _, format := range []string{"10.0.0.%d/24", "fd00::%d/64", "fe80::%d/64"} {
			h.Add("eth0", fmt.Sprintf(format, i+1))
		}
	}
	return a, b
}

// speaker is a server in a host, with its notifications.
type speaker struct {
	*bfd.Server
	*host

	mu   sync.Mutex
	news []bfd.Status
}

func (h *host) speaker() *speaker {
	h.T.Helper()
	s := &speaker{host: h}
	s.Server = bfd.NewServer(slog.New(slog.NewTextHandler(h.T.Output(), nil)), func(st bfd.Status) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.news = append(s.news, st)
	})
	s.Inside(h.do)
	h.T.Cleanup(s.close)
	return s
}

// joined brings up sessions between speakers in two new hosts. The peers are addresses that [wire] gives to b.
func joined(t *testing.T, peers ...string) (a, b *speaker) {
	t.Helper()
	x, y := wire(t)
	a, b = x.speaker(), y.speaker()
	var ofA, ofB []bfd.Config
	for _, peer := range peers {
		ofA, ofB = append(ofA, dst(peer)), append(ofB, dst(backFrom(peer)))
	}
	a.keep(ofA...)
	b.keep(ofB...)
	for _, peer := range peers {
		a.up(peer)
		b.up(backFrom(peer))
	}
	return a, b
}

// backFrom returns the address of a that corresponds to b's address peer in [wire].
func backFrom(peer string) string { return strings.Replace(peer, "2", "1", 1) }

func (s *speaker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.T.Error(err)
	}
}

// keep applies a list of sessions.
func (s *speaker) keep(list ...bfd.Config) {
	s.T.Helper()
	s.Must(s.Apply(list))
}

// status returns the status of the session with the peer.
func (s *speaker) status(peer string) bfd.Status {
	s.T.Helper()
	st := s.Statuses()[netip.MustParseAddr(peer)]
	if st == nil {
		s.T.Fatalf("no session with %s", peer)
	}
	return *st
}

// history returns the notified states of the session with the peer, and the number of path failures.
func (s *speaker) history(peer string) (states []bfd.State, failures int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.news {
		if st.Peer == netip.MustParseAddr(peer) {
			states = append(states, st.State)
			if st.Failed {
				failures++
			}
		}
	}
	return states, failures
}

// notifies waits until the state of the session with the peer is notified.
func (s *speaker) notifies(peer string, state bfd.State) {
	s.T.Helper()
	s.becomes(peer, "notified "+state.String(), func(bfd.Status) bool {
		states, _ := s.history(peer)
		return slices.Contains(states, state)
	})
}

// fails waits until a failure of the path to the peer is notified.
func (s *speaker) fails(peer string) {
	s.T.Helper()
	s.becomes(peer, "notified as failed", func(bfd.Status) bool {
		_, failures := s.history(peer)
		return failures > 0
	})
}

// becomes waits for a status of the session with the peer.
func (s *speaker) becomes(peer, what string, holds func(bfd.Status) bool) {
	s.T.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !holds(s.status(peer)) {
		select {
		case <-deadline.C:
			s.T.Fatalf("session with %s: timed out waiting for: %s; it is %+v", peer, what, s.status(peer))
		case <-poll.C:
		}
	}
}

func (s *speaker) up(peer string) {
	s.T.Helper()
	s.becomes(peer, "up", func(st bfd.Status) bool { return st.State == bfd.Up && st.Remote == bfd.Up })
}

// patience limits each wait of a test. Usually a wait lasts a second or two.
const patience = 30 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The sessions of the tests are slow enough to stay up on a machine that is busy.
const (
	interval      = 100 * time.Millisecond
	multiplier    = 5
	detectionTime = multiplier * interval
)

// dst returns the configuration of a session with the peer.
func dst(peer string) bfd.Config {
	return bfd.Config{Peer: netip.MustParseAddr(peer), Interval: interval, Multiplier: multiplier}
}
