package witness

import (
	"strings"
	"testing"
	"time"
)

func TestCounters(t *testing.T) {
	if stolen, total := processors("cpu  10 20 30 40 5 6 7 8 100 100\ncpu0 1\n"); stolen != 8 || total != 126 {
		t.Errorf("stolen %v of %v, want 8 of 126", stolen, total)
	}
	if got := pressure("some avg10=98.64 avg60=95.43 avg300=85.47 total=1758420\nfull avg10=0.00 total=0\n"); got != 1758420*time.Microsecond {
		t.Errorf("processes waited for %v", got)
	}
	if got := pressure(""); got != 0 {
		t.Errorf("without the file the waiting time is %v", got)
	}
}

func TestVerdict(t *testing.T) {
	began := time.Unix(1, 0)
	at := func(second int, late time.Duration, stolen, total float64, waited time.Duration) look {
		return look{began.Add(time.Duration(second) * time.Second), late, stolen, total, waited}
	}
	calm := []look{at(0, 0, 0, 0, 0), at(1, 10*time.Millisecond, 1, 200, 500*time.Millisecond), at(2, 0, 2, 400, time.Second)}
	for _, test := range []struct {
		name                string
		looks               []look
		since               int // seconds
		wantStolen, starved string
	}{
		{"calm", calm, 0, "", ""},
		{"nothing seen", calm[:1], 0, "", ""},
		{"late", append(calm, at(3, time.Second, 3, 600, time.Second)), 0, "", "a tick was 1s late"},
		{"stolen", append(calm, at(3, 0, 50, 600, time.Second)), 2, "12 % of the processors' time was stolen", ""},
		{"pressure", append(calm, at(3, 0, 3, 600, 2*time.Second)), 3, "", "for 100 % of the time a process waited"},
		{"before", append(calm, at(3, time.Second, 100, 600, 2*time.Second), at(4, 0, 100, 800, 2*time.Second), at(5, 0, 100, 1000, 2*time.Second)), 5, "", ""},
	} {
		since := began.Add(time.Duration(test.since) * time.Second)
		if got := stolen(test.looks, since); got != test.wantStolen {
			t.Errorf("%s: stolen: %q, want %q", test.name, got, test.wantStolen)
		}
		if got := waited(test.looks, since); !strings.HasPrefix(got, test.starved) || (got == "") != (test.starved == "") {
			t.Errorf("%s: %q, want %q", test.name, got, test.starved)
		}
	}
}

func TestWitnessLooks(t *testing.T) {
	w := Start()
	w.Starved(time.Now())
	w.Stolen(time.Now())
	w.Close()
	if len(w.looks) < 3 || w.looks[0].time == 0 {
		t.Errorf("the witness has seen %+v", w.looks)
	}
}
