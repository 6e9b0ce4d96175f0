package bgp_test

import (
	"testing"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/wait"
)

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
