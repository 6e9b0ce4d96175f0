package holders

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// script writes a trace, a line at a time.
type script struct{ Trace }

var vip4 = netip.MustParseAddr("10.4.0.10")

// answer adds an answer to the question asked at a time, half a millisecond later
// unless late is given.
func (s *script) answer(master string, asked time.Duration, late ...time.Duration) *script {
	at := asked + ms/2
	for _, l := range late {
		at += l
	}
	s.Observations = append(s.Observations, Observation{At: at, Asked: asked, VIP: vip4, Master: master, Act: Answers})
	return s
}

// holds answers every question in a span.
func (s *script) holds(master string, start, end time.Duration) *script {
	for at := start; at < end; at += 10 * ms {
		s.answer(master, at)
	}
	return s
}

func (s *script) act(master string, act Act, at time.Duration) *script {
	s.Observations = append(s.Observations, Observation{At: at, Asked: at, VIP: vip4, Master: master, Act: act})
	return s
}

func (s *script) accepts(master string, start, end time.Duration) *script {
	for at := start; at < end; at += 10 * ms {
		s.Observations = append(s.Observations, Observation{At: at + ms/2, Asked: at, VIP: vip4, Master: master, Act: Accepts})
	}
	return s
}

// late accepts one packet, long after it was sent.
func (s *script) late(master string, asked, at time.Duration) *script {
	s.Observations = append(s.Observations, Observation{At: at, Asked: asked, VIP: vip4, Master: master, Act: Accepts})
	return s
}

// ends ends the observation.
func (s *script) ends(at time.Duration) *script {
	s.End = at
	return s
}

func (s *script) moved(master string, start, end time.Duration) *script {
	s.Moves = append(s.Moves, Move{master, start, end})
	return s
}

