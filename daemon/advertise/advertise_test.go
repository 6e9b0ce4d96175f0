package advertise

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
)

// fake is an election with these states of members.
type fake struct {
	advertise func(election.Advertisement)
	states    []election.MemberState
}

func (f fake) Advertise(a election.Advertisement)   { f.advertise(a) }
func (f fake) MemberStates() []election.MemberState { return f.states }

// Each change is advertised; a check without a verdict is left out.
func TestAdvertiser(t *testing.T) {
	var verdicts []health.Verdict
	var told []election.Advertisement
	o := New(fake{advertise: func(a election.Advertisement) { told = append(told, a) }}, func() []health.Verdict { return verdicts })
	type checks = map[string]bool
	for _, step := range []struct {
		what     string
		verdicts []health.Verdict
		act      func()
		want     []election.Advertisement
	}{
		{"no checks", nil, o.Publish, nil},
		{"a worker drains", nil, func() { o.SetDraining(true); o.SetDraining(false) }, nil},
		{"no verdicts", []health.Verdict{{Name: "a"}, {Name: "b"}}, o.Publish, []election.Advertisement{{Checks: checks{}}}},
		{"the first", []health.Verdict{{Name: "a", State: health.Healthy}, {Name: "b"}}, o.Publish, []election.Advertisement{{Checks: checks{"a": true}}}},
		{"again, slower", []health.Verdict{{Name: "a", State: health.Healthy, Latency: 1}, {Name: "b"}}, o.Publish, []election.Advertisement{{Checks: checks{"a": true}}}},
		{"unhealthy", []health.Verdict{{Name: "a", State: health.Unhealthy}, {Name: "b"}}, o.Publish, []election.Advertisement{{Checks: checks{"a": false}}}},
		{"draining", []health.Verdict{{Name: "a", State: health.Healthy}}, func() { o.SetDraining(true) }, []election.Advertisement{{Draining: true, Checks: checks{"a": true}}}},
		{"stood still", []health.Verdict{{Name: "a", State: health.Unhealthy, Paused: true}}, o.Publish, []election.Advertisement{{Draining: true, Checks: checks{}}}},
		{"a VIP", nil, func() { o.Tell(checks{"cp": true}) }, []election.Advertisement{{Draining: true, Checks: checks{"vip:cp": true}}}},
		{"which fails", nil, func() { o.Tell(checks{"cp": false}) }, []election.Advertisement{{Draining: true, Checks: checks{"vip:cp": false}}}},
		{"no VIP any more", nil, func() { o.Tell(nil) }, []election.Advertisement{{Draining: true, Checks: checks{}}}},
		{"no checks any more", nil, func() { o.SetDraining(false) }, []election.Advertisement{{Checks: checks{}}}},
		{"passes on", nil, func() { o.SetPassing(true) }, []election.Advertisement{{Passing: true, Checks: checks{}}}},
	} {
		verdicts, told = step.verdicts, nil
		step.act()
		if diff := cmp.Diff(step.want, told); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}

// Another member serves a VIP if it says so, has not timed out and does not drain; its last advertisement counts.
func TestHeard(t *testing.T) {
	at := time.Unix(1000, 0)
	subject := func(after time.Duration, change func(*election.MemberState)) election.MemberState {
		o := election.MemberState{Member: "m2", Advertisement: election.Advertisement{Checks: map[string]bool{"vip:cp": true, "cp": true}}, Received: at.Add(after)}
		change(&o)
		return o
	}
	serves := func(*election.MemberState) {}
	for name, tt := range map[string]struct {
		offers []election.MemberState
		want   time.Time
	}{
		"nobody":   {},
		"one":      {[]election.MemberState{subject(0, serves)}, at},
		"the last": {[]election.MemberState{subject(1, serves), subject(2, serves), subject(0, serves)}, at.Add(2)},
		"one that knows of no VIPs, whose checks pass": {[]election.MemberState{
			subject(1, func(o *election.MemberState) {
				o.Advertisement.Checks = map[string]bool{"apiserver": true, "registry": true, "other": false}
			}),
		}, at.Add(1)},
		"one that knows of no VIPs, a check of which fails": {[]election.MemberState{
			subject(1, func(o *election.MemberState) {
				o.Advertisement.Checks = map[string]bool{"apiserver": true, "registry": false}
			}),
		}, time.Time{}},
		"one that has some of the checks, as a worker without the VIP": {[]election.MemberState{
			subject(1, func(o *election.MemberState) { o.Advertisement.Checks = map[string]bool{"registry": true} }),
		}, time.Time{}},
		"one that has none of the checks": {[]election.MemberState{
			subject(1, func(o *election.MemberState) { o.Advertisement.Checks = map[string]bool{"other": true} }),
		}, time.Time{}},
		"no other": {[]election.MemberState{
			subject(1, func(o *election.MemberState) { o.Self = true }),
			subject(2, func(o *election.MemberState) { o.TimedOut = true }),
			subject(3, func(o *election.MemberState) { o.Advertisement.Draining = true }),
			subject(4, func(o *election.MemberState) { o.Advertisement.Checks = map[string]bool{"vip:cp": false, "cp": true} }),
		}, time.Time{}},
	} {
		o := &Advertiser{
			election: fake{states: tt.offers},
			last:     election.Advertisement{Checks: map[string]bool{"apiserver": false, "registry": true}},
		}
		if got := o.Heard("cp", []string{"apiserver", "registry", "link eth1"}); !got.Equal(tt.want) {
			t.Errorf("%s: heard at %v, want %v", name, got, tt.want)
		}
	}
}
