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
	want := []admin.Lease{
		{VIP: "free", Reason: "no member campaigns for it; here herald drain", Needed: 2},
		{VIP: "held", Holder: "m2", Needed: 2},
		{VIP: "new", Reason: "no election: the file of this node has no election section; here apiserver: connection refused"},
		{VIP: "stood-for", Reason: "being elected", Needed: 2, Stands: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
