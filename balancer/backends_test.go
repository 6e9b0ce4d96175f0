package balancer

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// parse reads observations such as "m1 healthy, m2 timed-out unhealthy, m3 gone leaving".
func parse(t *testing.T, text string) []observation {
	t.Helper()
	var all []observation
	for _, item := range strings.Split(text, ", ") {
		fields := strings.Fields(item)
		if len(fields) == 0 {
			continue
		}
		o := observation{name: fields[0], reason: strings.Join(fields[1:], " ")}
		o.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, fields[0][1] - '0'}), 6443)
		for _, f := range fields[1:] {
			switch f {
			case "healthy":
				o.condition = healthy
			case "leaving":
				o.condition = leaving
			case "unhealthy":
				o.condition = unhealthy
			case "timed-out":
				o.timedOut, o.gone = true, true
			case "gone":
				o.gone = true
			case "unknown":
			default:
				t.Fatalf("unknown word %q", f)
			}
		}
		all = append(all, o)
	}
	return all
}

func states(bs *backends) string {
	var all []string
	for _, b := range bs.sorted() {
		all = append(all, b.Name+" "+string(b.State))
	}
	return strings.Join(all, ", ")
}

func TestBackends(t *testing.T) {
	type step struct {
		at   time.Duration // since the start
		see  string        // "-": no new observations
		want string
	}
	for name, steps := range map[string][]step{
		"the condition decides": {
			{0, "m1 healthy, m2 unhealthy, m3 leaving", "m1 serving, m2 dead, m3 draining"},
			{1 * time.Second, "m1 unhealthy, m2 healthy, m3 healthy", "m1 dead, m2 serving, m3 serving"},
		},
		"a backend without a result gets no connections": {
			{0, "m1 unknown, m2 healthy", "m1 draining, m2 serving"},
			{farewell, "-", "m1 dead, m2 serving"},
			{farewell, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
		},
		"no backend has a result yet": {
			{0, "m1 unknown, m2 unknown", "m1 draining, m2 draining"},
		},
		"a timed-out backend drains and dies soon": {
			{0, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{1 * time.Second, "m1 healthy, m2 timed-out healthy", "m1 serving, m2 draining"},
			{1*time.Second + grace - 1, "-", "m1 serving, m2 draining"},
			{1*time.Second + grace, "-", "m1 serving, m2 dead"},
			{10 * time.Second, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{11 * time.Second, "m1 healthy, m2 timed-out healthy", "m1 serving, m2 draining"},
			{11*time.Second + grace/2, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{11*time.Second + grace, "-", "m1 serving, m2 serving"},
		},
		"this node is cut off, and receives from them again one after the other": {
			{0, "m1 healthy, m2 healthy, m3 healthy", "m1 serving, m2 serving, m3 serving"},
			{1 * time.Second, "m1 timed-out healthy, m2 healthy, m3 healthy", "m1 draining, m2 serving, m3 serving"},
			{1100 * time.Millisecond, "m1 timed-out healthy, m2 timed-out healthy, m3 healthy", "m1 draining, m2 draining, m3 serving"},
			{1200 * time.Millisecond, "m1 timed-out healthy, m2 timed-out healthy, m3 timed-out healthy", "m1 serving, m2 serving, m3 serving"},
			{time.Minute, "m1 healthy, m2 timed-out healthy, m3 timed-out healthy", "m1 serving, m2 draining, m3 draining"},
			{time.Minute + grace/2, "m1 healthy, m2 healthy, m3 timed-out healthy", "m1 serving, m2 serving, m3 draining"},
			{time.Minute + grace, "-", "m1 serving, m2 serving, m3 dead"},
		},
		"a killed backend is started again": {
			{0, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{1 * time.Second, "m1 timed-out healthy, m2 healthy", "m1 draining, m2 serving"},
			{2 * time.Second, "m1 unknown, m2 healthy", "m1 draining, m2 serving"},
			{3 * time.Second, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
		},
		"the timeout of all is this node's fault": {
			{0, "m1 healthy, m2 healthy, m3 unhealthy", "m1 serving, m2 serving, m3 dead"},
			{1 * time.Second, "m1 timed-out healthy, m2 timed-out healthy, m3 timed-out unhealthy", "m1 serving, m2 serving, m3 dead"},
			{2 * time.Second, "m1 healthy, m2 timed-out healthy, m3 timed-out unhealthy", "m1 serving, m2 draining, m3 dead"},
			{2*time.Second + grace, "-", "m1 serving, m2 dead, m3 dead"},
		},
		"timed-out backends replace unhealthy ones": {
			{0, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{1 * time.Second, "m1 timed-out healthy, m2 healthy", "m1 draining, m2 serving"},
			{2 * time.Second, "m1 timed-out healthy, m2 unhealthy", "m1 serving, m2 dead"},
		},
		"a new backend has timed out": {
			{0, "m1 timed-out unknown, m2 healthy", "m1 dead, m2 serving"},
		},
		"the last resort drains and serves": {
			{0, "m1 leaving, m2 healthy, m3 timed-out healthy", "m1 draining, m2 serving, m3 draining"},
			{1 * time.Second, "m1 leaving, m2 unhealthy, m3 timed-out healthy", "m1 serving, m2 dead, m3 draining"},
			{grace, "m1 leaving, m2 healthy, m3 timed-out healthy", "m1 draining, m2 serving, m3 dead"},
		},
		"no last resort is left": {
			{0, "m1 unhealthy, m2 unhealthy", "m1 dead, m2 dead"},
		},
		"an upgraded backend drains, times out and returns": {
			{0, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{1 * time.Second, "m1 leaving, m2 healthy", "m1 draining, m2 serving"},
			{2 * time.Second, "m1 timed-out leaving, m2 healthy", "m1 draining, m2 serving"},
			{5 * time.Second, "m1 unknown, m2 healthy", "m1 draining, m2 serving"},
			{6 * time.Second, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
		},
		"a drained backend does not return": {
			{0, "m1 leaving, m2 healthy", "m1 draining, m2 serving"},
			{1 * time.Second, "m1 timed-out leaving, m2 healthy", "m1 draining, m2 serving"},
			{2 * time.Second, "m2 healthy", "m1 draining, m2 serving"},
			{farewell, "-", "m1 draining, m2 serving"},
			{1*time.Second + farewell, "-", "m1 dead, m2 serving"},
		},
		"the only backend restarts": {
			{0, "m1 healthy", "m1 serving"},
			{1 * time.Second, "m1 leaving", "m1 serving"},
			{2 * time.Second, "m1 timed-out leaving", "m1 serving"},
			{3 * time.Second, "m1 unknown", "m1 serving"},
			{4 * time.Second, "m1 unhealthy", "m1 dead"},
		},
		"an unhealthy backend restarts": {
			{0, "m1 unhealthy, m2 healthy", "m1 dead, m2 serving"},
			{1 * time.Second, "m1 unknown, m2 healthy", "m1 dead, m2 serving"},
		},
		"a gone backend is forgotten": {
			{0, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{time.Hour, "m1 timed-out healthy, m2 healthy", "m1 draining, m2 serving"},
			{2 * time.Hour, "m2 healthy", "m1 dead, m2 serving"},
			{5*time.Hour - 1, "-", "m1 dead, m2 serving"},
			{5 * time.Hour, "-", "m2 serving"},
		},
		"a backend that returns is not forgotten": {
			{0, "m1 timed-out healthy, m2 healthy", "m1 draining, m2 serving"},
			{time.Hour, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{4 * time.Hour, "-", "m1 serving, m2 serving"},
		},
		"a last resort is not forgotten": {
			{0, "m1 healthy", "m1 serving"},
			{time.Second, "m1 timed-out healthy", "m1 serving"},
			{5 * time.Hour, "-", "m1 serving"},
			{5 * time.Hour, "m2 healthy", "m2 serving"},
		},
		"an address that is no longer listed drains and is forgotten": {
			{0, "m1 healthy, m2 healthy", "m1 serving, m2 serving"},
			{time.Second, "m1 gone leaving, m2 healthy", "m1 draining, m2 serving"},
			{time.Minute, "m1 gone unhealthy, m2 healthy", "m1 dead, m2 serving"},
			{4*time.Hour + time.Second, "-", "m2 serving"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bs := newBackends(4 * time.Hour)
			start := time.Unix(1_000_000, 0)
			var next time.Time
			for _, s := range steps {
				now := start.Add(s.at)
				before := states(&bs)
				if s.see != "-" {
					bs.observe(now, parse(t, s.see))
				}
				due := !next.IsZero() && !now.Before(next)
				_, next = bs.update(now)
				got := states(&bs)
				if got != s.want {
					t.Fatalf("at %v, observed %q: %s, want %s", s.at, s.see, got, s.want)
				}
				if s.see == "-" && got != before && !due {
					t.Errorf("at %v: a state changed before it was due", s.at)
				}
				if !next.IsZero() && !next.After(now) {
					t.Errorf("at %v: the next update is due at once again", s.at)
				}
			}
		})
	}
}

func TestBackendsOfOneAddress(t *testing.T) {
	bs := newBackends(time.Hour)
	now := time.Unix(1_000_000, 0)
	for range 10 { // map order varies
		old, renamed := parse(t, "m1 timed-out healthy")[0], parse(t, "m1 unhealthy")[0]
		old.name = "old"
		bs.observe(now, []observation{old, renamed})
		bs.update(now)
		bs.observe(now, []observation{renamed, old})
		bs.update(now)
		if got := states(&bs); got != "m1 dead" {
			t.Fatalf("%s, want the one that has not timed out", got)
		}
	}
}

func TestBackendsTellChanges(t *testing.T) {
	bs := newBackends(time.Hour)
	now := time.Unix(1_000_000, 0)
	expect := func(see, want string) {
		t.Helper()
		bs.observe(now, parse(t, see))
		changed, _ := bs.update(now)
		var got []string
		for _, b := range changed {
			got = append(got, b.Name+" "+string(b.State)+": "+b.Reason)
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%q: changed %q, want %q", see, got, want)
		}
	}
	expect("m1 unknown, m2 healthy", "m2 serving: healthy")
	expect("m1 healthy, m2 healthy", "m1 serving: healthy")
	expect("m1 healthy, m2 healthy", "")
	expect("m1 leaving, m2 unhealthy", "m2 dead: unhealthy")
	since := bs.sorted()[1].since
	now = now.Add(time.Second)
	expect("m1 leaving, m2 unhealthy", "")
	if got := bs.sorted()[1].since; !got.Equal(since) {
		t.Errorf("since %v, want %v: the state is the same", got, since)
	}
	if got, want := bs.sorted()[0].Reason, "leaving, but no other backend serves"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

func TestGoneBackendsAreLimited(t *testing.T) {
	bs := newBackends(time.Hour)
	now := time.Unix(1_000_000, 0)
	for i := range 3 * maxGone {
		now = now.Add(time.Second)
		o := parse(t, "m1 healthy")[0]
		o.addr = netip.MustParseAddrPort(fmt.Sprintf("10.0.1.%d:6443", i))
		bs.observe(now, []observation{o})
		bs.update(now)
	}
	if len(bs.known) != maxGone+1 {
		t.Errorf("%d backends are known, want %d and the serving one", len(bs.known), maxGone)
	}
	if bs.known[netip.MustParseAddrPort("10.0.1.0:6443")] != nil {
		t.Error("the backend that has been gone for longest is still known")
	}
}

// TimedOut is set for formerly healthy backends, not for leaving ones.
func TestTimedOutBackendsAreMarked(t *testing.T) {
	bs := newBackends(time.Hour)
	start := time.Now()
	bs.observe(start, parse(t, "m1 healthy, m2 leaving, m3 healthy"))
	bs.update(start)
	bs.observe(start.Add(time.Second), parse(t, "m1 timed-out healthy, m2 timed-out leaving, m3 healthy"))
	bs.update(start.Add(time.Second))
	for _, b := range bs.sorted() {
		if want := b.Name == "m1"; b.TimedOut != want {
			t.Errorf("%s has timed out: %t, want %t", b.Name, b.TimedOut, want)
		}
	}
}
