package soak

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpeeds(t *testing.T) {
	story := newStory().
		broken(APIServerKilled, "m1", "", 15*s, 17*s).allAway("m1", 15*s+80*ms, 17*s+500*ms).
		broken(APIServerKilled, "m2", "", 25*s, 27*s).allAway("m2", 25*s+90*ms, 27*s+405*ms).
		// In the wake of another fault: its times are not its own.
		broken(APIServerKilled, "m2", "", 29*s, 30*s).allAway("m2", 29*s+900*ms, 32*s).
		broken(AddressDeleted, "m2", "", 28*s, 28*s+500*ms).
		broken(Recoloured, "m3", "", 40*s, 42*s)
	want := []Speed{
		{Kind: APIServerKilled, Faults: 3, Together: 5 * s, Gone: 90 * ms, Back: 495 * ms},
		{Kind: AddressDeleted, Faults: 1, Together: 500 * ms},
		{Kind: Recoloured, Faults: 1, Together: 2 * s},
	}
	if diff := cmp.Diff(want, Speeds(&story.Trace)); diff != "" {
		t.Error(diff)
	}
}
