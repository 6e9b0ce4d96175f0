package lease

import (
	"testing"
	"time"
)

// TestAcceptor sends sequences of requests to one acceptor.
func TestAcceptor(t *testing.T) {
	const d = 600 * time.Millisecond
	first, second := owner{"m1", 11}, owner{"m2", 22}
	again := owner{"m1", 12} // m1, restarted
	type request struct {
		at      time.Duration
		do      string
		b       ballot
		granted bool
	}
	for name, requests := range map[string][]request{
		"a greater ballot is promised": {
			{0, "prepare", ballot{1, first}, true}, {1, "prepare", ballot{2, second}, true}, {2, "propose", ballot{1, first}, false}, {3, "propose", ballot{2, second}, true},
		},
		"an equal ballot of another is not promised": {
			{0, "prepare", ballot{1, first}, true}, {1, "prepare", ballot{1, second}, false}, {2, "propose", ballot{1, second}, false}, {3, "prepare", ballot{1, first}, true},
		},
		"a proposal needs no promise": {
			{0, "propose", ballot{1, first}, true},
		},
		"a grant lasts": {
			{0, "propose", ballot{1, first}, true}, {d - 1, "prepare", ballot{9, second}, false}, {d - 1, "propose", ballot{9, second}, false},
			{d, "prepare", ballot{9, second}, true}, {d + 1, "propose", ballot{9, second}, true},
		},
		"a refused ballot is not promised": {
			{0, "propose", ballot{1, first}, true}, {1, "prepare", ballot{9, second}, false}, {2, "propose", ballot{1, first}, true},
		},
		"a renewal extends it": {
			{0, "propose", ballot{1, first}, true}, {d / 2, "propose", ballot{1, first}, true}, {d, "propose", ballot{9, second}, false}, {d + d/2, "propose", ballot{9, second}, true},
		},
		"a shorter renewal shortens nothing": {
			{0, "propose", ballot{1, first}, true}, {1, "propose briefly", ballot{1, first}, true}, {d - 1, "propose", ballot{9, second}, false}, {d, "propose", ballot{9, second}, true},
		},
		"a greater ballot of the holder extends it": {
			{0, "propose", ballot{1, first}, true}, {1, "prepare", ballot{5, first}, true}, {d / 2, "propose", ballot{5, first}, true},
			{d / 2, "propose", ballot{1, first}, false}, {d, "propose", ballot{9, second}, false},
		},
		"the holder's next process is another": {
			{0, "propose", ballot{1, first}, true}, {1, "prepare", ballot{9, again}, false}, {1, "propose", ballot{9, again}, false},
		},
		"a release frees": {
			{0, "propose", ballot{1, first}, true}, {1, "release", ballot{1, first}, true}, {2, "prepare", ballot{2, second}, true}, {3, "propose", ballot{2, second}, true},
		},
		"a released ballot is not granted": {
			{0, "propose", ballot{1, first}, true}, {1, "release", ballot{1, first}, true}, {2, "propose", ballot{1, first}, false}, {3, "prepare", ballot{1, first}, false},
			{4, "propose", ballot{2, first}, true},
		},
		"a release that overtakes the proposal counts": {
			{0, "prepare", ballot{1, first}, true}, {1, "release", ballot{1, first}, true}, {2, "propose", ballot{1, first}, false}, {3, "propose", ballot{2, second}, true},
		},
		"a release of an earlier ballot does not count": {
			{0, "propose", ballot{2, first}, true}, {1, "release", ballot{1, first}, true}, {2, "propose", ballot{3, second}, false},
		},
		"a release covers earlier ballots": {
			{0, "propose", ballot{2, first}, true}, {1, "release", ballot{4, first}, true}, {2, "propose", ballot{5, second}, true},
		},
		"a release by another process has no effect": {
			{0, "propose", ballot{1, first}, true}, {1, "release", ballot{1, second}, true}, {1, "release", ballot{7, again}, true}, {2, "propose", ballot{9, second}, false},
		},
		"a release of an old ballot leaves the promise": {
			{0, "prepare", ballot{5, second}, true}, {1, "release", ballot{1, first}, true}, {2, "propose", ballot{5, second}, true},
		},
		"a claim replaces no grant": {
			{0, "propose", ballot{1, first}, true}, {1, "see", ballot{9, second}, true}, {2, "prepare", ballot{10, second}, false}, {d - 1, "propose", ballot{10, second}, false},
		},
		"a claim restricts like a grant": {
			{0, "see", ballot{1, first}, true}, {d - 1, "propose", ballot{9, second}, false}, {d, "propose", ballot{9, second}, true},
		},
	} {
		var a acceptor
		for i, r := range requests {
			now := time.Unix(1000, 0).Add(r.at)
			v := vote{granted: true}
			switch r.do {
			case "prepare":
				v = a.prepare(now, r.b)
			case "propose":
				v = a.propose(now, r.b, d)
			case "propose briefly":
				v = a.propose(now, r.b, d/10)
			case "see":
				a.noteHolder(now, r.b, d)
			case "release":
				a.release(now, r.b, "")
			}
			if v.granted != r.granted {
				t.Errorf("%s: %d: %s %v: granted %v, want %v", name, i, r.do, r.b, v.granted, r.granted)
			}
			if !v.granted && v.remaining <= 0 && v.promised < r.b.counter {
				t.Errorf("%s: %d: %+v does not report the possible value", name, i, v)
			}
		}
	}
}
