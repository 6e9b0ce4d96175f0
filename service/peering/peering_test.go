package peering

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
)

// server refuses configurations while err is set.
type server struct {
	err     error
	applied []bgp.Config
}

func (s *server) Apply(_ context.Context, c bgp.Config) error {
	if s.err == nil {
		s.applied = append(s.applied, c)
	}
	return s.err
}

// A change in the API is applied once, and retried if it is refused.
func TestRenew(t *testing.T) {
	s := &server{}
	derived := 0
	p := New(slog.New(slog.DiscardHandler), s, Options{RouterID: func(_ string, vips ...netip.Addr) (netip.Addr, error) {
		derived++
		return netip.MustParseAddr("10.0.1.1"), nil
	}})
	c := &config.Config{Realtime: true}
	fast := router("rack", 0, func(r *v1alpha1.Peer) {
		at("10.0.1.254")(r)
		r.LocalASN, r.BFD = 64512, &v1alpha1.BFD{}
		r.BFD.Interval.Duration = 10 * time.Millisecond
	})
	resources := Resources{Peers: []*v1alpha1.BGPPeer{fast}}
	s.err = errors.New("refused")
	if p.Renew(t.Context(), c, resources) || !errors.Is(p.Err(), s.err) || len(p.InForce().BGP.Peers) != 0 {
		t.Fatalf("a refused set is in force (%v)", p.Err())
	}
	s.err = nil
	for _, want := range []bool{true, false} {
		if got := p.Renew(t.Context(), c, resources); got != want || p.Err() != nil {
			t.Errorf("renewed: %t (%v), want %t", got, p.Err(), want)
		}
	}
	if len(s.applied) != 1 || derived != 1 {
		t.Fatalf("applied %d times, derived %d router IDs", len(s.applied), derived)
	}
	got := s.applied[0]
	if got.ASN != 64512 || got.RouterID != netip.MustParseAddr("10.0.1.1") || got.Peers[0].BFD.Interval.Duration != config.CalmInterval {
		t.Errorf("got %+v, BFD %+v", got, got.Peers[0].BFD)
	}
	// Without peers the process keeps the ASN of GoBGP's start.
	if !p.Renew(t.Context(), c, Resources{}) || s.applied[1].ASN != 64512 || len(s.applied[1].Peers) != 0 {
		t.Errorf("after the removal of the last peer: %+v", s.applied)
	}
}
