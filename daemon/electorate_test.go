package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/lease"
	"github.com/herald-vip/herald/testenv/netns"
)

func TestChangeNamesWhatAndWho(t *testing.T) {
	three := lease.Electorate{Members: []string{"m1", "m2", "m3"}, Duration: 600 * time.Millisecond}
	longer, four := three, three
	longer.Duration, longer.Quorum = time.Second, lease.None
	four.Members = []string{"m1", "m2", "m3", "m4"}
	status := func(pending *lease.Electorate, members ...lease.MemberStatus) election.Status {
		st := election.Status{Lease: lease.Status{Self: "m1", Active: &three, Pending: pending}}
		for _, m := range members {
			st.Members = append(st.Members, election.Member{MemberStatus: m})
		}
		return st
	}
	behind := lease.MemberStatus{Name: "m2", Active: three.Digest()}
	silent := lease.MemberStatus{Name: "m4", Pending: four.Digest(), Problem: "silent for 3s"}
	for want, st := range map[string]election.Status{
		"": status(nil, behind),
		"to lease 1s, quorum none, once all of its members have it: not yet m2": status(&longer, behind,
			lease.MemberStatus{Name: "m3", Active: three.Digest(), Pending: longer.Digest()}),
		"to members m1, m2, m3, m4, once all of its members have it: not yet m2, m4": status(&four, behind,
			lease.MemberStatus{Name: "m3", Active: four.Digest()}, silent),
	} {
		if got := change(st); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	waits := election.Member{MemberStatus: lease.MemberStatus{Name: "m3", Active: three.Digest(), Pending: longer.Digest()}}
	if ahead(status(nil), waits) == "" || ahead(status(&longer), waits) != "" || ahead(status(nil), election.Member{MemberStatus: behind}) != "" {
		t.Error("only who waits for what this node was not given is ahead")
	}
}

// A node without a vote takes part from the address that it reaches a member from, and
// goes on to, whatever becomes of the list.
func TestBindWithoutAVote(t *testing.T) {
	members := func(addrs ...string) *config.Config {
		c := &config.Config{NodeName: "w1", Election: &config.Election{Members: make(map[string]netip.AddrPort)}}
		for i, a := range addrs {
			c.Election.Members[fmt.Sprintf("m%d", i)] = netip.MustParseAddrPort(a)
		}
		return c
	}
	ns, _ := netns.New(t)
	find := func(g *segment, c *config.Config) (bind netip.AddrPort, err error) {
		t.Helper()
		if failed := netns.In(ns, func() error { bind, err = g.bindFor(c); return nil }); failed != nil {
			t.Fatal(failed)
		}
		return bind, err
	}
	g := new(segment)
	if bind, err := find(g, members("198.51.100.1:7946")); err == nil || !strings.Contains(err.Error(), "election.bind is not set") {
		t.Errorf("no member can be reached: %v, %v", bind, err)
	}
	for _, list := range [][]string{{"198.51.100.1:7946", "127.0.0.9:7946"}, {"198.51.100.1:7946"}} {
		if bind, err := find(g, members(list...)); err != nil || bind != netip.MustParseAddrPort("127.0.0.1:0") {
			t.Errorf("with %v: %v, %v", list, bind, err)
		}
	}
	set := members("198.51.100.1:7946")
	set.Election.Bind = netip.MustParseAddrPort("192.0.2.1:7946")
	if bind, err := find(g, set); err != nil || bind != set.Election.Bind {
		t.Errorf("with a bind: %v, %v", bind, err)
	}
}
