package daemon

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
)

func TestLeasesOfAllVIPs(t *testing.T) {
	known := []lease.LeaseStatus{
		{Lease: "held", Holder: "m2", Needed: 2},
		{Lease: "stood-for", Why: "being elected", Needed: 2, Campaigning: true},
		{Lease: "free", Why: "no member campaigns for it", Needed: 2},
	}
	got := adminLeases(time.Now(), known, []speaker.Status{
		{Name: "stood-for", Announce: speaker.ByARP, Reason: "no holder: being elected"},
		{Name: "new", Announce: speaker.ByARP, Reason: "apiserver: connection refused"},
		{Name: "new", Announce: speaker.ByARP, Reason: "its other address"},
		{Name: "free", Announce: speaker.ByARP, Reason: "herald drain"},
		{Name: "held", Announce: speaker.ByARP, Reason: "apiserver: connection refused"},
		{Name: "routed", Reason: "apiserver: connection refused"},
	}, election.New(slog.New(slog.DiscardHandler), nil).Lease)
	const none = "no election: the file of this node has no election section"
	want := []admin.Lease{
		{LeaseStatus: known[2], Reason: "no member campaigns for it; here herald drain"},
		{LeaseStatus: known[0]},
		{LeaseStatus: lease.LeaseStatus{Lease: "new", Why: none}, Reason: none + "; here apiserver: connection refused"},
		{LeaseStatus: known[1], Reason: "being elected"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