func TestJudge(t *testing.T) {
	type found struct {
		rule          Rule
		master, other string
	}
	// m1 holds the VIP for a second, then m2 does.
	change := func() *script {
		return new(script).holds("m1", 0, 1000*ms).act("m2", Announces, 1001*ms).holds("m2", 1010*ms, 2000*ms)
	}
	for _, test := range []struct {
		name  string
		trace *script
		want  []found
	}{
		{"nothing", new(script), nil},
		{"one holder", new(script).holds("m1", 0, 5000*ms), nil},
		{"a change", change(), nil},
		{"the first answer before the announcement", new(script).holds("m1", 0, 1000*ms).holds("m2", 1010*ms, 2000*ms).act("m2", Announces, 1060*ms), nil},
		{"and back", change().act("m1", Announces, 2001*ms).holds("m1", 2010*ms, 3000*ms), nil},
		{"and back at once, after a time without a holder", new(script).holds("m2", 0, 500*ms).act("m1", Announces, 1145*ms).holds("m1", 1146*ms, 1166*ms).
			act("m2", Announces, 1177*ms).holds("m2", 1180*ms, 2000*ms), nil},
		{"a change without an announcement", new(script).holds("m1", 0, 1000*ms).holds("m2", 1010*ms, 2000*ms), []found{{Unannounced, "m2", "m1"}}},
		{"no announcement before the observation ends", new(script).holds("m1", 0, 1000*ms).holds("m2", 1010*ms, 1100*ms).ends(1200 * ms), nil},
		{"a word too late", new(script).holds("m1", 0, 1000*ms).holds("m2", 1010*ms, 2000*ms).act("m2", Announces, 1600*ms), []found{{Unannounced, "m2", "m1"}}},

		{"both answer for a time", new(script).holds("m1", 0, 2000*ms).act("m2", Announces, 999*ms).holds("m2", 1000*ms, 1500*ms), []found{{TwoHolders, "m2", "m1"}}},
		{"both masters answer the same question", new(script).holds("m1", 0, 1000*ms).answer("m2", 990*ms, ms/10).act("m2", Announces, 991*ms).holds("m2", 1000*ms, 2000*ms), []found{{TwoHolders, "m2", "m1"}}},
		{"the old holder's answer is late", new(script).holds("m1", 0, 990*ms).answer("m1", 990*ms, 30*ms).act("m2", Announces, 1001*ms).holds("m2", 1010*ms, 2000*ms), nil},
		{"a question is late", new(script).holds("m1", 0, 1000*ms).act("m2", Announces, 994*ms).answer("m2", 990*ms, 5*ms).holds("m2", 1000*ms, 2000*ms), nil},
		{"a frozen holder answers once more", change().answer("m1", 1500*ms, ms/10).holds("m2", 2000*ms, 3000*ms), []found{{TwoHolders, "m1", "m2"}}},
		{"between two questions", change().answer("m1", 1505*ms), []found{{TwoHolders, "m1", "m2"}}},
		{"and for good", change().holds("m1", 1505*ms, 2000*ms).holds("m2", 2000*ms, 3000*ms), []found{{TwoHolders, "m1", "m2"}}},
		{"and announces itself", change().act("m1", Announces, 1503*ms), []found{{TwoHolders, "m1", "m2"}}},
		{"and asks as the VIP", change().act("m1", Asks, 1503*ms), []found{{TwoHolders, "m1", "m2"}}},
		{"while the new holder still announces", change().act("m1", Announces, 1103*ms).act("m2", Announces, 1155*ms), []found{{TwoHolders, "m1", "m2"}}},
		{"an announcement under way at the change", change().act("m1", Announces, 1003*ms), nil},
		{"a third master, too", change().answer("m3", 1505*ms), []found{{TwoHolders, "m3", "m2"}}},
		{"the old holder, then a third rightly", change().answer("m1", 1995*ms).act("m3", Announces, 2400*ms).holds("m3", 2410*ms, 3000*ms), []found{{Unannounced, "m1", "m2"}}},

		{"the holder accepts", change().accepts("m1", 0, 1000*ms).accepts("m2", 1000*ms, 2000*ms), nil},
		{"the new holder accepts before it claims", change().accepts("m2", 991*ms, 1010*ms), nil},
		{"but while the old holder claims", change().accepts("m2", 800*ms, 820*ms), []found{{Trespass, "m2", "m1"}}},
		{"the old holder accepts on", change().accepts("m1", 1020*ms, 1100*ms), []found{{Trespass, "m1", "m2"}}},
		{"for the linger of a planned change", change().accepts("m1", 1020*ms, 1600*ms).moved("m1", 995*ms, 1000*ms), nil},
		{"and longer", change().holds("m2", 2000*ms, 3000*ms).accepts("m1", 1020*ms, 2600*ms).moved("m1", 995*ms, 1000*ms), []found{{Trespass, "m1", "m2"}}},
		{"a packet under way at the change", change().accepts("m1", 1000*ms, 1001*ms), nil},
		{"and before the change", change().accepts("m1", 1020*ms, 1030*ms).moved("m1", 1500*ms, 1510*ms), []found{{Trespass, "m1", "m2"}}},
		{"the next holder accepts long before", new(script).holds("m1", 0, 500*ms).accepts("m2", 600*ms, 610*ms).act("m2", Announces, 1001*ms).holds("m2", 1010*ms, 2000*ms), []found{{Trespass, "m2", "m1"}}},
		{"a packet under way at two changes", new(script).holds("m1", 0, 1000*ms).act("m2", Announces, 1001*ms).act("m3", Announces, 1110*ms).holds("m3", 1120*ms, 2000*ms).
			late("m3", 995*ms, 1140*ms), nil},
		{"a third master accepts", change().accepts("m3", 500*ms, 510*ms), []found{{Trespass, "m3", "m1"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			sortByTime(test.trace.Observations)
			test.trace.End = cmp.Or(test.trace.End, time.Minute)
			var got []found
			for _, v := range Judge(&test.trace.Trace, DefaultLimits()) {
				t.Log(v)
				got = append(got, found{v.Rule, v.Master, v.Other})
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("found %v, want %v", got, test.want)
			}
		})
	}
}

// Consecutive violations of a kind are one violation.
func TestJudgeGathers(t *testing.T) {
	both := new(script).holds("m1", 0, 2000*ms).act("m2", Announces, 999*ms).holds("m2", 1000*ms, 1500*ms)
	sortByTime(both.ends(time.Minute).Observations)
	list := Judge(&both.Trace, DefaultLimits())
	if len(list) != 1 {
		t.Fatalf("found %v", list)
	}
	if v := list[0]; v.From > 1001*ms || v.To < 1490*ms || v.Times < 50 || len(v.Around) == 0 {
		t.Errorf("found %v, around it %q", v, v.Around)
	}
}

func TestReigns(t *testing.T) {
	s := new(script).holds("m1", 0, 500*ms).act("m2", Announces, 501*ms).holds("m2", 510*ms, 900*ms)
	reigns := s.Reigns(vip4, DefaultLimits())
	if len(reigns) != 2 || reigns[0].Master != "m1" || reigns[1].Master != "m2" {
		t.Fatalf("the reigns are %v", reigns)
	}
	if got := reigns[1].First.At - reigns[0].Last.At; got <= 0 || got > 20*ms {
		t.Errorf("silences of %v", got)
	}
}

func TestSilences(t *testing.T) {
	s := new(script).holds("m1", 0, 500*ms).holds("m2", 800*ms, 900*ms)
	s.Questions = map[netip.Addr][]time.Duration{}
	for at := time.Duration(0); at < 1000*ms; at += 10 * ms {
		if at < 600*ms || at >= 700*ms { // the observer stalled
			s.Questions[vip4] = append(s.Questions[vip4], at)
		}
	}
	want := []Silence{{500 * ms, 790 * ms}, {900 * ms, 990 * ms}}
	if got := s.Silences(vip4, 3); !slices.Equal(got, want) {
		t.Errorf("silences are %v, want %v", got, want)
	}
	if got := s.Silences(vip4, 11); !slices.Equal(got, want[:1]) {
		t.Errorf("long silences are %v, want %v", got, want[:1])
	}
}
