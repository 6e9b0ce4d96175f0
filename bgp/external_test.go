package bgp_test

import (
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/api"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/wait"
)

// A peer with an open ASN gets the ASN of its OPEN, at each session.
func TestOpenASN(t *testing.T) {
	s := newServer(t)
	for _, asn := range []uint32{64500, 4200000000} {
		r := startRouter(t, "127.0.0.2", asn, 64512)
		must(t, s.Apply(t.Context(), config(r.peer(uint32(v1alpha1.External)))))
		must(t, s.Announce(bgp.Route{Prefix: prefix(1)}))
		wait.Until(t, "the route arrives", func() bool { s.Retry("127.0.0.2"); return r.attributes(t, prefix(1)) != "" })
		if x := session(s, "127.0.0.2"); x.ASN != asn || x.State != bgp.Established || x.Reason != "" {
			t.Errorf("session: %+v, want it up with ASN %d", x, asn)
		}
		if got, want := r.attributes(t, prefix(1)), "{Origin: i} {AsPath: 64512} {Nexthop: 127.0.0.1}"; got != want {
			t.Errorf("the route has %s, want %s", got, want)
		}
		r.server.Stop()
	}
}

// A peer that is a default gateway waits until there is one, and then has a session.
func TestGatewayIsWaitedFor(t *testing.T) {
	r := startRouter(t, "127.0.0.2", 64500, 64512)
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(v1alpha1.Peer{DefaultGateway: v1alpha1.IPv4, ASN: 64500, Families: []v1alpha1.Family{v1alpha1.IPv4}})))
	if x := session(s, "default-ipv4"); x.State != bgp.Waiting || x.Address.IsValid() || !strings.Contains(x.Reason, "no default route") {
		t.Errorf("session: %+v, want it to wait", x)
	}
	there := r.peer(64500)
	there.DefaultGateway = v1alpha1.IPv4
	must(t, s.Apply(t.Context(), config(there)))
	wait.Until(t, "the session is up", func() bool { return session(s, "127.0.0.2").State == bgp.Established })
	must(t, s.Apply(t.Context(), config(r.peer(64500)))) // the same router, but no longer as the gateway
	if all := s.Sessions(); len(all) != 1 || all[0].Drops != 0 || all[0].Gateway != "" {
		t.Errorf("sessions: %+v, want the one that was up", all)
	}
}

// A peer with an open ASN that sends this node's own gets no route, and the next session is delayed.
func TestOpenASNIsNotTheOwn(t *testing.T) {
	const reason = "the peer's ASN is 64512 like this node's, but asn: external is for other ASNs: set asn to this number for iBGP"
	r := startRouter(t, "127.0.0.2", 64512, 64512)
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(r.peer(uint32(v1alpha1.External)))))
	must(t, s.Announce(bgp.Route{Prefix: prefix(1)}))
	wait.Until(t, "its next session is delayed", func() bool {
		return strings.HasPrefix(session(s, "127.0.0.2").Reason, reason+", tried again at ")
	})
	wait.Until(t, "its session has ended", func() bool {
		state := api.PeerState_SESSION_STATE_ESTABLISHED
		must(t, r.server.ListPeer(t.Context(), &api.ListPeerRequest{}, func(p *api.Peer) { state = p.GetState().GetSessionState() }))
		return state != api.PeerState_SESSION_STATE_ESTABLISHED
	})
	if updates, downs := r.history(); len(updates) != 0 || session(s, "127.0.0.2").Drops != 0 {
		t.Errorf("the peer received %q in %d sessions, and the speaker counts %d drops, want nothing", updates, downs, session(s, "127.0.0.2").Drops)
	}
}

// A session may have a local ASN. One router then sees this speaker in another AS than the usual one, and a router of
// that AS has an iBGP session with it.
func TestLocalASN(t *testing.T) {
	usual := startRouter(t, "127.0.0.2", 64500, 64512)
	outer := startRouter(t, "127.0.0.3", 64500, 64999)
	inner := startRouter(t, "127.0.0.4", 64999, 64999)
	toUsual, toOuter, toInner := usual.peer(64500), outer.peer(64500), inner.peer(64999)
	toOuter.LocalASN, toInner.LocalASN = 64999, 64999
	toUsual.Attributes.Prepend, toOuter.Attributes.Prepend = 1, 2
	toInner.Attributes.LocalPref = new(uint32(222))
	s := newServer(t)
	must(t, s.Apply(t.Context(), config(toUsual, toOuter, toInner)))
	must(t, s.Announce(bgp.Route{Prefix: prefix(1)}))
	for _, tt := range []struct {
		name   string
		router *router
		want   string
	}{
		{"the usual ASN", usual, "{Origin: i} {AsPath: 64512 64512} {Nexthop: 127.0.0.1}"},
		{"another ASN", outer, "{Origin: i} {AsPath: 64999 64999 64999} {Nexthop: 127.0.0.1}"},
		{"within the other AS", inner, "{Origin: i} {AsPath: } {Nexthop: 127.0.0.1} {LocalPref: 222}"},
	} {
		got := ""
		wait.Until(t, tt.name+": the route arrives", func() bool {
			got = tt.router.attributes(t, prefix(1))
			return got != ""
		})
		if got != tt.want {
			t.Errorf("%s: the route has %s, want %s", tt.name, got, tt.want)
		}
	}
}

// The reason names a mismatch of the local ASN, as of the usual one.
func TestWrongLocalASNIsNamed(t *testing.T) {
	r := startRouter(t, "127.0.0.2", 64500, 64512)
	peer := r.peer(64500)
	peer.LocalASN = 64999
	const want = "the peer expects another ASN than 64999: code 2(open) subcode 2(bad peer as)"
	if got := bgp.Examine(t.Context(), config(), peer); got != want {
		t.Errorf("examined: %q, want %q", got, want)
	}
}
