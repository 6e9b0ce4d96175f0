package nft

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

func TestRefused(t *testing.T) {
	backends := func(place string) []balancer.Backend {
		return []balancer.Backend{{Addr: netip.MustParseAddrPort(place)}}
	}
	for want, services := range map[string][]balancer.Service{
		"an address and a port are needed":           {{Name: "a", Backends: backends("0.0.0.0:80")}},
		"want the address of a host, without a zone": {{Name: "a", Backends: backends("[fe80::1%eth0]:80")}},
		"only this host reaches it":                  {{Name: "a", Backends: backends("127.0.0.1:80")}},
		"balancer a listens there": {
			{Name: "a", Listen: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}}, {Name: "b", Backends: backends("10.0.0.1:80")},
		},
	} {
		if _, err := reachable(services); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", services, err, want)
		}
	}
}

// An unusable backend from a member or from DNS affects neither the other backends nor other balancers.
func TestRefusedBackendIsLeftOut(t *testing.T) {
	good, bad := netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("127.0.0.1:80")
	services := []balancer.Service{
		{Name: "a", Backends: []balancer.Backend{{Addr: bad}, {Addr: good}}},
		{Name: "b", Backends: []balancer.Backend{{Addr: good}}},
	}
	got, err := reachable(services)
	if err == nil || !strings.Contains(err.Error(), "balancer a cannot have 127.0.0.1:80") {
		t.Errorf("error %v, want one about the backend", err)
	}
	if len(got) != 2 || len(got[0].Backends) != 1 || got[0].Backends[0].Addr != good || len(got[1].Backends) != 1 {
		t.Errorf("services %+v", got)
	}
	if len(services[0].Backends) != 2 {
		t.Error("the caller's services were changed")
	}
}

func TestUnsupported(t *testing.T) {
	for err, want := range map[error]string{
		syscall.EPERM:           "CAP_NET_ADMIN",
		ruleset.ErrNotRoot:      "only root can try",
		syscall.EPROTONOSUPPORT: "has no nftables",
		syscall.EOPNOTSUPP:      "lacks NAT in inet",
		syscall.ENOENT:          "lacks NAT in inet",
	} {
		if got := unsupported(err); !errors.Is(got, ErrUnsupported) || !errors.Is(got, err) || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if got := unsupported(syscall.ENOMEM); errors.Is(got, ErrUnsupported) {
		t.Errorf("out of memory: %v", got)
	}
}

func TestProbe(t *testing.T) {
	if err := Probe(); err != nil {
		t.Error(err)
	}
}

// Keys and names can be decoded.
func TestNames(t *testing.T) {
	for _, place := range []netip.AddrPort{local, vip4, vip6} {
		if got, ok := placeOf(placeKey(place)); !ok || got != place {
			t.Errorf("%s is %s, %v", place, got, ok)
		}
	}
	for _, key := range []string{"", "abc", "abcdef"} {
		if place, ok := placeOf(key); ok {
			t.Errorf("%q is %s", key, place)
		}
	}
	if got := linkOf(linkKey("eth0")); got != "eth0" {
		t.Errorf("eth0 is %q", got)
	}
}

// FuzzChainOf decodes arbitrary verdicts and keys.
func FuzzChainOf(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0, 0xff, 0xff, 0xff, 0xfc, 6, 0, 2, 0, 'a', 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := chainOf(b); len(got) > len(b) {
			t.Errorf("%q from %q", got, b)
		}
		_, _ = placeOf(string(b))
	})
}
