package demo

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/traffic"
)

// tooWide returns the lines that are wider than the terminal, without colours.
func tooWide(text string, width int) (wide []string) {
	for line := range strings.Lines(regexp.MustCompile(`\x1b\[[0-9]*[A-Za-z]`).ReplaceAllString(text, "")) {
		if line = strings.TrimRight(line, "\n"); utf8.RuneCountInString(line) > width {
			wide = append(wide, line)
		}
	}
	return wide
}

// The demo's text fits the terminal: sentences are folded, and the summary and the
// picture at the foot are narrow enough.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	for _, test := range []struct {
		live                bool
		told, width, wanted int
	}{
		{false, 0, 80, 80}, {true, 0, 80, 80}, {true, 80, 80, 80}, {true, 60, 60, 60}, {true, 118, 118, 118},
	} {
		var out strings.Builder
		v := newView(&out, test.live, test.told, lan)
		s := &show{view: v, heads: [2]string{"holder", "moved in"}}
		v.title(strings.Repeat("A long title ", 9))
		v.uses(lan, "m1")
		for range 200 {
			v.last = time.Time{}
			v.attempt(probe.Attempt{Outcome: probe.OK, Server: "m1"})
		}
		v.say("%s", strings.Repeat("word ", 50))
		s.rows = []row{
			{event: "speaker of m2 restarted", holder: "m1", after: 1234 * time.Millisecond, allowed: leased, count: traffic.Count{Attempts: 1198, Longest: 1499 * time.Millisecond, Failures: map[string]int{"timeout": 40}}},
			{event: "m1 parted from others", holder: "m1", after: time.Second, allowed: planned, problem: strings.Repeat("the load is not spread ", 4)},
		}
		_ = s.summarise()
		if wide := tooWide(out.String(), test.wanted); wide != nil {
			t.Errorf("live %t, width %d: these lines are wider:\n%s", test.live, test.told, strings.Join(wide, "\n"))
		}
		if !strings.Contains(out.String(), "word word") || !strings.Contains(out.String(), "1.234s") {
			t.Errorf("something is missing:\n%s", out.String())
		}
	}
}

// Every row shows the allowed outage, so that a reader sees why failed connections are ok.
func TestSummarySaysWhatIsAllowed(t *testing.T) {
	var out strings.Builder
	s := &show{view: newView(&out, false, 80), heads: [2]string{"", "acted in"}}
	s.rows = []row{{event: "steady, three masters", allowed: planned, count: traffic.Count{
		Attempts: 1198, Longest: 9 * time.Millisecond, Failures: map[string]int{"reset": 4},
	}}}
	if err := s.summarise(); err != nil {
		t.Error(err)
	}
	want := regexp.MustCompile(`(?m)^event +acted in +failed +longest +allowed +verdict\nsteady, three masters .* 4 of 1198 +9ms +100ms +ok$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got\n%s", out.String())
	}
}

// A row with a longer outage than allowed is not ok.
func TestJudge(t *testing.T) {
	for _, test := range []struct {
		longest time.Duration
		want    string
	}{
		{0, ""}, {planned, ""}, {planned + 1, "out for longer than 100ms"},
	} {
		r := row{allowed: planned, count: traffic.Count{Longest: test.longest}}
		if r.judge(); r.problem != test.want {
			t.Errorf("out for %s: got %q, want %q", test.longest, r.problem, test.want)
		}
	}
}
