package facts

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/status/admin"
)

func TestWithMembers(t *testing.T) {
	at := netip.MustParseAddrPort
	named := &config.Config{NodeName: "m1", Election: &electorate.Settings{Members: map[string]netip.AddrPort{"m1": at("10.0.0.1:7946"), "m2": at("10.0.0.2:7946")}}}
	joins := &config.Config{NodeName: "m1", Election: &electorate.Settings{
		Join: []netip.AddrPort{at("10.0.0.1:7946"), at("10.0.0.2:7946")}}}
	running := &admin.Status{Election: &admin.Election{Members: []lease.Member{
		{Name: "m1", Address: at("10.0.0.1:7946"), Self: true, Voter: true}, {Name: "m3", Address: at("10.0.0.3:7946"), Voter: true}, {Name: "w1"}}}}
	for name, test := range map[string]struct {
		c       *config.Config
		running *admin.Status
		want    []string
	}{
		"no election":         {&config.Config{}, running, nil},
		"named":               {named, running, []string{"m2"}},
		"joins":               {joins, nil, []string{"10.0.0.2:7946"}},
		"joins, no election":  {joins, &admin.Status{}, []string{"10.0.0.2:7946"}},
		"joins, and is there": {joins, running, []string{"m3"}},
	} {
		f := &Facts{Running: test.running}
		f.Host.Addresses = []link.Address{{Link: "eth0", Prefix: netip.MustParsePrefix("10.0.0.1/24")}}
		if got := Others(f.withMembers(test.c)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if joins.Election.Members != nil {
		t.Error("the configuration that was given has changed")
	}
}
