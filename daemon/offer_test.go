package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
)

// What is new is told, once; what is no verdict is not.
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
		{"again, slower", []health.Verdict{{Check: "a", State: health.Healthy, Latency: 1}, {Check: "b"}}, o.publish, nil},
		{"unhealthy", []health.Verdict{{Check: "a", State: health.Unhealthy}, {Check: "b"}}, o.publish, []election.Offer{{Checks: checks{"a": false}}}},
		{"draining", []health.Verdict{{Check: "a", State: health.Healthy}}, func() { o.setDraining(true) }, []election.Offer{{Draining: true, Checks: checks{"a": true}}}},
		{"stood still", []health.Verdict{{Check: "a", State: health.Unhealthy, Paused: true}}, o.publish, []election.Offer{{Draining: true, Checks: checks{}}}},
		{"no checks any more", nil, func() { o.setDraining(false) }, []election.Offer{{Checks: checks{}}}},
	} {
		verdicts, told = step.verdicts, nil
		step.act()
		if diff := cmp.Diff(step.want, told); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}
