package observe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/holders"
)

var vip4, vip6 = netip.MustParseAddr("10.3.0.100"), netip.MustParseAddr("fd00:3::100")

// observation returns an observation of a master after some milliseconds.
func observation(ms int, master string, act holders.Act, vip netip.Addr) holders.Observation {
	at := time.Duration(ms) * time.Millisecond
	return holders.Observation{At: at, Asked: at, VIP: vip, Master: master, Act: act}
}

func TestTakenOver(t *testing.T) {
	const since = 100 * time.Millisecond
	tests := []struct {
		name string
		list []holders.Observation
		want time.Duration
		ok   bool
	}{
		{"nothing", nil, 0, false},
		{"the holder alone", []holders.Observation{observation(110, "m1", holders.Answers, vip4), observation(110, "m1", holders.Answers, vip6)}, 0, false},
		{"one family", []holders.Observation{observation(150, "m2", holders.Announces, vip4)}, 50 * time.Millisecond, false},
		{"both", []holders.Observation{
			observation(150, "m2", holders.Announces, vip4), observation(160, "m2", holders.Answers, vip6), observation(190, "m2", holders.Answers, vip4),
		}, 60 * time.Millisecond, true},
		{"beside the holder", []holders.Observation{
			observation(150, "m1", holders.Answers, vip4), observation(151, "m3", holders.Answers, vip4), observation(152, "m2", holders.Answers, vip6),
		}, 52 * time.Millisecond, true},
		{"packets are no claim", []holders.Observation{observation(150, "m2", holders.Accepts, vip4), observation(150, "m2", holders.Accepts, vip6)}, 0, false},
		{"before the fault", []holders.Observation{observation(50, "m2", holders.Answers, vip4), observation(50, "m2", holders.Answers, vip6)}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := TakenOver(&holders.Trace{Observations: tt.list}, []netip.Addr{vip4, vip6}, "m1", since)
			if ok != tt.ok || ok && got != tt.want {
				t.Errorf("%v, %t; want %v, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// TestAddHolders checks that two masters claiming the VIP are reported, with the
// duration, but not before the fault.
func TestAddHolders(t *testing.T) {
	var both []holders.Observation
	for at := 0; at <= 500; at += 10 {
		both = append(both, observation(at, "m1", holders.Answers, vip4))
		if at >= 200 && at <= 400 {
			both = append(both, observation(at, "m2", holders.Answers, vip4))
		}
	}
	var trial Seen
	trial.AddHolders(&holders.Trace{Observations: both}, 100*time.Millisecond)
	if trial.Holders != 2 || trial.Split < 190*time.Millisecond || trial.Split > 210*time.Millisecond {
		t.Errorf("%d holders for %v, want 2 for 200 ms", trial.Holders, trial.Split)
	}
	trial = Seen{}
	trial.AddHolders(&holders.Trace{Observations: both}, 450*time.Millisecond)
	if trial.Holders != 1 || trial.Split != 0 {
		t.Errorf("%d holders for %v, want 1: the other was before", trial.Holders, trial.Split)
	}
}

// TestAddClients has two clients, one per family, and a fault that was undone after three seconds.
func TestAddClients(t *testing.T) {
	began := time.Now()
	client := func(failed func(time.Duration) bool) *probe.Result {
		r := &probe.Result{Began: began, MaxDelay: time.Millisecond}
		for at := time.Duration(0); at < 6*time.Second; at += 10 * time.Millisecond {
			a := probe.Attempt{Start: at, Outcome: probe.OK}
			if failed(at) {
				a.Outcome = probe.Timeout
			}
			r.Attempts = append(r.Attempts, a)
		}
		return r
	}
	between := func(start, end time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return at >= start && at < end }
	}
	list := []*probe.Result{
		client(between(time.Second, 1200*time.Millisecond)),
		client(func(at time.Duration) bool {
			return between(time.Second, 1500*time.Millisecond)(at) || between(4*time.Second, 4100*time.Millisecond)(at)
		}),
	}
	var unplanned Seen
	unplanned.AddClients(list, began.Add(3*time.Second))
	after := 100 * time.Millisecond
	want := Seen{Attempts: 600, Failed: 70, Outage: 500 * time.Millisecond, After: &after, Late: time.Millisecond}
	if diff := cmp.Diff(want, unplanned); diff != "" {
		t.Errorf("unplanned (-want +got):\n%s", diff)
	}
	var planned Seen
	planned.AddClients(list, time.Time{})
	want = Seen{Attempts: 1200, Failed: 80, Outage: 500 * time.Millisecond, Late: time.Millisecond}
	if diff := cmp.Diff(want, planned); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
}
