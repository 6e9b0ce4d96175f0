package speaker

import (
	"testing"
	"time"
)

// Another member's word counts once it was said long enough after it was first known, and this one fails.
func TestAlone(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name               string
		since, heard, from time.Time
		left               bool
	}{
		{name: "nobody serves"},
		{name: "nobody any more", since: ago(time.Hour)},
		{name: "somebody does, as ever", heard: now, from: now},
		{name: "not for long", since: ago(sureAfter - 1), heard: now, from: ago(sureAfter - 1)},
		{name: "for long, by an old word", since: ago(time.Hour), heard: ago(time.Hour), from: ago(time.Hour)},
		{name: "for long, by a word that may have been on its way", since: ago(time.Hour), heard: ago(time.Hour - sureAfter + 1), from: ago(time.Hour)},
		{name: "for long", since: ago(sureAfter), heard: now, from: ago(sureAfter), left: true},
	} {
		if from, ok := mustKeep(now, tt.since, tt.heard); !from.Equal(tt.from) || ok == tt.left {
			t.Errorf("%s: since %v, %t; want %v, %t", tt.name, from, ok, tt.from, !tt.left)
		}
	}
}
