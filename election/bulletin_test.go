package election

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/lease"
)

func TestBulletinTellsChangesOnce(t *testing.T) {
	var log book
	b := newBulletin(log.logger())
	now := time.Now()
	three := &lease.Electorate{Members: []string{"m1", "m2", "m3"}, Duration: time.Second}
	longer := &lease.Electorate{Members: three.Members, Duration: 2 * time.Second}
	odd := lease.MemberStatus{Name: "m2", Heard: now, Active: longer.Digest(), Problem: "its electorate is another"}
	even := lease.MemberStatus{Name: "m2", Heard: now, Active: three.Digest()}
	gone := lease.MemberStatus{Name: "m2", Heard: now.Add(-time.Minute), Active: longer.Digest(), Problem: "silent for 1m"}
	for i, step := range []struct {
		say  lease.Status
		line string // empty: none
	}{
		{lease.Status{Pending: three, Problem: "waiting for a majority"}, "takes no part"},
		{lease.Status{Active: three}, "in force"},
		{lease.Status{Active: three, Pending: longer}, "changes when all"},
		{lease.Status{Active: three}, "taken back"},
		{lease.Status{Active: three, Members: []lease.MemberStatus{odd}}, "another electorate"},
		{lease.Status{Active: three, Members: []lease.MemberStatus{even}}, ""},
		{lease.Status{Active: three, Members: []lease.MemberStatus{gone}}, ""},
		{lease.Status{Active: three, Members: []lease.MemberStatus{odd}}, "another electorate"},
		{lease.Status{Active: longer}, "in force"},
	} {
		before, of := log.count("level="), log.count(step.line)
		for range 3 {
			b.post(now, step.say)
		}
		want := 0
		if step.line != "" {
			want = 1
		}
		if n := log.count("level=") - before; n != want || want == 1 && log.count(step.line) != of+1 {
			t.Errorf("step %d: %d lines, want %d with %q:\n%v", i, n, want, step.line, &log)
		}
	}
}
