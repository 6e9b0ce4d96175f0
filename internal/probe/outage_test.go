package probe_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/herald-vip/herald/internal/probe"
)

// attempts makes one attempt every 5 ms out of one letter each: "." ok,
// "r" refused, "t" timeout, "s" stalled, "l" local.
func attempts(letters string) []probe.Attempt {
	outcome := map[rune]probe.Outcome{
		'.': probe.OK, 'r': probe.Refused, 't': probe.Timeout, 's': probe.Stalled, 'l': probe.Local,
	}
	var all []probe.Attempt
	for i, letter := range letters {
		all = append(all, probe.Attempt{Start: time.Duration(i) * 5 * time.Millisecond, Outcome: outcome[letter]})
	}
	return all
}

func TestOutages(t *testing.T) {
	const ms = time.Millisecond
	type counts = map[probe.Outcome]int
	tests := map[string][]probe.Outage{
		"":       nil,
		"....":   nil,
		".r..":   {{Start: 5 * ms, End: 10 * ms, Failures: counts{probe.Refused: 1}}},
		".rrt.":  {{Start: 5 * ms, End: 20 * ms, Failures: counts{probe.Refused: 2, probe.Timeout: 1}}},
		"tt..":   {{Start: 0, End: 10 * ms, Failures: counts{probe.Timeout: 2}}},
		".r.rr.": {{Start: 5 * ms, End: 10 * ms, Failures: counts{probe.Refused: 1}}, {Start: 15 * ms, End: 25 * ms, Failures: counts{probe.Refused: 2}}},
		"..rr":   {{Start: 10 * ms, End: 15 * ms, Ongoing: true, Failures: counts{probe.Refused: 2}}},
		// The prober's own trouble is no outage, ...
		".ss.l.": nil,
		"ss":     nil,
		// ... does not begin one early, ...
		".sr.": {{Start: 10 * ms, End: 15 * ms, Failures: counts{probe.Refused: 1}}},
		// ... does not split one, ...
		".rslr.": {{Start: 5 * ms, End: 25 * ms, Failures: counts{probe.Refused: 2}}},
		// ... and does not say that one is over or still goes on.
		".rs":  {{Start: 5 * ms, End: 5 * ms, Ongoing: true, Failures: counts{probe.Refused: 1}}},
		".rs.": {{Start: 5 * ms, End: 15 * ms, Failures: counts{probe.Refused: 1}}},
	}
	for letters, want := range tests {
		t.Run(letters, func(t *testing.T) {
			if diff := cmp.Diff(want, probe.Outages(attempts(letters))); diff != "" {
				t.Errorf("outages of %q (-want +got):\n%s", letters, diff)
			}
		})
	}
}

func TestOutagesHoldEveryFailure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOf(rapid.SampledFrom([]rune(".rtsl"))).Draw(t, "letters")
		all := attempts(letters)
		outages := probe.Outages(all)
		var failed, held int
		for _, a := range all {
			if a.Outcome.Failed() {
				failed++
			}
		}
		for i, o := range outages {
			held += o.Failed()
			if o.Duration() < 0 || o.Failed() == 0 {
				t.Fatalf("%q: empty outage %+v", letters, o)
			}
			if i > 0 && o.Start <= outages[i-1].End {
				t.Fatalf("%q: outage %d touches the one before", letters, i)
			}
			if o.Ongoing && i != len(outages)-1 {
				t.Fatalf("%q: outage %d is ongoing but not the last", letters, i)
			}
			for _, a := range all {
				if a.Outcome == probe.OK && o.Start <= a.Start && a.Start < o.End {
					t.Fatalf("%q: success at %v within outage %+v", letters, a.Start, o)
				}
			}
		}
		if held != failed {
			t.Fatalf("%q: %d failures in outages, want %d", letters, held, failed)
		}
	})
}
