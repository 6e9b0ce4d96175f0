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
	at := func(places ...string) (out []netip.AddrPort) {
		for _, place := range places {
			out = append(out, netip.MustParseAddrPort(place))
		}
		return out
	}
	to := func(places ...string) (out []balancer.Backend) {
		for _, place := range at(places...) {
			out = append(out, balancer.Backend{Addr: place})
		}
		return out
	}
	for want, services := range map[string][]balancer.Service{
		"the kernel sends nothing from ::1": {{Name: "a", Listen: at("[::1]:80")}},
		"name the address":                  {{Name: "a", Listen: at("0.0.0.0:80")}},
		"an address and a port are needed":  {{Name: "a", Listen: at("10.0.0.1:0")}},
		"that mean the same on all links":   {{Name: "a", Listen: at("[fe80::1%eth0]:80")}},
		"both listen at 10.0.0.1:80":        {{Name: "a", Listen: at("10.0.0.1:80")}, {Name: "b", Listen: at("[::ffff:10.0.0.1]:80")}},
		"two balancers are named a":         {{Name: "a"}, {Name: "a"}},
		"other characters than":             {{Name: "a/b"}},
		"characters long":                   {{Name: strings.Repeat("a", 129)}},
		"is not 1 to":                       {{}},
		"it has it already":                 {{Name: "a", Backends: to("10.0.0.2:80", "[::ffff:10.0.0.2]:80")}},
		"only this host reaches it":         {{Name: "a", Backends: to("127.0.0.1:80")}},
		"balancer a listens there":          {{Name: "a", Listen: at("10.0.0.1:80")}, {Name: "b", Backends: to("10.0.0.1:80")}},
	} {
		if _, err := check(services); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", services, err, want)
		}
	}
	good := []balancer.Service{{Name: "a.b-c_1", Listen: at("127.0.0.1:80", "[::ffff:10.0.0.1]:81"), Backends: to("[::ffff:10.0.0.2]:80")}}
	got, err := check(good)
	if err != nil || got[0].Listen[1] != at("10.0.0.1:81")[0] || got[0].Backends[0].Addr != at("10.0.0.2:80")[0] {
		t.Errorf("%+v, %v", got, err)
	}
	if good[0].Listen[1] == got[0].Listen[1] {
		t.Error("the caller's own services were changed")
	}
}

// What a member or a name tells must not keep a balancer from its other backends, nor another
// balancer from anything.
func TestRefusedBackendIsLeftOut(t *testing.T) {
	good, bad := netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("127.0.0.1:80")
	got, err := check([]balancer.Service{
		{Name: "a", Backends: []balancer.Backend{{Addr: bad}, {Addr: good}}},
		{Name: "b", Backends: []balancer.Backend{{Addr: good}}},
	})
	if err == nil || !strings.Contains(err.Error(), "balancer a cannot have 127.0.0.1:80") {
		t.Errorf("error %v, want one about the backend", err)
	}
	if len(got) != 2 || len(got[0].Backends) != 1 || got[0].Backends[0].Addr != good || len(got[1].Backends) != 1 {
		t.Errorf("%+v is carried", got)
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

// Keys and names say what they were made of.
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

// FuzzChainOf reads whatever the kernel may say of where an element leads.
func FuzzChainOf(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0, 0xff, 0xff, 0xff, 0xfc, 6, 0, 2, 0, 'a', 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := chainOf(b); len(got) > len(b) {
			t.Errorf("%q from %q", got, b)
		}
		_, _ = placeOf(string(b))
	})
}
