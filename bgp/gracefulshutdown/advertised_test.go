package gracefulshutdown

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// names writes peers as letters; "*" is all.
func names(s string) []string {
	if s == "*" {
		return nil
	}
	return append([]string{}, strings.Split(s, "")...)
}

func TestAdvertised(t *testing.T) {
	const half = Notice / 2
	for _, tt := range []struct {
		name  string
		steps string // wanted peers, one word per half notice; the first is the initial state
		want  string // peers-draining after each
	}{
		{"nothing changes", "ab ab ab", "ab- ab- ab-"},
		{"a peer is added", "a ab", "a- ab-"},
		{"a peer leaves", "ab a a a", "ab- a-b a-b a-"},
		{"a peer replaces another", "a b b b", "a- b-a b-a b-"},
		{"all to some", "* a a a", "*- a-bc a-bc a-"},
		{"some to all", "a * *", "a- *- *-"},
		{"some to all and back", "a * a a a", "a- *- a-bc a-bc a-"},
		{"undone in the middle", "a b a a a", "a- b-a a-b a-b a-"},
		{"all to some undone in the middle", "* a * *", "*- a-bc *- *-"},
		{"two leave one after the other", "abc bc c c c", "abc- bc-a c-ab c-b c-"},
		{"two changes of peers in a row", "ab b ac ac ac", "ab- b-a ac-b ac-b ac-"},
		{"a deleted peer", "ax a", "ax- a-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := names("abc")
			now := time.Unix(1000, 0)
			var a Advertised
			var got []string
			for i, step := range strings.Fields(tt.steps) {
				if i == 0 {
					a = Advertised{Peers: names(step)}
				}
				var again time.Time
				a, again = a.Next(now, names(step), all)
				if again.IsZero() != (len(a.draining) == 0) || !again.IsZero() && !again.After(now) {
					t.Errorf("step %d: again at %v", i, again)
				}
				peers := "*"
				if a.Peers != nil {
					peers = strings.Join(a.Peers, "")
				}
				got = append(got, peers+"-"+strings.Join(a.Draining(), ""))
				now = now.Add(half)
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("advertised to %s, want %s", got, tt.want)
			}
		})
	}
}

// After any change, a wanted peer has the route at once, and an unwanted peer loses it only after Notice. No peer is both
// wanted and draining, and in the end only wanted peers have the route.
func TestAdvertisedProperties(t *testing.T) {
	all := names("abc")
	peers := rapid.SampledFrom([]string{"*", "a", "b", "c", "ab", "bc", "abc"})
	present := func(list []string, peer string) bool { return list == nil || slices.Contains(list, peer) }
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		a := Advertised{Peers: names(peers.Draw(t, "first"))}
		lost := make(map[string]time.Time) // when a peer with the route stopped being wanted
		var want []string
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before := a
			want = names(peers.Draw(t, "want"))
			a, _ = a.Next(now, want, all)
			for _, peer := range all {
				wanted, draining := present(want, peer), slices.Contains(a.Draining(), peer)
				had := present(before.Peers, peer) || slices.Contains(before.Draining(), peer)
				switch {
				case wanted != present(a.Peers, peer):
					t.Fatalf("%s wanted: %t, advertised: %+v", peer, wanted, a)
				case wanted && draining:
					t.Fatalf("%s is wanted and draining", peer)
				case !had && draining:
					t.Fatalf("%s is draining but never had the route", peer)
				}
				if wanted || !had {
					delete(lost, peer)
					continue
				}
				if _, ok := lost[peer]; !ok {
					lost[peer] = now
				}
				if draining != (now.Sub(lost[peer]) < Notice) {
					t.Fatalf("%v after it was last wanted, %s is draining: %t", now.Sub(lost[peer]), peer, draining)
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "wait")) * time.Millisecond)
		}
		a, _ = a.Next(now.Add(Notice), want, all)
		if len(a.draining) > 0 {
			t.Fatalf("%v keep the route", a.Draining())
		}
	})
}
