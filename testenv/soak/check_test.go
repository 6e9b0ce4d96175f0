package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/traffic"
)

const (
	ms = time.Millisecond
	s  = time.Second
)

// story builds a trace of one minute. All three masters are announced from the fifth
// second on, and must be from the tenth on.
type story struct{ Trace }

func newStory() *story {
	t := &story{Trace{Ready: 10 * s, End: 60 * s}}
	for _, m := range masters {
		for _, f := range []Family{4, 6} {
			for _, router := range append([]string{""}, routers...) {
				t.Changes = append(t.Changes, Change{5 * s, Sign{router, m, f}, true})
			}
		}
	}
	return t
}

// broken adds a fault that lasts from start to end.
func (t *story) broken(k Kind, master, router string, start, end time.Duration) *story {
	i := Incident{
		Fault: Fault{Kind: k, Part: schedule(1).traitOf(k).part, Master: master, Router: router, At: start, For: end - start},
		Began: start - 5*ms, Broken: start, Mending: end, Mended: end + 5*ms,
	}
	t.Incidents = append(t.Incidents, i)
	return t
}

// away removes a sign from start to end, or for good if end lies past the trace.
func (t *story) away(sign Sign, start, end time.Duration) *story {
	t.Changes = append(t.Changes, Change{start, sign, false})
	if end < t.End {
		t.Changes = append(t.Changes, Change{end, sign, true})
	}
	slices.SortStableFunc(t.Changes, func(a, b Change) int { return int(a.At - b.At) })
	return t
}

// routesAway removes all routes to a master.
func (t *story) routesAway(master string, start, end time.Duration) *story {
	for _, r := range routers {
		t.away(Sign{r, master, 4}, start, end).away(Sign{r, master, 6}, start, end)
	}
	return t
}

// addressesAway removes both addresses from a master.
func (t *story) addressesAway(master string, start, end time.Duration) *story {
	return t.away(Sign{"", master, 4}, start, end).away(Sign{"", master, 6}, start, end)
}

// allAway removes a master's routes and addresses.
func (t *story) allAway(master string, start, end time.Duration) *story {
	return t.routesAway(master, start, end).addressesAway(master, start, end)
}

// also adds a change.
func (t *story) also(c Change) *story {
	t.Changes = append(t.Changes, c)
	slices.SortStableFunc(t.Changes, func(a, b Change) int { return int(a.At - b.At) })
	return t
}

// stalled adds a stall of the observer.
func (t *story) stalled(start, end time.Duration) *story {
	t.Stalls = append(t.Stalls, Span{start, end})
	return t
}

// times returns a list of n times the rule.
func times(n int, r Rule) []Rule { return slices.Repeat([]Rule{r}, n) }

