package arp

import (
	"slices"
	"testing"
	"time"
)

// watchStep is an event for a watch, and its expected result.
type watchStep struct {
	after   time.Duration // since the previous step
	claim   *statement    // from a host that is not a member; nil: time passes
	want    State
	changed bool
	probe   bool // a probe is sent
}

func TestWatch(t *testing.T) {
	const ms = time.Millisecond
	uses, asks := &statement{addr: vip4, src: outsider}, &statement{addr: vip4, src: outsider, probe: true}
	for name, tt := range map[string]struct {
		probe bool
		steps []watchStep
	}{
		"without probe it is free": {false, []watchStep{
			{want: Free},
			{after: time.Hour, want: Free},
		}},
		"no answer to the probe": {true, []watchStep{
			{want: Unknown, probe: true},
			{after: 99 * ms, want: Unknown},
			{after: 1 * ms, want: Unknown, probe: true},
			{after: 100 * ms, want: Unknown, probe: true},
			{after: 199 * ms, want: Unknown},
			{after: 1 * ms, want: Free, changed: true},
			{after: time.Hour, want: Free},
		}},
		"answer to the probe": {true, []watchStep{
			{want: Unknown, probe: true},
			{after: 1 * ms, claim: uses, want: Taken, changed: true},
			{after: 99 * ms, want: Taken},
			{after: 14 * time.Second, want: Taken},
			{after: 901 * ms, want: Taken, probe: true}, // 15 s after it was Taken
			{after: 1 * ms, claim: uses, want: Taken},
		}},
		"another host probes too": {true, []watchStep{
			{want: Unknown, probe: true},
			{after: 1 * ms, claim: asks, want: Taken, changed: true},
		}},
		"another host only probes": {false, []watchStep{
			{claim: asks, want: Free},
		}},
		"another host uses it for a while": {false, []watchStep{
			{after: time.Hour, claim: uses, want: Taken, changed: true},
			{after: 15 * time.Second, want: Taken, probe: true},
			{after: 5 * time.Second, claim: uses, want: Taken},
			{after: 10 * time.Second, want: Taken, probe: true},
			{after: 15 * time.Second, want: Taken, probe: true},
			{after: 15 * time.Second, want: Taken, probe: true},
			{after: 15 * time.Second, want: Taken, probe: true}, // 55 s after the last conflict
			{after: 4999 * ms, want: Taken},
			{after: 1 * ms, want: Free, changed: true},
			{after: time.Minute, want: Free},
			{after: time.Minute, claim: uses, want: Taken, changed: true},
		}},
	} {
		now := time.Now()
		w := newWatch(now, Yield, tt.probe)
		for i, step := range tt.steps {
			now = now.Add(step.after)
			var changed, probe bool
			if step.claim == nil {
				due := !w.next().IsZero() && !w.next().After(now)
				if probe, changed = w.step(now); (probe || changed) != due {
					t.Errorf("%s, step %d: due %v, but probe %v, changed %v", name, i, due, probe, changed)
				}
			} else if w.conflict(*step.claim) {
				changed, _ = w.taken(now, step.claim.src)
			}
			if w.state != step.want || changed != step.changed || probe != step.probe {
				t.Errorf("%s, step %d: %v, changed %v, probe %v, want %+v", name, i, w.state, changed, probe, step)
			}
		}
	}
}

func TestWatchOffenders(t *testing.T) {
	now := time.Now()
	w := newWatch(now, Defend, false)
	strangers := 0
	for i := range 1000 { // forged
		if _, stranger := w.taken(now, mac{2, 0, 0, 0, byte(i >> 8), byte(i)}); stranger {
			strangers++
		}
		if _, stranger := w.taken(now, mac{2}); stranger && i > 0 {
			t.Error("the same host is reported as new twice")
		}
	}
	if w.count != 2000 || strangers != knownOffenders || len(w.offenders) != knownOffenders {
		t.Errorf("%d claims, %d strangers, %d known", w.count, strangers, len(w.offenders))
	}
	if w.clearOffenders(func(mac) bool { return true }) {
		t.Error("Free although some offenders are unknown")
	}
}

