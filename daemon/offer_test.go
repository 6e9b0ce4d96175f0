package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
)

// What there is to say is offered; what is no verdict is not.
func TestNodeOffer(t *testing.T) {
	var verdicts []health.Verdict
	var told []election.Offer
	o := &nodeOffer{offer: func(one election.Offer) { told = append(told, one) }, verdicts: func() []health.Verdict { return verdicts }}
	type checks = map[string]bool
	for _, step := range []struct {
		what     string
		verdicts []health.Verdict
		act      func()
		want     []election.Offer
	}{
		{"no checks", nil, o.publish, nil},
		{"a worker drains", nil, func() { o.setDraining(true); o.setDraining(false) }, nil},
		{"no verdicts", []health.Verdict{{Check: "a"}, {Check: "b"}}, o.publish, []election.Offer{{Checks: checks{}}}},
		{"the first", []health.Verdict{{Check: "a", State: health.Healthy}, {Check: "b"}}, o.publish, []election.Offer{{Checks: checks{"a": true}}}},
		{"again, slower", []health.Verdict{{Check: "a", State: health.Healthy, Latency: 1}, {Check: "b"}}, o.publish, []election.Offer{{Checks: checks{"a": true}}}},
		{"unhealthy", []health.Verdict{{Check: "a", State: health.Unhealthy}, {Check: "b"}}, o.publish, []election.Offer{{Checks: checks{"a": false}}}},
		{"draining", []health.Verdict{{Check: "a", State: health.Healthy}}, func() { o.setDraining(true) }, []election.Offer{{Draining: true, Checks: checks{"a": true}}}},
		{"stood still", []health.Verdict{{Check: "a", State: health.Unhealthy, Paused: true}}, o.publish, []election.Offer{{Draining: true, Checks: checks{}}}},
		{"a VIP", nil, func() { o.Tell(checks{"cp": true}) }, []election.Offer{{Draining: true, Checks: checks{"vip:cp": true}}}},
		{"which fails", nil, func() { o.Tell(checks{"cp": false}) }, []election.Offer{{Draining: true, Checks: checks{"vip:cp": false}}}},
		{"no VIP any more", nil, func() { o.Tell(nil) }, []election.Offer{{Draining: true, Checks: checks{}}}},
		{"no checks any more", nil, func() { o.setDraining(false) }, []election.Offer{{Checks: checks{}}}},
		{"passes on", nil, func() { o.setPassing(true) }, []election.Offer{{Passing: true, Checks: checks{}}}},
	} {
		verdicts, told = step.verdicts, nil
		step.act()
		if diff := cmp.Diff(step.want, told); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}

// Another member serves a VIP that says so, is heard and does not drain; the last word counts.
func TestHeard(t *testing.T) {
	at := time.Unix(1000, 0)
	of := func(after time.Duration, change func(*election.Offered)) election.Offered {
		o := election.Offered{Member: "m2", Offer: election.Offer{Checks: map[string]bool{"vip:cp": true, "cp": true}}, Heard: at.Add(after)}
		change(&o)
		return o
	}
	serves := func(*election.Offered) {}
	for name, tt := range map[string]struct {
		offers []election.Offered
		want   time.Time
	}{
		"nobody":   {},
		"one":      {[]election.Offered{of(0, serves)}, at},
		"the last": {[]election.Offered{of(1, serves), of(2, serves), of(0, serves)}, at.Add(2)},
		"one that knows of no VIPs, whose checks pass": {[]election.Offered{
			of(1, func(o *election.Offered) {
				o.Offer.Checks = map[string]bool{"apiserver": true, "registry": true, "other": false}
			}),
		}, at.Add(1)},
		"one that knows of no VIPs, a check of which fails": {[]election.Offered{
			of(1, func(o *election.Offered) { o.Offer.Checks = map[string]bool{"apiserver": true, "registry": false} }),
		}, time.Time{}},
		"one that has some of the checks, as a worker without the VIP": {[]election.Offered{
			of(1, func(o *election.Offered) { o.Offer.Checks = map[string]bool{"registry": true} }),
		}, time.Time{}},
		"one that has none of the checks": {[]election.Offered{
			of(1, func(o *election.Offered) { o.Offer.Checks = map[string]bool{"other": true} }),
		}, time.Time{}},
		"no other": {[]election.Offered{
			of(1, func(o *election.Offered) { o.Self = true }),
			of(2, func(o *election.Offered) { o.Silent = true }),
			of(3, func(o *election.Offered) { o.Offer.Draining = true }),
			of(4, func(o *election.Offered) { o.Offer.Checks = map[string]bool{"vip:cp": false, "cp": true} }),
		}, time.Time{}},
	} {
		o := &nodeOffer{
			offers: func() []election.Offered { return tt.offers },
			last:   election.Offer{Checks: map[string]bool{"apiserver": false, "registry": true}},
		}
		if got := o.Heard("cp", []string{"apiserver", "registry", "link eth1"}); !got.Equal(tt.want) {
			t.Errorf("%s: heard at %v, want %v", name, got, tt.want)
		}
	}
}