func TestCheck(t *testing.T) {
	r1m1 := Sign{"r1", "m1", 4}
	for name, c := range map[string]struct {
		story *story
		want  []Rule
	}{
		"nothing happens": {newStory(), nil},

		"withdrawn in time and back in time": {
			newStory().broken(APIServerKilled, "m1", "", 20*s, 25*s).allAway("m1", 20*s+80*ms, 27*s), nil},
		"never withdrawn": {
			newStory().broken(APIServerKilled, "m1", "", 20*s, 25*s), times(6, Stale)},
		"withdrawn everywhere except from one router in one family": {
			newStory().broken(RegistryErrors, "m1", "", 20*s, 25*s).addressesAway("m1", 20*s+80*ms, 27*s).
				away(Sign{"r1", "m1", 6}, 20*s+80*ms, 27*s).away(Sign{"r2", "m1", 4}, 20*s+80*ms, 27*s).away(Sign{"r2", "m1", 6}, 20*s+80*ms, 27*s),
			times(1, Stale)},
		"the addresses are left behind": {
			newStory().broken(APIServerKilled, "m1", "", 20*s, 25*s).routesAway("m1", 20*s+80*ms, 27*s), times(2, Stale)},
		"withdrawn too late": {
			newStory().broken(APIServerKilled, "m1", "", 20*s, 25*s).allAway("m1", 22*s, 27*s), times(6, Stale)},
		"as late as that is right for a hang": {
			newStory().broken(APIServerHangs, "m1", "", 20*s, 25*s).allAway("m1", 21*s+700*ms, 27*s), nil},
		"too late even for a hang": {
			newStory().broken(APIServerFrozen, "m1", "", 20*s, 25*s).allAway("m1", 22*s+700*ms, 27*s), times(6, Stale)},
		"too short an illness to be noticed": {
			newStory().broken(APIServerHangs, "m1", "", 20*s, 21*s), nil},
		"announced again while still ill": {
			newStory().broken(APIServerErrors, "m1", "", 20*s, 25*s).allAway("m1", 20*s+500*ms, 23*s), times(6, Stale)},
		"announced again for a moment while still ill": {
			newStory().broken(APIServerErrors, "m1", "", 20*s, 25*s).allAway("m1", 20*s+500*ms, 26*s).
				away(r1m1, 23*s+20*ms, 23*s+30*ms).also(Change{23 * s, r1m1, true}), times(1, Stale)},
		"seen late because the observer stalled": {
			newStory().stalled(20*s+500*ms, 21*s).stalled(21*s+500*ms, 22*s).
				broken(APIServerKilled, "m1", "", 20*s, 25*s).allAway("m1", 22*s, 27*s), nil},

		"announced before the checks can have passed": {
			newStory().broken(APIServerKilled, "m1", "", 20*s, 25*s).allAway("m1", 20*s+80*ms, 25*s+50*ms), times(6, Early)},
		"announced as soon as the checks have passed": {
			newStory().broken(APIServerErrors, "m1", "", 20*s, 25*s).allAway("m1", 20*s+80*ms, 25*s+210*ms), nil},
		"a thawed server answers pending requests at once": {
			newStory().broken(APIServerFrozen, "m1", "", 20*s, 25*s).allAway("m1", 21*s, 25*s+10*ms), nil},

		"a cut link delays the withdrawal until the hold time is over": {
			newStory().broken(LinkCut, "m1", "r1", 19*s, 30*s).broken(APIServerKilled, "m1", "", 20*s, 30*s).
				addressesAway("m1", 20*s+50*ms, 32*s).away(Sign{"r2", "m1", 4}, 20*s+80*ms, 32*s).away(Sign{"r2", "m1", 6}, 20*s+80*ms, 32*s).
				away(r1m1, 22*s, 35*s).away(Sign{"r1", "m1", 6}, 22*s, 35*s), nil},
		"but no longer, and only at its router": {
			newStory().broken(LinkCut, "m1", "r1", 19*s, 30*s).broken(APIServerKilled, "m1", "", 20*s, 30*s).
				addressesAway("m1", 20*s+50*ms, 32*s).away(Sign{"r2", "m1", 4}, 20*s+80*ms, 32*s).away(Sign{"r2", "m1", 6}, 22*s, 32*s).
				away(r1m1, 22*s, 35*s).away(Sign{"r1", "m1", 6}, 24*s, 35*s), times(3, Stale)},
		"a router that receives nothing keeps its route too long": {
			newStory().broken(LinkCutOut, "m1", "r1", 20*s, 30*s).away(r1m1, 22*s+900*ms, 32*s).away(Sign{"r1", "m1", 6}, 25*s, 32*s), times(1, Stale)},
		"a frozen router keeps its routes, and a hold time longer": {
			newStory().broken(RouterFrozen, "", "r1", 19*s, 23*s).broken(APIServerKilled, "m1", "", 20*s, 30*s).
				addressesAway("m1", 20*s+50*ms, 32*s).away(Sign{"r2", "m1", 4}, 20*s+80*ms, 32*s).away(Sign{"r2", "m1", 6}, 20*s+80*ms, 32*s).
				away(r1m1, 26*s, 32*s).away(Sign{"r1", "m1", 6}, 27*s+500*ms, 32*s), times(1, Stale)},

		"a frozen speaker loses its routes and later its addresses": {
			newStory().broken(SpeakerFrozen, "m1", "", 20*s, 35*s).routesAway("m1", 23*s, 38*s).addressesAway("m1", 30*s, 36*s), nil},
		"a frozen speaker keeps its routes": {
			newStory().broken(SpeakerFrozen, "m1", "", 20*s, 35*s).addressesAway("m1", 30*s, 36*s), times(4, Stale)},
		"a killed speaker's addresses do not expire": {
			newStory().broken(SpeakerKilled, "m1", "", 20*s, 35*s).routesAway("m1", 20*s+50*ms, 38*s), times(2, Stale)},
		"a speaker thaws and sees only then": {
			newStory().broken(SpeakerFrozen, "m1", "", 20*s, 22*s).broken(APIServerKilled, "m1", "", 20*s+500*ms, 30*s).allAway("m1", 22*s+300*ms, 32*s), nil},
		"a speaker thaws and does not see": {
			newStory().broken(SpeakerFrozen, "m1", "", 20*s, 22*s).broken(APIServerKilled, "m1", "", 20*s+500*ms, 30*s).allAway("m1", 24*s, 32*s), times(6, Stale)},
		"a drained speaker announces": {
			newStory().broken(SpeakerDrained, "m1", "", 20*s, 25*s), times(6, Stale)},
		"a power cut takes the routes within the hold time": {
			newStory().broken(PowerCut, "m1", "", 20*s, 30*s).addressesAway("m1", 20*s, 33*s).routesAway("m1", 23*s, 40*s), nil},
		"a power cut leaves routes": {
			newStory().broken(PowerCut, "m1", "", 20*s, 30*s).addressesAway("m1", 20*s, 33*s), times(4, Stale)},

		"a route goes for no reason": {
			newStory().away(r1m1, 40*s, 41*s), times(1, Missing)},
		"a router replaces a route": {
			newStory().away(r1m1, 40*s, 40*s+100*ms), nil},
		"an address goes for a moment": {
			newStory().away(Sign{"", "m1", 6}, 40*s, 40*s+100*ms), times(1, Missing)},
		"a flushed address comes back": {
			newStory().broken(AddressesGone, "m1", "", 20*s, 20*s+500*ms).addressesAway("m1", 20*s, 20*s+50*ms), nil},
		"a flushed address stays away": {
			newStory().broken(AddressesGone, "m1", "", 20*s, 20*s+500*ms).addressesAway("m1", 20*s, 60*s), times(2, Missing)},
		"a registry that wants a login takes the VIP": {
			newStory().broken(RegistryLogin, "m1", "", 20*s, 25*s).allAway("m1", 20*s+500*ms, 26*s), times(6, Missing)},
		"a bad file takes the VIP": {
			newStory().broken(BadFile, "m1", "", 20*s, 25*s).allAway("m1", 20*s+500*ms, 26*s), times(6, Missing)},
		"another master's fault takes the VIP": {
			newStory().broken(APIServerKilled, "m2", "", 20*s, 25*s).allAway("m1", 20*s+80*ms, 27*s).allAway("m2", 20*s+80*ms, 27*s), times(6, Missing)},
		"never back": {
			newStory().broken(APIServerErrors, "m1", "", 20*s, 25*s).allAway("m1", 20*s+80*ms, 60*s), times(6, Missing)},
		"a session never back": {
			newStory().broken(LinkCut, "m1", "r1", 20*s, 25*s).away(r1m1, 22*s, 60*s).away(Sign{"r1", "m1", 6}, 22*s, 36*s), times(1, Missing)},
		"the other router's session is not touched by a cut": {
			newStory().broken(LinkCut, "m1", "r1", 20*s, 25*s).away(Sign{"r2", "m1", 4}, 22*s, 30*s).away(r1m1, 22*s, 30*s).away(Sign{"r1", "m1", 6}, 22*s, 30*s), times(1, Missing)},

		"a data race": {
			&story{Trace{Ready: 10 * s, End: 60 * s, Crashes: []Crash{{30 * s, "m2", "exit status 66"}}}}, times(1, Crashed)},
		"a planned change costs a connection": {
			&story{Trace{End: 60 * s, Windows: []Window{{Count: traffic.Count{Failures: map[string]int{"timeout": 1}}}}}}, times(1, Dropped)},
		"a planned change costs many resets": {
			&story{Trace{End: 60 * s, Windows: []Window{{Count: traffic.Count{Failures: map[string]int{"reset": 3}}}}}}, times(1, Dropped)},
		"a handshake is under way when routers spread the load anew": {
			&story{Trace{End: 60 * s, Windows: []Window{{Count: traffic.Count{Failures: map[string]int{"reset": 1}}}}}}, nil},
	} {
		t.Run(name, func(t *testing.T) { wantRules(t, c.story, DefaultLimits(), c.want) })
	}
}