func TestClearOffenders(t *testing.T) {
	now := time.Now()
	w := newWatch(now, Yield, false)
	if w.clearOffenders(func(mac) bool { return true }) {
		t.Error("clearOffenders reports a change of a Free address")
	}
	w.taken(now, member)
	w.taken(now, outsider)
	if w.clearOffenders(func(m mac) bool { return m == member }) || !slices.Equal(w.offenders, []mac{outsider}) {
		t.Errorf("state %v, offenders %v", w.state, w.offenders)
	}
	if !w.clearOffenders(func(m mac) bool { return m == outsider }) || w.state != Free || w.count != 0 || !w.next().IsZero() {
		t.Errorf("state %v, count %d, next step %v", w.state, w.count, w.next())
	}
}

// Statements sent while the link is down are unknown, so that time does not count.
func TestWatchLinkUp(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		prepare func(*watch)
		after   []time.Duration // of each probe, and of the end
		want    State
	}{
		"free":  {func(*watch) {}, nil, Free},
		"taken": {func(w *watch) { w.taken(now, outsider) }, []time.Duration{0, 15 * time.Second, 30 * time.Second, 45 * time.Second, time.Minute}, Free},
		"probing": {func(w *watch) { *w = *newWatch(now, Yield, true); w.step(now); w.step(now.Add(probeEvery)) },
			[]time.Duration{0, probeEvery, 2 * probeEvery, 2*probeEvery + probeWait}, Free},
	} {
		w := newWatch(now, Yield, false)
		tt.prepare(w)
		up := now.Add(time.Hour)
		w.linkUp(up)
		for i, after := range tt.after {
			if got := w.next().Sub(up); got != after {
				t.Errorf("%s: step %d after %v, want %v", name, i, got, after)
			}
			probe, changed := w.step(w.next())
			if last := i == len(tt.after)-1; probe == last || changed != last {
				t.Errorf("%s: step %d: probe %v, changed %v", name, i, probe, changed)
			}
		}
		if w.state != tt.want || !w.next().IsZero() {
			t.Errorf("%s: %v, next step %v", name, w.state, w.next())
		}
	}
}

// Claims are contradicted at most once a second, including the last.
func TestAnswer(t *testing.T) {
	const ms = time.Millisecond
	now := time.Now()
	e := &entry{addr: vip4}
	e.announce(now.Add(-time.Hour), time.Time{}, 24*time.Hour)
	e.schedule.sent, e.schedule.next = len(burst), now.Add(23*time.Hour)
	for i, step := range []struct {
		at, delay time.Duration
		want      bool
		answer    time.Duration
	}{
		{0, 0, true, 0},
		{500 * ms, 0, true, 1000 * ms},
		{600 * ms, 0, false, 1000 * ms},
		{5000 * ms, memberGrace, true, 5100 * ms},
		{5050 * ms, 0, false, 5100 * ms},
		{5200 * ms, memberGrace, true, 6100 * ms},
	} {
		at := now.Add(step.at)
		for next := e.next(); !next.After(at); next = e.next() {
			if !e.due(next) || e.due(next.Add(-1)) {
				t.Fatalf("step %d: due at another time than next returns", i)
			}
			e.done(next)
		}
		if got := e.answer(at, step.delay); got != step.want || e.next().Sub(now) != step.answer {
			t.Errorf("step %d: %v, answered after %v, want %+v", i, got, e.next().Sub(now), step)
		}
		if e.due(at) {
			e.done(at)
		}
	}
}

func TestSchedule(t *testing.T) {
	const ms = time.Millisecond
	start := time.Now()
	for name, tt := range map[string]struct {
		late map[int]time.Duration // delay of the n-th announcement
		want []time.Duration
	}{
		"in time":       {nil, []time.Duration{0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1500 * ms, 3000 * ms, 63 * time.Second, 123 * time.Second}},
		"a little late": {map[int]time.Duration{1: 10 * ms}, []time.Duration{0, 60 * ms, 150 * ms, 350 * ms}},
		"very late: skips announcements": {map[int]time.Duration{2: time.Second},
			[]time.Duration{0, 50 * ms, 1150 * ms, 1500 * ms, 3000 * ms, 63 * time.Second}},
		"after all of the burst": {map[int]time.Duration{1: time.Hour}, []time.Duration{0, time.Hour + 50*ms, time.Hour + 50*ms + time.Minute}},
	} {
		s := startSchedule(start, time.Minute)
		var got []time.Duration
		for i := range tt.want {
			now := s.next.Add(tt.late[i])
			if s.due(s.next.Add(-1)) || !s.due(now) {
				t.Errorf("%s: announcement %d is due at the wrong time", name, i)
			}
			got = append(got, now.Sub(start))
			s = s.done(now)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, tt.want)
		}
	}
}
