package bfd_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp/bfd"
)

func TestValidate(t *testing.T) {
	multihop := func(c *bfd.Config) { c.Multihop, c.Local = true, netip.MustParseAddr("10.0.0.1") }
	for _, test := range []struct {
		name, peer string
		change     func(*bfd.Config)
		want       string
	}{
		{"plain", "10.0.0.2", func(*bfd.Config) {}, ""},
		{"link-local", "fe80::2%eth0", func(*bfd.Config) {}, ""},
		{"multihop", "10.0.0.2", multihop, ""},
		{"multihop with a minimum TTL", "10.0.0.2", func(c *bfd.Config) { multihop(c); c.MinTTL = 254 }, ""},
		{"the fastest", "10.0.0.2", func(c *bfd.Config) { c.Interval, c.Multiplier = bfd.MinInterval, 1 }, ""},
		{"the slowest", "10.0.0.2", func(c *bfd.Config) { c.Interval, c.Multiplier = bfd.MaxInterval, 255 }, ""},

		{"no peer", "10.0.0.2", func(c *bfd.Config) { c.Peer = netip.Addr{} }, "needs the address of its peer"},
		{"mapped", "::ffff:10.0.0.2", func(*bfd.Config) {}, "without ::ffff"},
		{"unspecified", "::", func(*bfd.Config) {}, "not the address of one host"},
		{"multicast", "224.0.0.5", func(*bfd.Config) {}, "not the address of one host"},
		{"no zone", "fe80::2", func(*bfd.Config) {}, "as in fe80::2%eth0"},
		{"mixed families", "10.0.0.2", func(c *bfd.Config) { c.Local = netip.MustParseAddr("fd00::1") }, "other family"},
		{"unspecified local", "10.0.0.2", func(c *bfd.Config) { c.Local = netip.MustParseAddr("0.0.0.0") }, "0.0.0.0 is not the address of one host"},
		{"multihop without local", "10.0.0.2", func(c *bfd.Config) { c.Multihop = true }, "needs a local address"},
		{"multihop on a link", "fe80::2%eth0", func(c *bfd.Config) { c.Multihop, c.Local = true, netip.MustParseAddr("fe80::1%eth0") }, "never several hops away"},
		{"minimum TTL of one hop", "10.0.0.2", func(c *bfd.Config) { c.MinTTL = 254 }, "only a multihop session"},
		{"too fast", "10.0.0.2", func(c *bfd.Config) { c.Interval = bfd.MinInterval - 1 }, "not between 10ms and 1m0s"},
		{"too slow", "10.0.0.2", func(c *bfd.Config) { c.Interval = bfd.MaxInterval + 1 }, "not between 10ms and 1m0s"},
		{"too fine", "10.0.0.2", func(c *bfd.Config) { c.Interval += 1 }, "not in whole microseconds"},
		{"no multiplier", "10.0.0.2", func(c *bfd.Config) { c.Multiplier = 0 }, "multiplier must be"},
	} {
		c := dst(test.peer)
		test.change(&c)
		err := c.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// A server without sessions runs nothing, and a closed one keeps none.
func TestApplyErrors(t *testing.T) {
	s := bfd.NewServer(slog.New(slog.DiscardHandler), nil)
	must(t, s.Apply(nil))
	if err := s.Apply([]bfd.Config{dst("10.0.0.2"), dst("10.0.0.2")}); err == nil || !strings.Contains(err.Error(), "there are two") {
		t.Errorf("two sessions with one peer: %v", err)
	}
	bad := dst("10.0.0.2")
	bad.Interval = time.Nanosecond
	if err := s.Apply([]bfd.Config{bad}); err == nil {
		t.Error("a session with a bad interval is accepted")
	}
	if got := s.Statuses(); len(got) != 0 {
		t.Errorf("sessions: %+v", got)
	}
	must(t, s.Close(context.Background()))
	if err := s.Apply([]bfd.Config{dst("10.0.0.2")}); !errors.Is(err, bfd.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}
