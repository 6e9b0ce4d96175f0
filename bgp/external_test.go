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
