package flat

import (
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/testenv/fabric"
)

// nobody takes no notice of events.
type nobody struct{}

func (nobody) LeasesChanged()                             {}
func (nobody) AliveChanged([]string)                      {}
func (nobody) MemberStatesChanged([]election.MemberState) {}

// Several leases are held together until the first of them ends, and only if all are held.
func TestLeasesTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // https://go.dev/issue/78156
	synctest.Test(t, func(t *testing.T) {
		l := &Leases{Speaker: nobody{}}
		l.Election = election.NewOver(slog.New(slog.DiscardHandler), fabric.New().Open, struct {
			*Leases
			nobody
		}{l, nobody{}})
		home := netip.MustParseAddrPort("10.0.0.1:7946")
		c := &election.Config{Self: "m1", Settings: electorate.Settings{Keys: [][]byte{make([]byte, 16)}, Lease: time.Second, Members: map[string]netip.AddrPort{"m1": home}}}
		if err := l.Apply(c); err != nil {
			t.Fatal(err)
		}
		defer time.Sleep(time.Minute) // memberlist ends its last goroutines
		defer l.Close()
		const name, low, high = "cp", "10.4.0.10", "fd00::10"
		gain := func(c lease.Candidacy) {
			l.Campaign(c)
			time.Sleep(3 * time.Second)
		}
		expect := func(want speaker.Lease, leases ...string) {
			t.Helper()
			got := l.Lease(leases...)
			if held := !got.Until.IsZero(); held != (want.Reason == "") || got.Reason != want.Reason || got.Partial != want.Partial || got.Transfer != want.Transfer {
				t.Errorf("%v: %+v, want %+v", leases, got, want)
			}
		}
		free := "no holder: no member campaigns for it: none is healthy, or all are drained"
		gain(lease.Candidacy{Lease: name})
		expect(speaker.Lease{}, name)
		expect(speaker.Lease{Reason: free}, name, low)
		gain(lease.Candidacy{Lease: low, After: name})
		expect(speaker.Lease{}, name, low)
		expect(speaker.Lease{Reason: free}, name, low, high) // it may still get the last one
		time.Sleep(time.Second / 7)
		l.Campaign(lease.Candidacy{Lease: high, After: low})
		time.Sleep(10 * time.Millisecond)
		all, first := l.Lease(name, low, high), l.Lease(name)
		if latest := l.Lease(high); !all.Until.Equal(first.Until) || !all.Until.Before(latest.Until) {
			t.Errorf("held until %v, want the earliest of %v and %v", all.Until, first.Until, latest.Until)
		}
		l.Transfer([]lease.Transfer{{Lease: name, To: "m2", Reason: "it is better"}})
		expect(speaker.Lease{Transfer: "handed over to m2: it is better"}, name, low, high)
		l.StepDown(name, low, high)
		expect(speaker.Lease{Reason: free}, name, low, high)
	})
}
