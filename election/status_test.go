package election

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

func TestChangeDescribesChangeAndMembers(t *testing.T) {
	three := electorate.Electorate{Members: []string{"m1", "m2", "m3"}, Duration: 600 * time.Millisecond}
	longer, four := three, three
	longer.Duration, longer.Quorum = time.Second, electorate.None
	four.Members = []string{"m1", "m2", "m3", "m4"}
	status := func(desired *electorate.Electorate, members ...Member) Status {
		return Status{Lease: lease.Status{Self: "m1", Active: &three, Desired: desired}, Members: members}
	}
	behind := Member{Name: "m2", FullName: "m2", Desired: three.Digest(), Voter: true}
	silent := Member{Name: "m4", FullName: "m4", Desired: four.Digest(), Problem: "no packet for 3s"}
	for want, st := range map[string]Status{
		"": status(nil, behind),
		"to lease 1s, quorum none, once all of its members have it: not yet m2": status(&longer, behind,
			Member{Name: "m3", FullName: "m3", Desired: longer.Digest(), Voter: true}),
		"to members m1, m2, m3, m4, once all of its members have it: not yet m2, m4": status(&four, behind,
			Member{Name: "m3", FullName: "m3", Desired: four.Digest()}, silent),
	} {
		if got := st.Change(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	waits := Member{Name: "m3", FullName: "m3", Desired: longer.Digest(), Voter: true}
	if status(nil).Ahead(waits) == "" || status(&longer).Ahead(waits) != "" || status(nil).Ahead(behind) != "" {
		t.Error("a member without a different configuration is ahead")
	}
}
