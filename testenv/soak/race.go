package soak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// excused matches an access by GoBGP, which has data races of its own: when it ends a
// session, it reads fields that the session's goroutine may be writing.
var excused = regexp.MustCompile(`.* at 0x\S* by .*\n\s*github\.com/osrg/gobgp/`)

// races returns the race detector's reports in a speaker's log, except where both
// accesses are GoBGP's.
func races(log string) (found []string) {
	for _, part := range strings.Split(log, "==================") {
		if strings.Contains(part, "WARNING: DATA RACE") && len(excused.FindAllString(part, -1)) < 2 {
			found = append(found, strings.TrimSpace(part))
		}
	}
	return found
}

// checkRaces returns a violation per report in the speakers' logs.
func checkRaces(dir string) ([]Violation, error) {
	var found []Violation
	var failed error
	for _, m := range masters {
		log, err := os.ReadFile(filepath.Join(dir, m+"-speaker.log"))
		failed = errors.Join(failed, err)
		for _, r := range races(string(log)) {
			found = append(found, Violation{Rule: Raced, Reason: fmt.Sprintf("%s: %s", m, r)})
		}
	}
	return found, failed
}
