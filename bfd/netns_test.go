package bfd_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/bfd"
	namespace "github.com/herald-vip/herald/testenv/netns"
)

// host is a network namespace.
type host struct {
	t  *testing.T
	ns netns.NsHandle
	nl *netlink.Handle
}

func newHost(t *testing.T) *host {
	t.Helper()
	ns, nl := namespace.New(t)
	return &host{t: t, ns: ns, nl: nl}
}

// do runs f inside the host.
func (h *host) do(f func() error) error {
	return namespace.In(h.ns, f)
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.nl.LinkByName(name)
	must(h.t, err)
	return l
}

func (h *host) address(link, cidr string) {
	h.t.Helper()
	a, err := netlink.ParseAddr(cidr)
	must(h.t, err)
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD // usable at once
	}
	must(h.t, h.nl.AddrAdd(h.link(link), a))
}

// lose makes what the host sends to an address get lost, or no longer: it goes
// to a hardware address that nobody has.
func (h *host) lose(to string, yes bool) {
	h.t.Helper()
	n := &netlink.Neigh{
		LinkIndex: h.link("eth0").Attrs().Index, IP: net.ParseIP(to),
		State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 99},
	}
	if yes {
		must(h.t, h.nl.NeighSet(n))
	} else {
		must(h.t, h.nl.NeighDel(n))
	}
}

// wire joins two new hosts by eth0 with the addresses 10.0.0.1 and .2, fd00::1
// and ::2, fe80::1 and ::2.
func wire(t *testing.T) (a, b *host) {
	t.Helper()
	a, b = newHost(t), newHost(t)
	must(t, a.nl.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(b.ns)}))
	for i, h := range []*host{a, b} {
		must(t, h.nl.LinkSetIP6AddrGenMode(h.link("eth0"), nl.IN6_ADDR_GEN_MODE_NONE))
		must(t, h.nl.LinkSetUp(h.link("eth0")))
		for _, format := range []string{"10.0.0.%d/24", "fd00::%d/64", "fe80::%d/64"} {
			h.address("eth0", fmt.Sprintf(format, i+1))
		}
	}
	return a, b
}

// speaker is a server in a host and what it has notified.
type speaker struct {
	*bfd.Server
	t *testing.T

	mu   sync.Mutex
	news []bfd.Status
}

func (h *host) speaker() *speaker {
	h.t.Helper()
	s := &speaker{t: h.t}
	s.Server = bfd.NewServer(slog.New(slog.NewTextHandler(h.t.Output(), nil)), func(st bfd.Status) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.news = append(s.news, st)
	})
	s.Inside(h.do)
	h.t.Cleanup(s.close)
	return s
}

func (s *speaker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.t.Error(err)
	}
}

// keep applies a list of sessions.
func (s *speaker) keep(list ...bfd.Config) {
	s.t.Helper()
	must(s.t, s.Apply(list))
}

// status is that of the session with the peer.
func (s *speaker) status(peer string) bfd.Status {
	s.t.Helper()
	for _, st := range s.Statuses() {
		if st.Peer == netip.MustParseAddr(peer) {
			return st
		}
	}
	s.t.Fatalf("no session with %s", peer)
	panic("unreachable")
}

// history is the states notified of the session with the peer, and how often
// the path had failed.
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

// told waits until the state of the session with the peer is notified.
func (s *speaker) told(peer string, state bfd.State) {
	s.t.Helper()
	s.becomes(peer, "notified "+state.String(), func(bfd.Status) bool {
		states, _ := s.history(peer)
		return slices.Contains(states, state)
	})
}

// fails waits until a failure of the path to the peer is notified.
func (s *speaker) fails(peer string) {
	s.t.Helper()
	s.becomes(peer, "notified as failed", func(bfd.Status) bool {
		_, failures := s.history(peer)
		return failures > 0
	})
}

// becomes waits for a status of the session with the peer.
func (s *speaker) becomes(peer, what string, holds func(bfd.Status) bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !holds(s.status(peer)) {
		select {
		case <-deadline.C:
			s.t.Fatalf("session with %s: in vain waited for: %s; it is %+v", peer, what, s.status(peer))
		case <-poll.C:
		}
	}
}

func (s *speaker) up(peer string) {
	s.t.Helper()
	s.becomes(peer, "up", func(st bfd.Status) bool { return st.State == bfd.Up && st.Remote == bfd.Up })
}

// patience is how long a test waits for what is to come within a second or two.
const patience = 30 * time.Second

func must(t *testing.T, err error) {
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

// to is a session with the peer.
func to(peer string) bfd.Config {
	return bfd.Config{Peer: netip.MustParseAddr(peer), Interval: interval, Multiplier: multiplier}
}
