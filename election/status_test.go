package election

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"

	"github.com/herald-vip/herald/testenv/recorder"
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

func TestStatusLogReportsChangesOnce(t *testing.T) {
	var log recorder.Log
	b := newStatusLog(log.Logger())
	three := &electorate.Electorate{Members: []string{"m1", "m2", "m3"}, Duration: time.Second}
	longer := &electorate.Electorate{Members: three.Members, Duration: 2 * time.Second}
	with := func(m Member) Status {
		m.Name, m.FullName, m.Voter = "m2", "m2", true
		return Status{Lease: lease.Status{Self: "m1", Active: three}, Members: []Member{{Name: "m1", FullName: "m1", Self: true, Alive: true}, m}}
	}
	odd := with(Member{Alive: true, Divergent: true, Problem: "its electorate is another"})
	even := with(Member{Alive: true})
	gone := with(Member{Problem: "no packet for 1m"})
	parted := with(Member{TCPOnly: true, Problem: "no packet for 1m"})
	lags := lease.Status{Active: longer, Lag: "it is configured with another"}
	observer, observerGone := Status{Lease: lags}, Status{Lease: lags}
	observer.Members = []Member{{Alive: true, Name: "w1", FullName: "w1", Divergent: true, Problem: "its electorate is another"}}
	observerGone.Members = []Member{{Name: "w1", FullName: "w1"}}
	for i, step := range []struct {
		say  Status
		line string // empty: none
	}{
		{Status{Lease: lease.Status{Desired: three, Problem: "waiting for a majority"}}, "takes no part"},
		{Status{Lease: lease.Status{Active: three}}, "in force"},
		{Status{Lease: lease.Status{Active: three, Desired: longer}}, "changes once all"},
		{Status{Lease: lease.Status{Active: three}}, "withdrawn"},
		{even, "is alive"},
		{odd, "electorate of a member diverges"},
		{even, ""},
		{odd, "electorate of a member diverges"},
		{gone, "cannot be reached"},
		{parted, "UDP does not get through"},
		{gone, ""},
		{parted, ""},
		{even, "is alive"},
		{gone, "cannot be reached"},
		{parted, "UDP does not get through"},
		{Status{Lease: lease.Status{Active: longer}}, "in force"},
		{Status{Lease: lags}, "whose electorate differs"},
		{observer, ""},
		{observerGone, "cannot be reached"},
	} {
		before, lines := log.Count("level="), log.Count(step.line)
		for range 3 {
			b.log(step.say)
		}
		want := 0
		if step.line != "" {
			want = 1
		}
		if n := log.Count("level=") - before; n != want || want == 1 && log.Count(step.line) != lines+1 {
			t.Errorf("step %d: %d lines, want %d with %q:\n%v", i, n, want, step.line, &log)
		}
	}
}
