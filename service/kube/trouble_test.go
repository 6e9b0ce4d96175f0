package kube

import (
	"testing"
	"time"
)

// A restarting server refuses, and for a moment forbids, requests of every kind.
func TestTroubleIsLoggedOnceAndIfItLasts(t *testing.T) {
	const refused, forbids = "connection refused", "the server forbids it"
	start := time.Now()
	s := newSaid()
	for _, step := range []struct {
		at            time.Duration
		about, words  string
		changed, over bool
	}{
		{0, "services", refused, false, false},
		{0, "nodes", refused, false, false},
		{1 * time.Second, "services", forbids, false, false},
		{2 * time.Second, "services", "", false, false}, // it was not logged
		{2900 * time.Millisecond, "nodes", refused, false, false},
		{3 * time.Second, "nodes", refused, true, false},
		{4 * time.Second, "services", refused, false, false},
		{9 * time.Second, "services", refused, false, false}, // the same reason is logged already
		{9 * time.Second, "nodes", forbids, false, false},
		{12 * time.Second, "nodes", forbids, true, false},
		{13 * time.Second, "services", "", false, false}, // another logged trouble lasts
		{14 * time.Second, "nodes", "", false, true},
		{15 * time.Second, "nodes", "", false, false},
		{16 * time.Second, "nodes", refused, false, false},
		{20 * time.Second, "nodes", refused, true, false}, // logged again
	} {
		changed, over := s.replace(start.Add(step.at), step.about, step.words)
		if changed != step.changed || over != step.over {
			t.Errorf("%v, %s %q: changed %t, over %t", step.at, step.about, step.words, changed, over)
		}
	}
	if since := s.words["nodes"].Since.Sub(start); since != 16*time.Second {
		t.Errorf("the trouble of nodes began at %v", since)
	}
}