// BFD detects a silence sooner, and a stalled machine ends sessions.
func TestCheckWithBFD(t *testing.T) {
	r1m1 := Sign{"r1", "m1", 4}
	limits := DefaultLimits()
	limits.BFD, limits.Starved = 250*ms, 50*ms
	for name, c := range map[string]struct {
		story *story
		want  []Rule
	}{
		"a session ends while the machine is stalled": {
			newStory().stalled(39*s, 39*s+100*ms).away(r1m1, 40*s, 42*s), nil},
		"a session ends at a short stall": {
			newStory().stalled(39*s, 39*s+40*ms).away(r1m1, 40*s, 42*s), times(1, Missing)},
		"an address goes while the machine is stalled": {
			newStory().stalled(39*s, 39*s+100*ms).away(Sign{"", "m1", 4}, 40*s, 42*s), times(1, Missing)},
		"BFD notices a silence": {
			newStory().broken(LinkCut, "m1", "r1", 20*s, 30*s).away(r1m1, 20*s+200*ms, 32*s).away(Sign{"r1", "m1", 6}, 20*s+200*ms, 32*s), nil},
		"BFD does not notice a silence": {
			newStory().broken(LinkCut, "m1", "r1", 20*s, 30*s).away(r1m1, 20*s+200*ms, 32*s).away(Sign{"r1", "m1", 6}, 23*s, 32*s), times(1, Stale)},
		"BFD was not up yet": {
			newStory().broken(LinkCut, "m1", "r1", 18*s, 19*s).broken(LinkCut, "m1", "r1", 20*s, 30*s).
				away(r1m1, 20*s+200*ms, 32*s).away(Sign{"r1", "m1", 6}, 23*s, 32*s), nil},
	} {
		t.Run(name, func(t *testing.T) { wantRules(t, c.story, limits, c.want) })
	}
}

