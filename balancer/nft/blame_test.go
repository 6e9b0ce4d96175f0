package nft

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/balancer"
)

// A host that lets nothing pass for 127.0.0.1 is no trouble of who listens at a VIP.
func TestBlame(t *testing.T) {
	at := func(name, place string) balancer.Service {
		return balancer.Service{Name: name, Listen: []netip.AddrPort{netip.MustParseAddrPort(place)}}
	}
	services := []balancer.Service{at("local", "127.0.0.1:9443"), at("vip", "10.0.0.100:6443")}
	if err := blame(nil, services); err != nil {
		t.Error(err)
	}
	err := blame(errors.New("cannot listen at 127.0.0.1: no right"), services)
	if got, want := err.Error(), "balancer local cannot listen at 127.0.0.1: no right"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
