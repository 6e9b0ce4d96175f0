package election

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/netns"
)

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
