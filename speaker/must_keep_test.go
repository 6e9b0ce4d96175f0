package speaker

import (
	"testing"
	"time"
)

// Another member counts once it has advertised the VIP for sureAfter.
func TestMustKeep(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name               string
		since, heard, from time.Time
		left               bool
	}{
		{name: "no other member"},
		{name: "no other member any more", since: ago(time.Hour)},
		{name: "first advertisement", heard: now, from: now},
		{name: "advertised for too short a time", since: ago(sureAfter - 1), heard: now, from: ago(sureAfter - 1)},
		{name: "known for long, last advertisement old", since: ago(time.Hour), heard: ago(time.Hour), from: ago(time.Hour)},
		{name: "known for long, last advertisement possibly delayed", since: ago(time.Hour), heard: ago(time.Hour - sureAfter + 1), from: ago(time.Hour)},
		{name: "advertised for long enough", since: ago(sureAfter), heard: now, from: ago(sureAfter), left: true},
	} {
		if from, ok := mustKeep(now, tt.since, tt.heard); !from.Equal(tt.from) || ok == tt.left {
			t.Errorf("%s: since %v, %t; want %v, %t", tt.name, from, ok, tt.from, !tt.left)
		}
	}
}
