package balancer

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// parse reads sightings such as "m1 well, m2 silent sick, m3 gone leaving".
func parse(t *testing.T, text string) []sighting {
	t.Helper()
	var all []sighting
	for _, item := range strings.Split(text, ", ") {
		fields := strings.Fields(item)
		if len(fields) == 0 {
			continue
		}
		s := sighting{name: fields[0], reason: strings.Join(fields[1:], " ")}
		s.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, fields[0][1] - '0'}), 6443)
		for _, f := range fields[1:] {
			switch f {
			case "well":
				s.said = well
			case "leaving":
				s.said = leaving
			case "sick":
				s.said = sick
			case "silent":
				s.silent, s.gone = true, true
			case "gone":
				s.gone = true
			case "mum": // no verdict
			default:
				t.Fatalf("unknown word %q", f)
			}
		}
		all = append(all, s)
	}
	return all
}

func states(bs *backends) string {
	var all []string
	for _, b := range bs.sorted() {
		all = append(all, b.Name+" "+b.State.String())
	}
	return strings.Join(all, ", ")
}

func TestBackends(t *testing.T) {
	type step struct {
		at   time.Duration // since the start
		see  string        // "-": nothing new
		want string
	}
	for name, steps := range map[string][]step{
		"verdicts decide": {
			{0, "m1 well, m2 sick, m3 leaving", "m1 serving, m2 dead, m3 draining"},
			{1 * time.Second, "m1 sick, m2 well, m3 well", "m1 dead, m2 serving, m3 serving"},
		},
		"who has no verdict yet gets nothing": {
			{0, "m1 mum, m2 well", "m1 draining, m2 serving"},
			{farewell, "-", "m1 dead, m2 serving"},
			{farewell, "m1 well, m2 well", "m1 serving, m2 serving"},
		},
		"nobody has a verdict yet": {
			{0, "m1 mum, m2 mum", "m1 draining, m2 draining"},
		},
		"the silent gets nothing new, and is dead soon": {
			{0, "m1 well, m2 well", "m1 serving, m2 serving"},
			{1 * time.Second, "m1 well, m2 silent well", "m1 serving, m2 draining"},
			{1*time.Second + grace - 1, "-", "m1 serving, m2 draining"},
			{1*time.Second + grace, "-", "m1 serving, m2 dead"},
			{10 * time.Second, "m1 well, m2 well", "m1 serving, m2 serving"},
			{11 * time.Second, "m1 well, m2 silent well", "m1 serving, m2 draining"},
			{11*time.Second + grace/2, "m1 well, m2 well", "m1 serving, m2 serving"},
			{11*time.Second + grace, "-", "m1 serving, m2 serving"},
		},
		"this node is cut off, and hears them one after the other": {
			{0, "m1 well, m2 well, m3 well", "m1 serving, m2 serving, m3 serving"},
			{1 * time.Second, "m1 silent well, m2 well, m3 well", "m1 draining, m2 serving, m3 serving"},
			{1100 * time.Millisecond, "m1 silent well, m2 silent well, m3 well", "m1 draining, m2 draining, m3 serving"},
			{1200 * time.Millisecond, "m1 silent well, m2 silent well, m3 silent well", "m1 serving, m2 serving, m3 serving"},
			{time.Minute, "m1 well, m2 silent well, m3 silent well", "m1 serving, m2 draining, m3 draining"},
			{time.Minute + grace/2, "m1 well, m2 well, m3 silent well", "m1 serving, m2 serving, m3 draining"},
			{time.Minute + grace, "-", "m1 serving, m2 serving, m3 dead"},
		},
		"killed, and started again": {
			{0, "m1 well, m2 well", "m1 serving, m2 serving"},
			{1 * time.Second, "m1 silent well, m2 well", "m1 draining, m2 serving"},
			{2 * time.Second, "m1 mum, m2 well", "m1 draining, m2 serving"},
			{3 * time.Second, "m1 well, m2 well", "m1 serving, m2 serving"},
		},
		"the silence of all is this node's": {
			{0, "m1 well, m2 well, m3 sick", "m1 serving, m2 serving, m3 dead"},
			{1 * time.Second, "m1 silent well, m2 silent well, m3 silent sick", "m1 serving, m2 serving, m3 dead"},
			{2 * time.Second, "m1 well, m2 silent well, m3 silent sick", "m1 serving, m2 draining, m3 dead"},
			{2*time.Second + grace, "-", "m1 serving, m2 dead, m3 dead"},
		},
		"silent well ones stand in for sick ones": {
			{0, "m1 well, m2 well", "m1 serving, m2 serving"},
			{1 * time.Second, "m1 silent well, m2 well", "m1 draining, m2 serving"},
			{2 * time.Second, "m1 silent well, m2 sick", "m1 serving, m2 dead"},
		},
		"first heard of as silent": {
			{0, "m1 silent mum, m2 well", "m1 dead, m2 serving"},
		},
		"the last ones drain and serve": {
			{0, "m1 leaving, m2 well, m3 silent well", "m1 draining, m2 serving, m3 draining"},
			{1 * time.Second, "m1 leaving, m2 sick, m3 silent well", "m1 serving, m2 dead, m3 draining"},
			{grace, "m1 leaving, m2 well, m3 silent well", "m1 draining, m2 serving, m3 dead"},
		},
		"none is left that could serve": {
			{0, "m1 sick, m2 sick", "m1 dead, m2 dead"},
		},
		"an upgrade drains, falls silent, and comes back": {
			{0, "m1 well, m2 well", "m1 serving, m2 serving"},
			{1 * time.Second, "m1 leaving, m2 well", "m1 draining, m2 serving"},
			{2 * time.Second, "m1 silent leaving, m2 well", "m1 draining, m2 serving"},
			{5 * time.Second, "m1 mum, m2 well", "m1 draining, m2 serving"},
			{6 * time.Second, "m1 well, m2 well", "m1 serving, m2 serving"},
		},
		"a drained one that stays away": {
			{0, "m1 leaving, m2 well", "m1 draining, m2 serving"},
			{1 * time.Second, "m1 silent leaving, m2 well", "m1 draining, m2 serving"},
			{2 * time.Second, "m2 well", "m1 draining, m2 serving"},
			{farewell, "-", "m1 draining, m2 serving"},
			{1*time.Second + farewell, "-", "m1 dead, m2 serving"},
		},
		"the only one restarts": {
			{0, "m1 well", "m1 serving"},
			{1 * time.Second, "m1 leaving", "m1 serving"},
			{2 * time.Second, "m1 silent leaving", "m1 serving"},
			{3 * time.Second, "m1 mum", "m1 serving"},
			{4 * time.Second, "m1 sick", "m1 dead"},
		},
		"a restart after sickness is still sick": {
			{0, "m1 sick, m2 well", "m1 dead, m2 serving"},
			{1 * time.Second, "m1 mum, m2 well", "m1 dead, m2 serving"},
		},
		"one that is gone is forgotten": {
			{0, "m1 well, m2 well", "m1 serving, m2 serving"},
			{time.Hour, "m1 silent well, m2 well", "m1 draining, m2 serving"},
			{2 * time.Hour, "m2 well", "m1 dead, m2 serving"},
			{5*time.Hour - 1, "-", "m1 dead, m2 serving"},
			{5 * time.Hour, "-", "m2 serving"},
		},
		"one that came back is not": {
			{0, "m1 silent well, m2 well", "m1 draining, m2 serving"},
			{time.Hour, "m1 well, m2 well", "m1 serving, m2 serving"},
			{4 * time.Hour, "-", "m1 serving, m2 serving"},
		},
		"nor is a last resort": {
			{0, "m1 well", "m1 serving"},
			{time.Second, "m1 silent well", "m1 serving"},
			{5 * time.Hour, "-", "m1 serving"},
			{5 * time.Hour, "m2 well", "m2 serving"},
		},
		"an address that is not listed any more drains, and is forgotten": {
			{0, "m1 well, m2 well", "m1 serving, m2 serving"},
			{time.Second, "m1 gone leaving, m2 well", "m1 draining, m2 serving"},
			{time.Minute, "m1 gone sick, m2 well", "m1 dead, m2 serving"},
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
					bs.see(now, parse(t, s.see))
				}
				due := !next.IsZero() && !now.Before(next)
				_, next = bs.update(now)
				got := states(&bs)
				if got != s.want {
					t.Fatalf("at %v, seen %q: %s, want %s", s.at, s.see, got, s.want)
				}
				if s.see == "-" && got != before && !due {
					t.Errorf("at %v: it changed though nothing was due", s.at)
				}
				if !next.IsZero() && !next.After(now) {
					t.Errorf("at %v: the next update is due at once, for ever", s.at)
				}
			}
		})
	}
}

