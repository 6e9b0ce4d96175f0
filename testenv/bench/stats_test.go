package bench

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// took is a duration in milliseconds.
func took(ms int) *time.Duration {
	d := time.Duration(ms) * time.Millisecond
	return &d
}

func TestSample(t *testing.T) {
	tests := []struct {
		name string
		in   []*time.Duration
		want string
	}{
		{"nothing", nil, "–"},
		{"one", []*time.Duration{took(7)}, "7.0 (7.0–7.0)"},
		{"odd", []*time.Duration{took(30), took(10), took(20)}, "20 (10–30)"},
		{"even", []*time.Duration{took(40), took(10), took(20), took(30)}, "25 (10–40)"},
		{"zero", []*time.Duration{took(0), took(0)}, "0 (0–0)"},
		{"some never", []*time.Duration{nil, took(10), took(20)}, "20 (10–never)"},
		{"half never", []*time.Duration{nil, took(10), took(20), nil}, "never"},
		{"all never", []*time.Duration{nil}, "never"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSample(tt.in)
			if got := s.String(); got != tt.want {
				t.Errorf("%v: %s, want %s", s, got, tt.want)
			}
			if s.Len() != len(tt.in) {
				t.Errorf("Len: %d", s.Len())
			}
		})
	}
}

// TestFloor wants the router's own time only where it was plainly told to withdraw.
func TestFloor(t *testing.T) {
	tests := []struct {
		name  string
		trial Trial
		want  time.Duration
		known bool
	}{
		{"withdrawal", Trial{Word: Withdrawal, Told: took(3), Gone: took(70)}, 67 * time.Millisecond, true},
		{"another word", Trial{Word: Notification, Told: took(3), Gone: took(70)}, 0, false},
		{"never told", Trial{Gone: took(70)}, 0, false},
		{"never gone", Trial{Word: Withdrawal, Told: took(3)}, 0, false},
		{"gone before", Trial{Word: Withdrawal, Told: took(70), Gone: took(3)}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, known := tt.trial.Floor(); got != tt.want || known != tt.known {
				t.Errorf("%v, %t; want %v, %t", got, known, tt.want, tt.known)
			}
		})
	}
}

// TestSummaries wants trials grouped, in the order of their first appearance,
// and summed up.
func TestSummaries(t *testing.T) {
	r := example()
	var got []string
	for _, s := range r.Summaries() {
		got = append(got, s.Router+"/"+s.Fault+"/"+s.Speaker)
	}
	want := []string{
		"FRR/apiserver killed/herald", "FRR/apiserver killed/FRR, script 0.2 s", "FRR/power loss/herald", "FRR/drain/herald",
		"BIRD/apiserver killed/herald", "layer 2/apiserver killed/herald, lease 600 ms", "layer 2/apiserver killed/keepalived, tuned",
		"layer 2/drain/herald, lease 600 ms", "layer 2/speaker killed/herald, lease 600 ms", "layer 2/speaker killed/herald, lease 200 ms",
		"layer 2/speaker killed/keepalived, tuned", "layer 2/parted, then healed/herald, lease 200 ms",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	first := r.Summaries()[0]
	if first.Trials != 2 || first.Failed != 9 || first.Attempts != 300 {
		t.Errorf("the first is %+v", first)
	}
	if floor := r.Floor("FRR"); floor.String() != "64 (61–67)" {
		t.Errorf("the floor is %s", floor)
	}
}

// example is a small run with everything in it.
func example() *Results {
	trial := func(speaker, fault, router string, number int, change func(*Trial)) Trial {
		t := Trial{Speaker: speaker, Fault: fault, Router: router, Number: number, Master: masterOf(number), Limit: 10 * time.Second, Attempts: 150}
		change(&t)
		return t
	}
	const killed, loss = "apiserver killed", "power loss"
	return &Results{
		Setting: Setting{
			Began:    time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
			Took:     90 * time.Second,
			Machine:  Machine{CPU: "Example CPU", Cores: 2, Memory: 8 << 30, Kernel: "6.1.0"},
			Versions: map[string]string{"Herald": "v1.0.0", "FRR": "8.4.4", "BIRD": "2.0.12", "keepalived": "2.2.7"},
		},
		Trials: []Trial{
			trial("herald", killed, "FRR", 1, func(t *Trial) {
				t.Told, t.Word, t.Gone, t.Back, t.Failed, t.Outage = took(2), Withdrawal, took(63), took(300), 5, 50*time.Millisecond
			}),
			trial("herald", killed, "BIRD", 1, func(t *Trial) { t.Told, t.Word, t.Gone = took(2), Withdrawal, took(3) }),
			trial("herald", killed, "FRR", 2, func(t *Trial) {
				t.Told, t.Word, t.Gone, t.Back, t.Failed, t.Outage = took(4), Withdrawal, took(71), took(500), 4, 40*time.Millisecond
			}),
			trial("herald", loss, "FRR", 1, func(t *Trial) { t.Gone, t.Failed, t.Outage = took(2700), 90, 2690*time.Millisecond }),
			trial("FRR, script 0.2 s", killed, "FRR", 1, func(t *Trial) { t.Failed, t.Open, t.Outage = 50, true, 9*time.Second }),
			trial("herald", "drain", "FRR", 1, func(t *Trial) {
				t.Planned, t.Told, t.Word, t.Gone, t.Attempts = true, took(20), Announcement, took(90), 500
				t.Starved, t.Late = 3, 12*time.Millisecond
			}),
			trial(heraldARPName(defaultLease), killed, NoRouter, 1, func(t *Trial) {
				t.Failed, t.Outage, t.Taken, t.After, t.Holders = 2, 9*time.Millisecond, took(8), took(0), 1
			}),
			trial(heraldARPName(defaultLease), "drain", NoRouter, 1, func(t *Trial) { t.Planned, t.Taken, t.Holders = true, took(20), 1 }),
			trial(heraldARPName(defaultLease), speakerKilled, NoRouter, 1, func(t *Trial) {
				t.Failed, t.Outage, t.Taken, t.After, t.Holders = 20, 90*time.Millisecond, took(560), took(0), 1
			}),
			trial(heraldARPName(shortLease), speakerKilled, NoRouter, 1, func(t *Trial) {
				t.Failed, t.Outage, t.Taken, t.After, t.Holders = 20, 80*time.Millisecond, took(180), took(0), 1
			}),
			trial(heraldARPName(shortLease), parted, NoRouter, 1, func(t *Trial) {
				t.Failed, t.Outage, t.Taken, t.After, t.Holders, t.Split = 90, 450*time.Millisecond, took(180), took(35), 2, 12*time.Millisecond
			}),
			trial("keepalived, tuned", killed, NoRouter, 1, func(t *Trial) { t.Failed, t.Outage, t.After = 60, 300*time.Millisecond, took(0) }),
			trial("keepalived, tuned", speakerKilled, NoRouter, 1, func(t *Trial) { t.Taken, t.After, t.Holders, t.Split = took(300), took(0), 2, 1500*time.Millisecond }),
		},
	}
}
