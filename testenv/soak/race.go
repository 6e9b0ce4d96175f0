package soak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// library is the module with excused data races of its own. When GoBGP ends a session,
// it reads fields that the session's goroutine may be writing.
const library = "github.com/osrg/gobgp/"

// races returns the race detector's reports in a speaker's log, except where both
// accesses are the library's.
func races(log string) []string {
	const rule = "=================="
	var found []string
	for _, part := range strings.Split(log, rule) {
		if !strings.Contains(part, "WARNING: DATA RACE") {
			continue
		}
		foreign := 0
		lines := strings.Split(part, "\n")
		for i, line := range lines[:len(lines)-1] {
			access := strings.Contains(line, " at 0x") && strings.Contains(line, " by ")
			if access && strings.HasPrefix(strings.TrimSpace(lines[i+1]), library) {
				foreign++
			}
		}
		if foreign < 2 {
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