func TestBackendsOfOneAddress(t *testing.T) {
	bs := newBackends(time.Hour)
	now := time.Unix(1_000_000, 0)
	for range 10 { // whatever the order
		old, renamed := parse(t, "m1 silent well")[0], parse(t, "m1 sick")[0]
		old.name = "old"
		bs.see(now, []sighting{old, renamed})
		bs.update(now)
		bs.see(now, []sighting{renamed, old})
		bs.update(now)
		if got := states(&bs); got != "m1 dead" {
			t.Fatalf("%s, want the one that is heard to count", got)
		}
	}
}

func TestBackendsTellChanges(t *testing.T) {
	bs := newBackends(time.Hour)
	now := time.Unix(1_000_000, 0)
	tell := func(see, want string) {
		t.Helper()
		bs.see(now, parse(t, see))
		changed, _ := bs.update(now)
		var got []string
		for _, b := range changed {
			got = append(got, b.Name+" "+b.State.String()+": "+b.Reason)
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%q: told %q, want %q", see, got, want)
		}
	}
	tell("m1 mum, m2 well", "m2 serving: well")
	tell("m1 well, m2 well", "m1 serving: well")
	tell("m1 well, m2 well", "")
	tell("m1 leaving, m2 sick", "m2 dead: sick")
	since := bs.sorted()[1].since
	now = now.Add(time.Second)
	tell("m1 leaving, m2 sick", "")
	if got := bs.sorted()[1].since; !got.Equal(since) {
		t.Errorf("since %v, want %v: its state has not changed", got, since)
	}
	if got, want := bs.sorted()[0].Reason, "leaving, but nobody else serves"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

func TestBackendsAreNotRememberedWithoutEnd(t *testing.T) {
	bs := newBackends(time.Hour)
	now := time.Unix(1_000_000, 0)
	for i := range 3 * maxGone {
		now = now.Add(time.Second)
		s := parse(t, "m1 well")[0]
		s.addr = netip.MustParseAddrPort(fmt.Sprintf("10.0.1.%d:6443", i))
		bs.see(now, []sighting{s})
		bs.update(now)
	}
	if len(bs.known) != maxGone+1 {
		t.Errorf("%d are known, want %d and the one that serves", len(bs.known), maxGone)
	}
	if bs.known[netip.MustParseAddrPort("10.0.1.0:6443")] != nil {
		t.Error("the one that has been gone for longest is still known")
	}
}

// Planes are told who is silent, of those that were well: not of those that took their leave.
func TestSilentOnesAreMarked(t *testing.T) {
	bs := newBackends(time.Hour)
	start := time.Now()
	bs.see(start, parse(t, "m1 well, m2 leaving, m3 well"))
	bs.update(start)
	bs.see(start.Add(time.Second), parse(t, "m1 silent well, m2 silent leaving, m3 well"))
	bs.update(start.Add(time.Second))
	for _, b := range bs.sorted() {
		if want := b.Name == "m1"; b.TimedOut != want {
			t.Errorf("%s is marked silent: %t, want %t", b.Name, b.TimedOut, want)
		}
	}
}
