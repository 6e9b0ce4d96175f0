package daemon

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/lease"
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
