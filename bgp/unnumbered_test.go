package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Router advertisements of another host on the link of an unnumbered peer do not end a session that is up.
func TestAnotherRouterDoesNotTakeASessionDown(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler), Options{})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx, "test is over"); err != nil {
			t.Error(err)
		}
	}()
	first, second := netip.MustParseAddr("fe80::1%eth9"), netip.MustParseAddr("fe80::2%eth9")
	p := newPeer(v1alpha1.Peer{Interface: "eth9", ASN: 64500}, 1)
	s.mu.Lock()
	s.peers["eth9"] = p
	p.addr, p.state = first, Established
	s.mu.Unlock()
	at := func() netip.Addr {
		s.mu.Lock()
		defer s.mu.Unlock()
		return p.addr
	}

	s.discovered(t.Context(), "eth9", second)
	if got := at(); got != first {
		t.Errorf("an established session was moved to %s", got)
	}
	s.mu.Lock()
	p.state = Idle
	s.mu.Unlock()
	s.discovered(t.Context(), "eth9", second)
	if got := at(); got != second {
		t.Errorf("a session that is down stays at %s", got)
	}
}