// wantRules checks that exactly these rules were broken.
func wantRules(t *testing.T, story *story, l Limits, want []Rule) {
	t.Helper()
	var got []Rule
	found := Check(&story.Trace, l)
	for _, v := range found {
		got = append(got, v.Rule)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s%v", diff, found)
	}
}

// A violation lists the events that may explain it, in order.
func TestViolationTellsWhatHappened(t *testing.T) {
	trace := newStory().broken(LinkCut, "m1", "r2", 18*s, 19*s).broken(APIServerKilled, "m2", "", 19*s, 20*s).
		broken(RegistryKilled, "m1", "", 20*s, 25*s).allAway("m1", 20*s+80*ms, 27*s).
		allAway("m2", 19*s+80*ms, 22*s).also(Change{23 * s, Sign{"r1", "m1", 4}, true})
	found := Check(&trace.Trace, DefaultLimits())
	if len(found) != 1 {
		t.Fatalf("found %v, want 1 violation", found)
	}
	want := []string{
		"+5.000s IPv4 address on m1 appeared",
		"+5.000s IPv6 address on m1 appeared",
		"+5.000s IPv4 route of r1 to m1 appeared",
		"+18.000s m1-r2: link cut",
		"+19.005s m1-r2: link cut: mended",
		"+20.000s m1: registry killed",
		"+5.000s IPv6 route of r1 to m1 appeared",
		"+20.080s IPv4 route of r1 to m1 disappeared",
		"+20.080s IPv6 route of r1 to m1 disappeared",
		"+20.080s IPv4 address on m1 disappeared",
		"+20.080s IPv6 address on m1 disappeared",
		"+23.000s IPv4 route of r1 to m1 appeared",
		"+25.005s m1: registry killed: mended",
	}
	slices.Sort(want)
	got := slices.Sorted(slices.Values(found[0].Around))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("around (-want +got):\n%s", diff)
	}
	if found[0].At != 23*s {
		t.Errorf("at %v, want 23s", found[0].At)
	}
}

func TestWithout(t *testing.T) {
	for name, c := range map[string]struct{ others, want []Span }{
		"nothing":     {nil, []Span{{0, 10}}},
		"all":         {[]Span{{0, 4}, {4, 10}}, nil},
		"more":        {[]Span{{-1, 4}, {3, Never}}, nil},
		"the middle":  {[]Span{{3, 6}}, []Span{{0, 3}, {6, 10}}},
		"out of turn": {[]Span{{7, 8}, {1, 3}, {2, 4}}, []Span{{0, 1}, {4, 7}, {8, 10}}},
		"beyond":      {[]Span{{12, 15}}, []Span{{0, 10}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, without(Span{0, 10}, c.others)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
