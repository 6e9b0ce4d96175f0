package election

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"

	"fmt"
	"log/slog"
	"strings"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/netns"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// config returns a valid configuration of m1.
func config() *Config {
	return &Config{Self: "m1", Settings: electorate.Settings{Bind: ap("10.0.0.1:7946"), Members: trio(), Keys: [][]byte{key(1)}, Lease: 600 * time.Millisecond}}
}

func TestConfigMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"none":         {func(*Config) {}, ""},
		"no bind":      {func(c *Config) { c.Bind = netip.AddrPort{} }, ""},
		"insecure":     {func(c *Config) { c.Keys, c.Insecure = nil, true }, ""},
		"no vote":      {func(c *Config) { c.Self, c.Bind = "m9", ap("10.0.0.9:7946") }, ""},
		"default port": {func(c *Config) { c.Self, c.Bind = "m9", ap("10.0.0.9:0") }, ""},
		"ports differ": {func(c *Config) { c.Self, c.Bind, c.Members["m2"] = "m9", ap("10.0.0.9:0"), ap("10.0.0.2:7") },
			"bind, 10.0.0.9, needs a port: the members have several"},
		"nowhere": {func(c *Config) { c.Self, c.Bind = "m9", netip.AddrPort{} },
			`this node, "m9", is not among the members (m1, m2, m3) and has no vote: set bind to its address, or make it a member`},
		"no vote, no quorum": {func(c *Config) { c.Self, c.Bind, c.Quorum = "m9", ap("10.0.0.9:1"), electorate.None },
			`this node, "m9", is not among the members and gets no lease with quorum none: make it a member, or set quorum to majority`},
		"a voter's place": {func(c *Config) { c.Self = "m9" }, `members "m1" and "m9" have the same address, 10.0.0.1:7946`},
		"no vote, other family": {func(c *Config) { c.Self, c.Bind = "m9", ap("[fd00::1]:1") },
			`member "m1" has the address 10.0.0.1 and this node fd00::1: an election is either IPv4 or IPv6`},
		"bind elsewhere": {func(c *Config) { c.Bind = ap("10.0.0.9:7946") }, `bind is 10.0.0.9:7946, but the members expect "m1" at 10.0.0.1:7946: make them the same`},
		"link-local":     {func(c *Config) { c.Members["m2"] = ap("[fe80::1%eth0]:7946") }, `member "m2" has the link-local address fe80::1%eth0: give it another`},
		"mixed":          {func(c *Config) { c.Members["m2"] = ap("[fd00::2]:7946") }, `member "m2" has the address fd00::2 and this node 10.0.0.1: an election is either IPv4 or IPv6`},
		"twice":          {func(c *Config) { c.Members["m3"] = ap("10.0.0.2:7946") }, `members "m2" and "m3" have the same address, 10.0.0.2:7946`},
		"no key":         {func(c *Config) { c.Keys = nil }, "there is no key: set keyFile to a file that `herald keygen` wrote, the same on all members"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			test.change(c)
			got := ""
			if err := c.check(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Fatalf("error %q, want %q", got, test.want)
			}
		})
	}
}

// TestBindWithoutAVote checks that a node without a vote uses the address from which it reaches a member.
func TestBindWithoutAVote(t *testing.T) {
	config := func(members ...string) *Config {
		c := &Config{Self: "w1", Settings: electorate.Settings{Lease: time.Second, Keys: [][]byte{make([]byte, 16)}, Members: make(map[string]netip.AddrPort)}}
		for i, m := range members {
			c.Members[fmt.Sprintf("m%d", i)] = netip.MustParseAddrPort(m)
		}
		return c
	}
	ns, _ := netns.New(t)
	e := New(slog.New(slog.DiscardHandler), new(member))
	var bound netip.AddrPort
	e.listen = func(at netip.AddrPort, _ *transport.Admission) (memberlist.Transport, error) {
		bound = at
		return nil, fmt.Errorf("listening is not tried here")
	}
	apply := func(c *Config) (err error) {
		t.Helper()
		if failed := netns.In(ns, func() error { err = e.Apply(c); return nil }); failed != nil {
			t.Fatal(failed)
		}
		return err
	}
	if err := apply(config("198.51.100.1:7946")); err == nil || !strings.Contains(err.Error(), "bind is not set") {
		t.Errorf("no member can be reached: %v", err)
	}
	if err := apply(config("198.51.100.1:7946", "127.0.0.9:7946")); bound != netip.MustParseAddrPort("127.0.0.1:7946") {
		t.Errorf("one can be reached: %v, %v", bound, err)
	}
	set := config("198.51.100.1:7946")
	set.Bind = netip.MustParseAddrPort("192.0.2.1:7946")
	if err := apply(set); bound != set.Bind {
		t.Errorf("with a bind: %v, %v", bound, err)
	}
}
